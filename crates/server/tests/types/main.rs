//! The generator of the table of types, of the CustomResourceDefinitions and of the tables of their fields, and the test
//! that the committed files are what it makes. `cargo types` writes them.
//!
//! Two crates say what upstream's API is: k8s-openapi has every schema with its descriptions, k8s-pb every protobuf
//! message with its numbers and the markers of the Go source. Both are read as text, and each is held against the other.
//! The kinds of `muster.dev` are derived from their types in the crate `api`.

mod agreement;
mod agreement_cases;
mod crds;
mod field_tables;
mod messages;
mod muster_kinds;
mod schemas;
mod structural;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use muster_api::muster_v1alpha1::GROUP;
use serde_json::Value;

use crate::messages::Messages;
use crate::schemas::{Merge, Property, Schema};

const CORE: &str = "io.k8s.api.core.v1";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The types that come as a whole: group, version, and the kinds. All else is reached from these.
const ROOTS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "v1",
        &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "Pod",
            "PodTemplate",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("apps", "v1", &["ControllerRevision", "DaemonSet"]),
    ("authentication.k8s.io", "v1", &["SelfSubjectReview", "TokenRequest", "TokenReview"]),
    (
        "authorization.k8s.io",
        "v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("certificates.k8s.io", "v1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io", "v1", &["Lease"]),
    ("discovery.k8s.io", "v1", &["EndpointSlice"]),
    ("events.k8s.io", "v1", &["Event"]),
    ("extensions", "v1beta1", &["DaemonSet"]),
    ("meta.k8s.io", "v1", &["DeleteOptions", "ListMeta", "Status"]),
    ("muster.dev", "v1alpha1", &["ClusterRolloutPolicy", "DaemonRollout", "RolloutPolicy"]),
    ("node.k8s.io", "v1", &["RuntimeClass"]),
    ("policy", "v1", &["Eviction", "PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("scheduling.k8s.io", "v1", &["PriorityClass"]),
];

/// Where k8s-openapi merges a list otherwise than its markers say. It merges by the key of strategic merge, which
/// upstream keeps for old clients where the list has since got more keys, or has become atomic.
const MERGED_OTHERWISE: &[&str] = &[
    "io.k8s.api.core.v1.Container.ports",
    "io.k8s.api.core.v1.EphemeralContainer.ports",
    "io.k8s.api.core.v1.PodSpec.topologySpreadConstraints",
    "io.k8s.api.core.v1.PodStatus.hostIPs",
    "io.k8s.api.core.v1.ServiceSpec.ports",
];

/// Required, though k8s-pb is too old to know it, or k8s-openapi softens it.
const REQUIRED: &[&str] =
    &["io.k8s.api.authentication.v1.TokenReviewSpec.token", "io.k8s.api.events.v1.Event.eventTime"];

/// Defaults that the markers name by a constant of the Go source.
const CONSTANTS: &[(&str, &str)] =
    &[("ref(AzureDataDiskCachingReadWrite)", "\"ReadWrite\""), ("ref(AzureSharedBlobDisk)", "\"Shared\"")];

#[test]
fn the_generated_table_matches_the_sources() {
    let committed = fs::read_to_string(table_path()).expect("read the table");
    assert!(committed == table(), "src/types/generated.rs is not what the sources say: run `cargo types`");
}

#[test]
fn the_custom_resource_definitions_match_the_types() {
    for (path, text) in crds::files() {
        let committed = fs::read_to_string(&path).expect("read a CustomResourceDefinition");
        assert!(committed == text, "{} is not what the types say: run `cargo types`", path.display());
    }
}

#[test]
fn the_manual_has_the_fields_of_the_types() {
    let committed = fs::read_to_string(field_tables::path()).expect("read the document");
    assert!(
        committed == field_tables::document(),
        "docs/rollouts.md lacks fields of today: run `cargo types`"
    );
}

#[test]
#[ignore = "writes the table, the CustomResourceDefinitions and the tables of fields: cargo types"]
fn write() {
    fs::write(table_path(), table()).expect("write the table");
    for (path, text) in crds::files() {
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("create the folder");
        fs::write(path, text).expect("write a CustomResourceDefinition");
    }
    fs::write(field_tables::path(), field_tables::document()).expect("write the tables of fields");
}

fn table_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/types/generated.rs")
}

fn table() -> String {
    let (openapi, protobuf) = sources();
    let mut schemas = schemas::read(&openapi.join("src/v1_36/api"));
    schemas.extend(schemas::read(&openapi.join("src/v1_36/apimachinery")));
    add_extensions_daemon_set(&mut schemas);
    muster_kinds::add_schemas(&mut schemas);
    let table = Table { schemas, messages: messages::read(&protobuf.join("src")), held: held() };
    table.text()
}

/// The folders of the two crates, as cargo has unpacked them.
fn sources() -> (PathBuf, PathBuf) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .expect("run cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let folder = |name: &str| {
        let packages = metadata["packages"].as_array().expect("packages are a list");
        let package =
            packages.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{name} is locked"));
        let manifest = package["manifest_path"].as_str().expect("a path is text");
        Path::new(manifest).parent().expect("a manifest is in a folder").to_owned()
    };
    (folder("k8s-openapi"), folder("k8s-pb"))
}

/// `extensions/v1beta1` has left the crates. Its DaemonSet is the one of `apps/v1` with one field more, and may leave
/// its selector out.
fn add_extensions_daemon_set(schemas: &mut BTreeMap<String, Schema>) {
    let mut set = schemas["io.k8s.api.apps.v1.DaemonSet"].clone();
    let mut spec = schemas["io.k8s.api.apps.v1.DaemonSetSpec"].clone();
    let spec_name = "io.k8s.api.extensions.v1beta1.DaemonSetSpec";
    set.properties.get_mut("spec").expect("a DaemonSet has a spec").json["$ref"] = spec_name.into();
    spec.required.remove("selector");
    spec.properties.insert(
        "templateGeneration".to_owned(),
        Property {
            json: serde_json::json!({
                "type": "integer",
                "format": "int64",
                "description": "DEPRECATED. A sequence number representing a specific generation of the template. Populated by the system. It can be set only during the creation.",
            }),
            merge: Merge::Plain,
        },
    );
    schemas.insert("io.k8s.api.extensions.v1beta1.DaemonSet".to_owned(), set);
    schemas.insert(spec_name.to_owned(), spec);
}

/// What go.txt says of a field.
#[derive(Debug, Default)]
struct Held {
    presence: Option<&'static str>,
    go_type: Option<&'static str>,
}

/// By type and field.
fn held() -> BTreeMap<String, BTreeMap<&'static str, Held>> {
    let mut held = BTreeMap::new();
    for line in include_str!("go.txt").lines().filter(|it| !it.is_empty() && !it.starts_with('#')) {
        let mut words = line.split(' ');
        let name = words.next().expect("a line has a first word");
        let name = match name.strip_prefix("meta.v1.") {
            Some(name) => format!("{META}.{name}"),
            None => format!("io.k8s.api.{name}"),
        };
        let fields: &mut BTreeMap<_, Held> = held.entry(name).or_default();
        for word in words {
            if let Some((field, go_type)) = word.split_once(':') {
                fields.entry(field).or_default().go_type = Some(go_type);
                continue;
            }
            let presence = match &word[..1] {
                "=" => "Always",
                "*" => "Set",
                "?" => "OrNull",
                "-" => "NotEmpty",
                other => panic!("go.txt: {other} is no mark"),
            };
            fields.entry(&word[1..]).or_default().presence = Some(presence);
        }
    }
    held
}

struct Table {
    schemas: BTreeMap<String, Schema>,
    messages: Messages,
    held: BTreeMap<String, BTreeMap<&'static str, Held>>,
}

impl Table {
    fn text(&self) -> String {
        let mut out = String::from(
            "// Generated by `cargo types` from the sources of k8s-openapi and k8s-pb, and from crates/api/src/muster_v1alpha1:\n\
             // edit the generator or the types, not this file.\n\n\
             use super::{Field, ListKeys, MapType, PatchStrategy, Presence, Shape, Type};\n\n\
             pub(super) static KINDS: &[(&str, &str, &str, &Type)] = &[\n",
        );
        let mut left = Vec::new();
        for (group, version, kinds) in ROOTS {
            for kind in *kinds {
                let name = match *group {
                    "" => format!("{CORE}.{kind}"),
                    "meta.k8s.io" => format!("{META}.{kind}"),
                    GROUP => format!("{}.{kind}", muster_kinds::PACKAGE),
                    group => {
                        format!("io.k8s.api.{}.{version}.{kind}", group.split('.').next().unwrap_or(group))
                    }
                };
                writeln!(out, "    ({group:?}, {version:?}, {kind:?}, &{}),", constant(&name))
                    .expect("write text");
                left.push(name);
            }
        }
        out.push_str("];\n");
        let mut reached = BTreeSet::new();
        while let Some(name) = left.pop() {
            if reached.insert(name.clone()) {
                let properties = self.schema(&name).properties.values();
                left.extend(
                    properties.filter_map(|it| named_in(&it.json)).filter(|it| special(it).is_none()),
                );
            }
        }
        for name in &reached {
            if name.starts_with(muster_kinds::PACKAGE) {
                self.write_muster_type(&mut out, name);
            } else {
                self.write_type(&mut out, name);
            }
        }
        out.push_str("\n/// Full name and description of each API type that has a JSON encoding of its own instead of a [`Type`].\n");
        out.push_str("pub(super) static CUSTOM_JSON_TYPES: &[(&str, &str)] = &[\n");
        for (name, schema) in self.schemas.iter().filter(|(name, _)| special(name).is_some()) {
            writeln!(out, "    ({name:?}, {:?}),", schema.description).expect("write text");
        }
        out.push_str("];\n");
        out.push_str("\n/// Enums of the kinds of `muster.dev`, by the name that Go would give them.\n");
        out.push_str("pub(super) static ENUM_VALUES: &[(&str, &[&str])] = &[\n");
        for (name, values) in muster_kinds::enums() {
            writeln!(out, "    ({name:?}, &{values:?}),").expect("write text");
        }
        out.push_str("];\n");
        let unused: Vec<_> = self.held.keys().filter(|it| !reached.contains(*it)).collect();
        assert!(unused.is_empty(), "go.txt: no kind reaches {unused:?}");
        out
    }

    fn schema(&self, name: &str) -> &Schema {
        self.schemas.get(name).unwrap_or_else(|| panic!("k8s-openapi has no {name}"))
    }

    fn write_type(&self, out: &mut String, name: &str) {
        let schema = self.schema(name);
        let numbers = self.messages.numbers(name, schema);
        let atomic = self.messages.of(name).marker("structType") == Some("atomic");
        writeln!(out, "\nstatic {}: Type = Type {{", constant(name)).expect("write text");
        writeln!(out, "    name: {name:?},").expect("write text");
        writeln!(out, "    description: {:?},", schema.description).expect("write text");
        writeln!(out, "    atomic: {atomic},").expect("write text");
        writeln!(out, "    fields: &[").expect("write text");
        for (field, property) in &schema.properties {
            let path = format!("{name}.{field}");
            let found = numbers.get(field.as_str());
            let marker = |marker: &str| found.and_then(|it| it.field.marker(marker));
            let shape = self.shape(&path, property, &marker, found.map(|it| it.field));
            // k8s-openapi calls more things required than are: kind and metadata, and names with a default.
            let said = schema.required.contains(field) && found.is_some() && marker("optional").is_none();
            let required = said || REQUIRED.contains(&path.as_str());
            let default = marker("default").map(|it| {
                CONSTANTS.iter().find(|(name, _)| *name == it).map_or(it, |(_, value)| value).to_owned()
            });
            writeln!(
                out,
                "        Field {{ name: {field:?}, shape: {shape}, required: {required}, presence: Presence::{}, \
                 default: {default:?}, patch: {}, proto: &{:?}, embedded: {:?}, go_type: {:?}, description: {:?} }},",
                self.presence(name, field, property, required),
                patch(&path, &marker),
                found.map_or(&[][..], |it| &it.path),
                found.and_then(|it| it.embedded),
                self.held(name, field).and_then(|it| it.go_type),
                property.description(),
            )
            .expect("write text");
        }
        writeln!(out, "    ],\n}};").expect("write text");
    }

    /// Writes a type of `muster.dev`. Its fields are stored as they were set, as those of custom resources are; it has no
    /// protobuf message.
    fn write_muster_type(&self, out: &mut String, name: &str) {
        let schema = self.schema(name);
        writeln!(out, "\nstatic {}: Type = Type {{", constant(name)).expect("write text");
        writeln!(out, "    name: {name:?},").expect("write text");
        writeln!(out, "    description: {:?},", schema.description).expect("write text");
        writeln!(out, "    atomic: false,").expect("write text");
        writeln!(out, "    fields: &[").expect("write text");
        for (field, property) in &schema.properties {
            let path = format!("{name}.{field}");
            let keys = property.json["x-kubernetes-list-map-keys"][0].as_str();
            let marker = |marker: &str| match marker {
                "listType" => property.json["x-kubernetes-list-type"].as_str(),
                "listMapKey" => keys,
                _ => None,
            };
            let presence = match field.as_str() {
                "apiVersion" | "kind" => "NotEmpty",
                "metadata" => "Always",
                _ => "Set",
            };
            writeln!(
                out,
                "        Field {{ name: {field:?}, shape: {}, required: {}, presence: Presence::{presence}, default: {:?}, \
                 patch: PatchStrategy::Plain, proto: &[], embedded: None, go_type: {:?}, description: {:?} }},",
                self.shape(&path, property, &marker, None),
                schema.required.contains(field),
                property.json.get("default").map(Value::to_string),
                muster_kinds::go_type(&property.json),
                property.description(),
            )
            .expect("write text");
        }
        writeln!(out, "    ],\n}};").expect("write text");
    }

    fn held(&self, name: &str, field: &str) -> Option<&Held> {
        self.held.get(&name.replace("extensions.v1beta1", "apps.v1"))?.get(field)
    }

    fn presence(&self, name: &str, field: &str, property: &Property, required: bool) -> &'static str {
        if let Some(said) = self.held(name, field).and_then(|it| it.presence) {
            return said;
        }
        match named_in(&property.json) {
            _ if required => "Always",
            _ if matches!(field, "apiVersion" | "kind") => "NotEmpty",
            Some(_) if field == "metadata" => "Always",
            Some(_) if property.json.get("$ref").is_some() => "Set",
            _ => "NotEmpty",
        }
    }

    /// The shape as Rust, held against what protobuf calls it.
    fn shape<'a>(
        &self,
        path: &str,
        property: &Property,
        marker: &dyn Fn(&str) -> Option<&'a str>,
        message: Option<&messages::Field>,
    ) -> String {
        let scalar = |json: &Value| self.scalar(path, json);
        let json = &property.json;
        let is_map = json.get("additionalProperties").is_some();
        if let Some(items) = json.get("items") {
            let keys = keys(path, property, marker);
            let bytes = "every list is repeated in protobuf";
            assert!(message.is_none_or(|it| it.kind.contains("repeated")), "{path}: {bytes}");
            return format!("Shape::List(&{}, {keys})", scalar(items));
        }
        if is_map {
            let kind = match (marker("mapType"), &property.merge) {
                (Some("atomic"), Merge::AtomicMap) => "Atomic",
                (None | Some("granular"), Merge::GranularMap) => "Granular",
                (said, merged) => panic!("{path}: the marker says {said:?}, k8s-openapi {merged:?}"),
            };
            assert!(message.is_none_or(|it| it.kind.contains("map")), "{path}: every map is one in protobuf");
            let values = &json["additionalProperties"];
            let values = match values.get("items") {
                Some(items) => format!("Shape::List(&{}, ListKeys::Atomic)", scalar(items)),
                None => scalar(values),
            };
            return format!("Shape::Map(&{values}, MapType::{kind})");
        }
        let shape = scalar(json);
        if let Some(message) = message {
            let wanted = match shape.trim_start_matches("Shape::") {
                "Bool" => "bool",
                "Int32" => "int32",
                "Int64" => "int64",
                "String" => "string",
                "Bytes" => "bytes",
                _ => "message",
            };
            assert!(message.kind.starts_with(wanted), "{path} is {shape}, and in protobuf {}", message.kind);
        }
        shape
    }

    fn scalar(&self, path: &str, json: &Value) -> String {
        if let Some(name) = json["$ref"].as_str() {
            return match special(name) {
                Some(shape) => format!("Shape::{shape}"),
                None => format!("Shape::Object(&{})", constant(name)),
            };
        }
        let shape = match (json["type"].as_str(), json["format"].as_str()) {
            (Some("boolean"), None) => "Bool",
            (Some("integer"), Some("int32")) => "Int32",
            (Some("integer"), Some("int64")) => "Int64",
            (Some("string"), None) => "String",
            (Some("string"), Some("byte")) => "Bytes",
            other => panic!("{path}: no shape for {other:?}"),
        };
        format!("Shape::{shape}")
    }
}

fn keys<'a>(path: &str, property: &Property, marker: &dyn Fn(&str) -> Option<&'a str>) -> String {
    // More than one key is said by more than one marker, joined where they were read.
    let keys: Vec<&str> = marker("listMapKey").map(|it| it.split(',').collect()).unwrap_or_default();
    let said = match marker("listType") {
        Some("map") => Merge::ListByKeys(keys.iter().map(|it| it.to_lowercase()).collect()),
        Some("set") => Merge::ListAsSet,
        None | Some("atomic") => Merge::AtomicList,
        Some(other) => panic!("{path}: listType={other}"),
    };
    if said != property.merge {
        let by_patch_key =
            Merge::ListByKeys(marker("patchMergeKey").map(str::to_lowercase).into_iter().collect());
        let is_known = MERGED_OTHERWISE.contains(&path) && property.merge == by_patch_key;
        assert!(is_known, "{path}: the marker says {said:?}, k8s-openapi {:?}", property.merge);
    }
    match marker("listType") {
        Some("map") => format!("ListKeys::Fields(&{keys:?})"),
        Some("set") => "ListKeys::Set".to_owned(),
        _ => "ListKeys::Atomic".to_owned(),
    }
}

fn patch<'a>(path: &str, marker: &dyn Fn(&str) -> Option<&'a str>) -> String {
    match (marker("patchStrategy"), marker("patchMergeKey")) {
        (None, None) => "PatchStrategy::Plain".to_owned(),
        (Some("merge"), key) => format!("PatchStrategy::Merge({key:?})"),
        (Some("replace"), None) => "PatchStrategy::Replace".to_owned(),
        (Some("merge,retainKeys"), Some(key)) => format!("PatchStrategy::MergeRetainKeys({key:?})"),
        other => panic!("{path}: no patch strategy is {other:?}"),
    }
}

/// The type that a field names: its own, its items' or its values'.
fn named_in(json: &Value) -> Option<String> {
    let of = |json: &Value| json["$ref"].as_str().map(str::to_owned);
    of(json).or_else(|| of(&json["items"])).or_else(|| of(&json["additionalProperties"]))
}

/// The types that JSON does not write as objects with fields.
fn special(name: &str) -> Option<&'static str> {
    Some(match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => "Quantity",
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1" => "FieldsV1",
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime" => "MicroTime",
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time" => "Time",
        "io.k8s.apimachinery.pkg.runtime.RawExtension" => "Any",
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => "IntOrString",
        _ => return None,
    })
}

fn constant(name: &str) -> String {
    let short = name.trim_start_matches("io.k8s.api.").trim_start_matches("io.k8s.apimachinery.pkg.apis.");
    short.replace('.', "_").to_uppercase()
}
