use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory that goes when the test ends.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("muster-pki-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(unique);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shown(serving: &Serving) -> Vec<u8> {
    serving.current().cert[0].to_vec()
}

#[test]
fn the_certificate_is_replaced_while_it_serves_and_not_before() {
    let dir = Dir::new();
    let pki = Arc::new(Pki::open(&dir.0).unwrap());
    let now: Timestamp = "2026-01-15T00:00:00Z".parse().unwrap();
    let serving = Serving::new(pki, Ipv4Addr::LOCALHOST.into(), now).unwrap();
    let first = shown(&serving);

    assert!(!serving.renew_if_due("2026-09-14T23:59:59Z".parse().unwrap()).unwrap());
    assert_eq!(shown(&serving), first);
    let due = "2026-09-15T00:00:00Z".parse().unwrap();
    assert!(serving.renew_if_due(due).unwrap());
    assert_ne!(shown(&serving), first);
    assert!(!serving.renew_if_due(due).unwrap(), "once is enough");
}

#[test]
fn keys_are_for_their_owner_only_and_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = Dir::new();
    let ca = Pki::open(&dir.0).unwrap().ca;
    assert_eq!(Pki::open(&dir.0).unwrap().ca, ca);
    let mut files: Vec<String> = fs::read_dir(&dir.0)
        .unwrap()
        .map(|it| {
            let it = it.unwrap();
            let mode = it.metadata().unwrap().permissions().mode() & 0o777;
            format!("{} {mode:o}", it.file_name().to_string_lossy())
        })
        .collect();
    files.sort();
    assert_eq!(files, ["ca.crt 600", "ca.key 600", "sa.key 600"]);
}

#[test]
fn secrets_are_not_in_what_is_printed() {
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let printed = format!("{pki:?} {:?}", pki.client(Who::Admin).unwrap());
    assert!(!printed.contains("PRIVATE KEY"), "{printed}");
}
