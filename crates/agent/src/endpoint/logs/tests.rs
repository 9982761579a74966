use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const LOG: &str = "\
2026-01-02T03:04:05.000000000Z stdout F one
2026-01-02T03:04:06.000000000Z stderr P tw
2026-01-02T03:04:07.000000000Z stderr F o
what no runtime writes
2026-01-02T03:04:08.000000000Z stdout F 
2026-01-02T03:04:09.000000000Z stdout F three
";

/// The log directory of a node with one container.
struct LogDir(tempfile::TempDir);

impl LogDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("pod/c")).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn log(&self) -> PathBuf {
        self.path().join("pod/c/0.log")
    }

    fn place(&self) -> LogFile {
        log_file(self.path(), &self.path().join("pod"), "c", 0).unwrap()
    }
}

async fn shown(log: &str, wanted: LogOptions) -> String {
    let dir = LogDir::new();
    fs::write(dir.log(), log).unwrap();
    let (to, mut from) = mpsc::channel(4);
    tokio::spawn(send_log(dir.place(), wanted, || async { false }, to));
    let mut all = Vec::new();
    while let Some(chunk) = from.recv().await {
        match chunk {
            Ok(chunk) => all.extend(&chunk[..]),
            Err(error) => all.extend(format!("error: {error}").bytes()),
        }
    }
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn log_lines_are_filtered_by_the_options() {
    let check = async |wanted: LogOptions, expected: &str| assert_eq!(shown(LOG, wanted).await, expected);
    let plain = LogOptions::default();
    check(plain.clone(), "one\ntwo\n\nthree\n").await;
    check(LogOptions { stream: Some("stderr"), ..plain.clone() }, "two\n").await;
    check(LogOptions { bytes_max: Some(6), ..plain.clone() }, "one\ntw").await;
    check(LogOptions { since: "2026-01-02T03:04:08Z".parse().ok(), ..plain.clone() }, "\nthree\n").await;
    // Even a container that has ended may be followed: to the end.
    check(LogOptions { follow: true, ..plain.clone() }, "one\ntwo\n\nthree\n").await;
    let times = "2026-01-02T03:04:05.000000000Z one\n2026-01-02T03:04:06.000000000Z two\n2026-01-02T03:04:08.000000000Z \n\
                 2026-01-02T03:04:09.000000000Z three\n";
    check(LogOptions { timestamps: true, ..plain }, times).await;
}

#[test]
fn times_have_nine_digits_after_the_point() {
    let shown = |time: &str| String::from_utf8(pad_nanoseconds(time.as_bytes())).unwrap();
    assert_eq!(shown("2026-01-02T03:04:05.12Z"), "2026-01-02T03:04:05.120000000Z");
    assert_eq!(shown("2026-01-02T03:04:05.123456789+01:00"), "2026-01-02T03:04:05.123456789+01:00");
    assert_eq!(shown("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05.000000000Z");
    assert_eq!(shown("not-at-all-a-time--0"), "not-at-all-a-time--.000000000");
}

#[tokio::test]
async fn the_last_lines_are_found_from_the_end() {
    let line = |at: usize| format!("2026-01-02T03:04:05.000000000Z stdout F {at}\n");
    let long: String = (0..5_000).map(line).collect();
    assert!(3 * CHUNK_BYTES < long.len());
    for (count, expected) in [(0, String::new()), (1, "4999\n".into()), (2, "4998\n4999\n".into())] {
        assert_eq!(
            shown(&long, LogOptions { tail_lines: Some(count), ..LogOptions::default() }).await,
            expected
        );
    }
    let many = shown(&long, LogOptions { tail_lines: Some(2_000), ..LogOptions::default() }).await;
    assert_eq!((many.lines().next(), many.lines().count()), (Some("3000"), 2_000));
    let all = shown(&long, LogOptions { tail_lines: Some(9_000), ..LogOptions::default() }).await;
    assert_eq!(all.lines().count(), 5_000);
    assert_eq!(shown("", LogOptions { tail_lines: Some(3), ..LogOptions::default() }).await, "");
}

#[tokio::test]
async fn a_line_without_end_takes_no_memory() {
    let long = "x".repeat(LINE_BYTES_MAX + 1);
    assert_eq!(shown(&long, LogOptions::default()).await, "error: a line of the log is too long");
}

#[tokio::test]
async fn a_log_that_is_followed_is_rotated_and_ends_with_its_container() {
    let dir = LogDir::new();
    let say = |path: &Path, text: &str| {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "2026-01-02T03:04:05.000000000Z stdout F {text}").unwrap();
    };
    say(&dir.log(), "one");
    let is_running: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(true)));
    let (to, mut from) = mpsc::channel(4);
    let wanted = LogOptions { follow: true, ..LogOptions::default() };
    let sending =
        tokio::spawn(send_log(dir.place(), wanted, || async { is_running.load(Ordering::SeqCst) }, to));
    let mut next = async || from.recv().await.map(|it| String::from_utf8_lossy(&it.unwrap()).into_owned());
    assert_eq!(next().await.as_deref(), Some("one\n"));
    say(&dir.log(), "two");
    assert_eq!(next().await.as_deref(), Some("two\n"));
    // What is still written to the old file comes too.
    let old = dir.log().with_extension("log.1");
    fs::rename(dir.log(), &old).unwrap();
    say(&old, "three");
    say(&dir.log(), "four");
    assert_eq!(next().await.as_deref(), Some("three\n"));
    assert_eq!(next().await.as_deref(), Some("four\n"));
    // It goes with its pod, maybe before anybody looks again.
    fs::remove_file(dir.log()).unwrap();
    is_running.store(false, Ordering::SeqCst);
    assert_eq!(next().await, None);
    sending.await.unwrap();
}

#[test]
fn no_link_leads_out_of_the_logs() {
    let dir = LogDir::new();
    let opened = || dir.place().open().map(drop).map_err(|it| it.raw_os_error());
    assert!(opened().is_err(), "it is not there");
    let secret = dir.path().join("secret");
    fs::write(&secret, "s").unwrap();
    symlink(&secret, dir.log()).unwrap();
    assert!(opened().is_err(), "the file is a link");
    fs::remove_file(dir.log()).unwrap();
    fs::remove_dir(dir.path().join("pod/c")).unwrap();
    fs::create_dir(dir.path().join("other")).unwrap();
    fs::write(dir.path().join("other/0.log"), "s").unwrap();
    symlink("../other", dir.path().join("pod/c")).unwrap();
    assert!(opened().is_err(), "a directory on the way is a link");
    fs::remove_file(dir.path().join("pod/c")).unwrap();
    fs::create_dir_all(dir.log()).unwrap();
    assert!(opened().is_err(), "a directory is no log");

    for name in ["..", ".", "", "a/b", "../../etc"] {
        assert!(log_file(dir.path(), &dir.path().join("pod"), name, 0).is_none(), "{name}");
    }
    assert!(log_file(dir.path(), Path::new("/etc"), "c", 0).is_none());
    let above = LogFile { root: dir.path().join("pod"), path: "../secret".into() };
    assert!(above.open().is_err());
}
