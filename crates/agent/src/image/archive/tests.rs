use std::fs;
use std::io::Write as _;

use expect_test::{Expect, expect};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// What an archive of these files is read as; links are `name -> target`.
fn check(name: &str, files: &[(&str, &[u8])], expected: &Expect) {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        match name.split_once(" -> ") {
            Some((name, target)) => {
                header.set_entry_type(tar::EntryType::Symlink);
                tar.append_link(&mut header, name, target).unwrap();
            }
            None => tar.append_data(&mut header, name, *content).unwrap(),
        }
    }
    let tar = tar.into_inner().unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar).unwrap();
    let said = [("tar", tar), ("tgz", gzip.finish().unwrap())].map(|(ending, content)| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{name}.{ending}"));
        fs::write(&path, content).unwrap();
        let said = say(Archive::open(&path)).replace(path.to_str().unwrap(), "ARCHIVE");
        said.replace(&format!("linux/{}", architecture()), "linux/OURS")
    });
    assert_eq!(said[0], said[1], "gzipped or not");
    expected.assert_eq(&said[0]);
}

fn say(read: Result<Archive, ImageError>) -> String {
    let archive = match read {
        Ok(archive) => archive,
        Err(error) => return error.to_string(),
    };
    let short = |it: &str| it.chars().take(13).collect::<String>();
    let images = archive.images.iter().map(|it| format!("{:?} is {}", it.names, short(&it.target.digest)));
    let made =
        archive.generated_manifests.iter().map(|it| format!("made {} {}", short(&it.digest), labels(it)));
    let mut wanted: Vec<_> = archive
        .blobs_by_file
        .iter()
        .map(|(file, it)| {
            let file =
                file.strip_prefix("blobs/sha256/").map_or(file.clone(), |it| it.chars().take(6).collect());
            format!("{file}: {} {} bytes {}", short(&it.digest), it.size, labels(it))
        })
        .collect();
    wanted.sort();
    images.chain(made).chain(wanted).collect::<Vec<_>>().join("\n")
}

fn labels(blob: &Blob) -> String {
    let mut all: Vec<_> = blob
        .labels
        .iter()
        .map(|(key, value)| {
            format!(
                "{}={}",
                key.trim_start_matches("containerd.io/"),
                value.chars().take(13).collect::<String>()
            )
        })
        .collect();
    all.sort();
    all.join(" ")
}

fn blob_name(content: &[u8]) -> String {
    format!("blobs/sha256/{}", sha256_digest(content).trim_start_matches("sha256:"))
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": sha256_digest(content), "size": content.len()})
}

#[test]
fn layouts() {
    let layer = b"a layer".as_slice();
    let config = json!({"rootfs": {"diff_ids": [sha256_digest(layer)]}}).to_string();
    let manifest =
        json!({"config": descriptor(CONFIG_MEDIA_TYPE, config.as_bytes()), "layers": [descriptor(LAYER_MEDIA_TYPE, layer)]})
            .to_string();
    let ours = json!({"os": "linux", "architecture": architecture()});
    let mut named = descriptor(MANIFEST_MEDIA_TYPE, manifest.as_bytes());
    named["annotations"] = json!({"org.opencontainers.image.ref.name": "tool:1"});
    let blobs = [layer, config.as_bytes(), manifest.as_bytes()];
    let names = blobs.map(blob_name);
    let mut files: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(blobs).collect();

    let index = json!({"manifests": [named]}).to_string();
    files.push(("./index.json", index.as_bytes()));
    check(
        "layout",
        &files,
        &expect![[r#"
            ["tool:1"] is sha256:33153c
            2528af: sha256:2528af 99 bytes 
            33153c: sha256:33153c 318 bytes gc.ref.content.config=sha256:2528af gc.ref.content.l.0=sha256:e28d98
            e28d98: sha256:e28d98 7 bytes uncompressed=sha256:e28d98"#]],
    );

    // One that is for many platforms, of which the archive has ours.
    let mut of_ours = descriptor(MANIFEST_MEDIA_TYPE, manifest.as_bytes());
    of_ours["platform"] = ours;
    let mut foreign = descriptor(MANIFEST_MEDIA_TYPE, b"not there");
    foreign["platform"] = json!({"os": "linux", "architecture": "s390x"});
    let inner = json!({"manifests": [foreign, of_ours]}).to_string();
    let outer = json!({"manifests": [descriptor(INDEX_MEDIA_TYPES[0], inner.as_bytes())]}).to_string();
    let inner_name = blob_name(inner.as_bytes());
    files.pop();
    files.push(("index.json", outer.as_bytes()));
    files.push((&inner_name, inner.as_bytes()));
    check(
        "platforms",
        &files,
        &expect![[r#"
            [] is sha256:33153c
            2528af: sha256:2528af 99 bytes 
            33153c: sha256:33153c 318 bytes gc.ref.content.config=sha256:2528af gc.ref.content.l.0=sha256:e28d98
            e28d98: sha256:e28d98 7 bytes uncompressed=sha256:e28d98"#]],
    );

    files.remove(0);
    check(
        "no-layer",
        &files,
        &expect![
            "ARCHIVE is not an image archive: blobs/sha256/e28d98ac666afd34f089b971a663264d54d67a60ddc82996d48d8f3c204eb75f is missing from it. `docker save` and OCI layouts in a tar are, gzipped or not"
        ],
    );
}

#[test]
fn images_for_another_machine() {
    let config = json!({"os": "linux", "architecture": "pdp11", "rootfs": {"diff_ids": []}}).to_string();
    let manifest =
        json!({"config": descriptor(CONFIG_MEDIA_TYPE, config.as_bytes()), "layers": []}).to_string();
    let index = json!({"manifests": [descriptor(MANIFEST_MEDIA_TYPE, manifest.as_bytes())]}).to_string();
    let names = [config.as_bytes(), manifest.as_bytes()].map(blob_name);
    let refused =
        expect!["ARCHIVE is for linux/pdp11, but this machine is linux/OURS: use an image for this platform"];
    check(
        "foreign",
        &[(&names[0], config.as_bytes()), (&names[1], manifest.as_bytes()), ("index.json", index.as_bytes())],
        &refused,
    );
    let manifest = json!([{"Config": "c.json", "RepoTags": ["a:1"], "Layers": []}]).to_string();
    check(
        "foreign-docker",
        &[("c.json", config.as_bytes()), ("manifest.json", manifest.as_bytes())],
        &refused,
    );
}

#[test]
fn an_archive_that_is_cut_off() {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5000);
    tar.append_data(&mut header, "blob", [7_u8; 5000].as_slice()).unwrap();
    let tar = tar.into_inner().unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(&tar).unwrap();
    let said = [tar, gzip.finish().unwrap()].map(|content| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut");
        fs::write(&path, &content[..3000]).unwrap();
        say(Archive::open(&path)).replace(path.to_str().unwrap(), "ARCHIVE")
    });
    expect![[r#"
        ARCHIVE is not an image archive: the archive is truncated (unexpected EOF during skip): copy it again. `docker save` and OCI layouts in a tar are, gzipped or not
        ARCHIVE is not an image archive: the archive is truncated (incomplete deflate stream): copy it again. `docker save` and OCI layouts in a tar are, gzipped or not"#]].assert_eq(&said.join("\n"));
}

#[test]
fn docker_archives() {
    let layer = b"a layer".as_slice();
    let config = json!({"rootfs": {"diff_ids": [sha256_digest(layer), sha256_digest(layer)]}}).to_string();
    let manifest =
        json!([{"Config": "c.json", "RepoTags": ["a:1", "b:2"], "Layers": ["1/layer.tar", "2/layer.tar"]}]);
    let manifest = manifest.to_string();
    let files: &[(&str, &[u8])] = &[
        ("1/layer.tar", layer),
        ("2/layer.tar -> ../1/layer.tar", b""),
        ("c.json", config.as_bytes()),
        ("manifest.json", manifest.as_bytes()),
    ];
    check(
        "docker",
        files,
        &expect![[r#"
        ["a:1", "b:2"] is sha256:1f6eb8
        made sha256:1f6eb8 gc.ref.content.config=sha256:f2db6d gc.ref.content.l.0=sha256:e28d98 gc.ref.content.l.1=sha256:e28d98
        1/layer.tar: sha256:e28d98 7 bytes uncompressed=sha256:e28d98
        c.json: sha256:f2db6d 173 bytes "#]],
    );
}

#[test]
fn files_that_are_no_archive() {
    check(
        "nothing",
        &[("letter", b"dear")],
        &expect![
            "ARCHIVE is not an image archive: neither index.json nor manifest.json is in it. `docker save` and OCI layouts in a tar are, gzipped or not"
        ],
    );
    check(
        "no-json",
        &[("index.json", b"{")],
        &expect![
            "ARCHIVE is not an image archive: cannot parse index.json: EOF while parsing an object at line 1 column 1. `docker save` and OCI layouts in a tar are, gzipped or not"
        ],
    );
    check(
        "no-digest",
        &[("index.json", br#"{"manifests":[{"digest":"sha256:../../etc/passwd"}]}"#)],
        &expect![[
            r#"ARCHIVE is not an image archive: "sha256:../../etc/passwd" is not a sha256 digest. `docker save` and OCI layouts in a tar are, gzipped or not"#
        ]],
    );
    check(
        "circle",
        &[("manifest.json", br#"[{"Config":"a"}]"#), ("a -> b", b""), ("b -> a", b"")],
        &expect![
            "ARCHIVE is not an image archive: a is a cyclic link. `docker save` and OCI layouts in a tar are, gzipped or not"
        ],
    );
    check(
        "outside",
        &[("manifest.json", br#"[{"Config":"../../../etc/passwd"}]"#)],
        &expect![
            "ARCHIVE is not an image archive: ../../../etc/passwd is missing from it. `docker save` and OCI layouts in a tar are, gzipped or not"
        ],
    );
}
