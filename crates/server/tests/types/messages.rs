//! The protobuf messages of k8s-pb, with the markers in their comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::schemas::{Schema, plain};

/// Type, field, number, kind and markers.
type Newer = (&'static str, &'static str, u32, &'static str, &'static [(&'static str, &'static str)]);

/// What Kubernetes 1.36 has and k8s-pb, which is at 1.35, has not yet.
const NEWER: &[Newer] = &[
    ("io.k8s.api.core.v1.ImageVolumeStatus", "imageRef", 1, "string, optional", &[]),
    (
        "io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus",
        "resourceClaimName",
        1,
        "string, optional",
        &[],
    ),
    (
        "io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus",
        "containers",
        2,
        "string, repeated",
        &[("listType", "set")],
    ),
    ("io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus", "resources", 3, "btree_map", &[]),
    ("io.k8s.api.core.v1.PodSchedulingGroup", "podGroupName", 1, "string, optional", &[]),
    ("io.k8s.api.core.v1.PodSpec", "schedulingGroup", 43, "message, optional", &[]),
    (
        "io.k8s.api.core.v1.PodStatus",
        "nodeAllocatableResourceClaimStatuses",
        21,
        "message, repeated",
        &[("listType", "atomic")],
    ),
    ("io.k8s.api.core.v1.ResourceHealth", "message", 6, "string, optional", &[]),
    ("io.k8s.api.core.v1.VolumeMountStatus", "volumeStatus", 5, "message, optional", &[]),
    ("io.k8s.api.core.v1.VolumeStatus", "image", 1, "message, optional", &[]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta", "shardInfo", 5, "message, optional", &[]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ShardInfo", "selector", 1, "string, optional", &[]),
];

/// What 1.36 has no more.
const GONE: &[(&str, &str)] = &[("io.k8s.api.core.v1.podspec", "workloadref")];

#[derive(Debug, Default)]
pub(crate) struct Message {
    markers: BTreeMap<String, String>,
    fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct Field {
    name: String,
    number: u32,
    /// As prost says it: `string, optional` or `message, repeated`.
    pub(crate) kind: String,
    /// The message that it holds, in the same package.
    of: String,
    markers: BTreeMap<String, String>,
}

/// By package and plain name: `io.k8s.api.core.v1.podspec`.
#[derive(Debug)]
pub(crate) struct Messages(BTreeMap<String, Message>);

/// A field of an object, and the numbers that lead to it.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) path: Vec<u32>,
    pub(crate) field: &'a Field,
    /// The struct that Go embeds it with.
    pub(crate) embedded: Option<&'a str>,
}

pub(crate) fn read(folder: &Path) -> Messages {
    let mut messages = BTreeMap::new();
    read_folder(folder, "io.k8s", &mut messages);
    for (of, name) in GONE {
        let fields = &mut messages.get_mut(*of).expect("k8s-pb has the message").fields;
        let before = fields.len();
        fields.retain(|it| it.name != *name);
        assert!(fields.len() < before, "k8s-pb has no {of}.{name} by now");
    }
    for (of, name, number, kind, markers) in NEWER {
        let (package, short) = of.rsplit_once('.').expect("a type is in a package");
        let message: &mut Message = messages.entry(format!("{package}.{}", plain(short))).or_default();
        let name = plain(name);
        assert!(message.fields.iter().all(|it| it.name != name), "k8s-pb has {of}.{name} by now");
        let markers = markers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        message.fields.push(Field {
            name,
            number: *number,
            kind: kind.to_string(),
            of: String::new(),
            markers,
        });
    }
    Messages(messages)
}

impl Messages {
    pub(crate) fn of(&self, name: &str) -> &Message {
        let (package, short) = name.rsplit_once('.').unwrap_or(("", name));
        self.0.get(&format!("{package}.{}", plain(short))).unwrap_or_else(|| panic!("k8s-pb has no {name}"))
    }

    /// Where protobuf has each field of a schema. A field of the message that JSON does not have is a struct that Go
    /// embeds, and its fields are the object's.
    pub(crate) fn numbers(&self, name: &str, schema: &Schema) -> BTreeMap<String, Found<'_>> {
        let names: BTreeMap<String, &String> = schema.properties.keys().map(|it| (plain(it), it)).collect();
        let package = name.rsplit_once('.').map_or("", |(it, _)| it);
        let mut found = BTreeMap::new();
        for field in &self.of(name).fields {
            if let Some(property) = names.get(&field.name) {
                found.insert((*property).clone(), Found { path: vec![field.number], field, embedded: None });
                continue;
            }
            assert!(field.kind.starts_with("message, optional"), "{name}: JSON has no {}", field.name);
            for inner in &self.of(&format!("{package}.{}", field.of)).fields {
                let property =
                    names.get(&inner.name).unwrap_or_else(|| panic!("{name}: JSON has no {}", inner.name));
                let embedded = Some(field.of.as_str());
                let path = vec![field.number, inner.number];
                found.insert((*property).clone(), Found { path, field: inner, embedded });
            }
        }
        let have: BTreeSet<&String> = found.keys().collect();
        let lack: Vec<_> = schema.properties.keys().filter(|it| !have.contains(it)).collect();
        let only_kind = lack.iter().all(|it| matches!(it.as_str(), "apiVersion" | "kind"));
        assert!(only_kind, "{name}: protobuf has no {lack:?}");
        found
    }
}

impl Message {
    pub(crate) fn marker(&self, name: &str) -> Option<&str> {
        self.markers.get(name).map(String::as_str)
    }
}

impl Field {
    pub(crate) fn marker(&self, name: &str) -> Option<&str> {
        self.markers.get(name).map(String::as_str)
    }
}

fn read_folder(folder: &Path, package: &str, messages: &mut BTreeMap<String, Message>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|it| panic!("list {}: {it}", folder.display())) {
        let entry = entry.expect("read an entry of a folder");
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            read_folder(&entry.path(), &format!("{package}.{name}"), messages);
        } else if name == "mod.rs" {
            read_file(&fs::read_to_string(entry.path()).expect("read a source file"), package, messages);
        }
    }
}

fn read_file(text: &str, package: &str, messages: &mut BTreeMap<String, Message>) {
    let mut markers = BTreeMap::new();
    let mut message: Option<(String, Message)> = None;
    let mut prost = String::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("///") {
            if let Some(marker) = comment.trim().strip_prefix('+') {
                let (name, value) = marker.split_once('=').unwrap_or((marker, ""));
                // `+listMapKey` is said once for each key.
                let said: &mut String = markers.entry(name.to_owned()).or_default();
                if !said.is_empty() {
                    said.push(',');
                }
                said.push_str(value);
            }
        } else if let Some(name) = line.strip_prefix("pub struct ") {
            let name = plain(name.split([' ', '{']).next().unwrap_or_default());
            message = Some((name, Message { markers: std::mem::take(&mut markers), fields: Vec::new() }));
            // A struct with no fields is closed where it is opened.
            if line.ends_with("{}") {
                messages.extend(message.take().map(|(name, it)| (format!("{package}.{name}"), it)));
            }
        } else if let Some(rest) = line.strip_prefix("#[prost(") {
            prost = rest.to_owned();
            while !prost.ends_with(")]") {
                prost.push_str(lines.next().expect("an attribute ends"));
            }
        } else if let Some(rest) = line.strip_prefix("pub ").filter(|_| message.is_some()) {
            let (name, of) = rest.split_once(':').expect("a field has a type");
            let mut of = of.trim().to_owned();
            while !of.ends_with(',') {
                of.push_str(lines.next().expect("a field ends"));
            }
            let (kind, number) =
                prost.trim_end_matches(")]").split_once("tag = \"").expect("a field has a number");
            let number = number.split('"').next().and_then(|it| it.parse().ok()).expect("a number");
            let of = of.trim_end_matches([',', '>']);
            let field = Field {
                name: plain(name),
                number,
                kind: kind.to_owned(),
                of: of.rsplit(['<', ':']).next().unwrap_or_default().to_owned(),
                markers: std::mem::take(&mut markers),
            };
            message.as_mut().expect("checked above").1.fields.push(field);
        } else if line == "}" {
            messages.extend(message.take().map(|(name, it)| (format!("{package}.{name}"), it)));
        } else if line.starts_with("pub enum") || line.starts_with("pub mod") {
            markers.clear();
        }
    }
}
