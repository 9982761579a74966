//! The calls of the endpoints controllers and their API requests.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use serde_json::{Map, Value, json};

use super::facts::{
    Address, Endpoint, EndpointPort, Endpoints, IpFamily, Slice, SliceOwner, Subset, TargetRef,
};
use crate::controller::{PatchFormat, Request, Verb, delete_options, new_controller_ref};

/// A write of the Endpoints or of an EndpointSlice of one Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointsCall {
    /// Namespace and name of the Service that the written object belongs to.
    pub service: ObjectKey,
    pub write: EndpointsWrite,
}

/// A write of an Endpoints object or of an EndpointSlice. An update holds the existing object and the desired content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointsWrite {
    CreateEndpoints(Arc<EndpointsDraft>),
    UpdateEndpoints(Arc<Endpoints>, Arc<EndpointsDraft>),
    DeleteEndpoints(Arc<Endpoints>),
    CreateSlice(Arc<SliceDraft>),
    UpdateSlice(Arc<Slice>, Arc<SliceDraft>),
    DeleteSlice(Arc<Slice>),
}

/// The desired content of Endpoints. An annotation with the value `None` is removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointsDraft {
    pub key: ObjectKey,
    pub labels: BTreeMap<Text, Text>,
    pub annotations: BTreeMap<Text, Option<Text>>,
    pub subsets: Vec<Subset>,
}

/// The desired content of an EndpointSlice. An annotation with the value `None` is removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceDraft {
    pub owner: SliceOwner,
    pub labels: BTreeMap<Text, Text>,
    pub annotations: BTreeMap<Text, Option<Text>>,
    pub family: IpFamily,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

/// Maximum length of an EndpointSlice's name in bytes.
const SLICE_NAME_MAX: usize = 253;

/// Returns the API request of a call. The preconditions of updates and deletes are UID and `resourceVersion` of the
/// existing object.
pub(super) fn request(call: &EndpointsCall) -> Request {
    let namespace = &call.service.namespace;
    let endpoints = format!("/api/v1/namespaces/{namespace}/endpoints");
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let (verb, path, body) = match &call.write {
        EndpointsWrite::CreateEndpoints(draft) => (Verb::Create, endpoints, endpoints_json(draft)),
        EndpointsWrite::UpdateEndpoints(of, draft) => {
            let body = endpoints_patch(of, draft);
            (Verb::Patch(PatchFormat::Merge), format!("{endpoints}/{}", of.key.name), body)
        }
        EndpointsWrite::DeleteEndpoints(of) => (
            Verb::Delete,
            format!("{endpoints}/{}", of.key.name),
            delete_options(&of.uid, Some(of.resource_version)),
        ),
        EndpointsWrite::CreateSlice(draft) => (Verb::Create, slices, slice_json(draft)),
        EndpointsWrite::UpdateSlice(of, draft) => {
            let body = slice_patch(of, draft);
            (Verb::Patch(PatchFormat::Merge), format!("{slices}/{}", of.key.name), body)
        }
        EndpointsWrite::DeleteSlice(of) => (
            Verb::Delete,
            format!("{slices}/{}", of.key.name),
            delete_options(&of.uid, Some(of.resource_version)),
        ),
    };
    Request { verb, path, body: Some(body), metadata_only: true }
}

/// Returns the JSON of the Endpoints object to create.
fn endpoints_json(draft: &EndpointsDraft) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": draft.key.name,
            "labels": draft.labels,
            "annotations": annotations_json(&draft.annotations),
        },
        "subsets": subsets_json(&draft.subsets),
    })
}

/// Returns the merge patch that changes the existing Endpoints to the content of the draft.
fn endpoints_patch(existing: &Endpoints, draft: &EndpointsDraft) -> Value {
    // An empty list is stored as an absent one.
    let subsets = if draft.subsets.is_empty() { Value::Null } else { subsets_json(&draft.subsets) };
    json!({
        "metadata": {
            "uid": existing.uid,
            "resourceVersion": existing.resource_version.to_string(),
            "labels": label_patch(&existing.labels, &draft.labels),
            "annotations": draft.annotations,
        },
        "subsets": subsets,
    })
}

/// Returns the JSON of the EndpointSlice to create. The API server generates its name.
fn slice_json(draft: &SliceDraft) -> Value {
    let name = &draft.owner.name;
    let prefix = if name.len() < SLICE_NAME_MAX { format!("{name}-") } else { name.to_string() };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": prefix,
            "labels": draft.labels,
            "annotations": annotations_json(&draft.annotations),
            "ownerReferences": [owner_json(&draft.owner)],
        },
        "addressType": draft.family.as_str(),
        "ports": draft.ports.iter().map(|it| port_json(it, true)).collect::<Value>(),
        "endpoints": draft.endpoints.iter().map(endpoint_json).collect::<Value>(),
    })
}

/// Returns the merge patch that changes the existing EndpointSlice to the content of the draft.
fn slice_patch(existing: &Slice, draft: &SliceDraft) -> Value {
    let mut body = json!({
        "metadata": {
            "uid": existing.uid,
            "resourceVersion": existing.resource_version.to_string(),
            "labels": label_patch(&existing.labels, &draft.labels),
            "annotations": draft.annotations,
        },
        "endpoints": draft.endpoints.iter().map(endpoint_json).collect::<Value>(),
    });
    if existing.ports != draft.ports {
        body["ports"] = draft.ports.iter().map(|it| port_json(it, true)).collect();
    }
    if !existing.is_owned_by(&draft.owner.kind, &draft.owner.uid) {
        body["metadata"]["ownerReferences"] = json!([owner_json(&draft.owner)]);
    }
    body
}

/// Returns the JSON of the annotations. Annotations with the value `None` are left out.
fn annotations_json(annotations: &BTreeMap<Text, Option<Text>>) -> Value {
    let present =
        annotations.iter().filter_map(|(key, value)| Some((key.to_string(), json!(value.as_ref()?))));
    Value::Object(present.collect())
}

/// Returns the merge patch that changes the labels from `before` to `now`.
fn label_patch(before: &Labels, now: &BTreeMap<Text, Text>) -> Value {
    let gone = before.iter().filter(|(key, _)| !now.contains_key(*key));
    let mut labels: Map<String, Value> = gone.map(|(key, _)| (key.into(), Value::Null)).collect();
    labels.extend(now.iter().map(|(key, value)| (key.to_string(), json!(value))));
    Value::Object(labels)
}

/// Returns the JSON of an owner reference.
fn owner_json(owner: &SliceOwner) -> Value {
    new_controller_ref("v1", &owner.kind, &owner.name, &owner.uid)
}

/// Returns the JSON of a port. An unnamed port has an empty name in an EndpointSlice, and no name in Endpoints.
fn port_json(port: &EndpointPort, is_of_slice: bool) -> Value {
    let mut it = Map::new();
    if is_of_slice || !port.name.is_empty() {
        it.insert("name".into(), json!(port.name));
    }
    put_field(&mut it, "port", port.port.as_ref());
    put_field(&mut it, "protocol", Some(&port.protocol));
    put_field(&mut it, "appProtocol", port.app_protocol.as_ref());
    Value::Object(it)
}

/// Sets a field of a JSON object, unless `value` is `None`.
fn put_field<T: serde::Serialize>(object: &mut Map<String, Value>, field: &str, value: Option<&T>) {
    if let Some(value) = value {
        object.insert(field.into(), json!(value));
    }
}

/// Returns the JSON of the `subsets` of Endpoints.
fn subsets_json(subsets: &[Subset]) -> Value {
    let all = subsets.iter().map(|it| {
        let mut subset = Map::new();
        for (field, addresses) in [("addresses", &it.ready), ("notReadyAddresses", &it.unready)] {
            if !addresses.is_empty() {
                subset.insert(field.into(), addresses.iter().map(address_json).collect());
            }
        }
        if !it.ports.is_empty() {
            subset.insert("ports".into(), it.ports.iter().map(|it| port_json(it, false)).collect());
        }
        Value::Object(subset)
    });
    all.collect()
}

/// Returns the JSON of an address of Endpoints.
fn address_json(address: &Address) -> Value {
    let mut it = Map::new();
    put_field(&mut it, "ip", Some(&address.ip));
    put_field(&mut it, "hostname", address.hostname.as_ref());
    put_field(&mut it, "nodeName", address.node.as_ref());
    it.extend(address.target.as_ref().map(|it| ("targetRef".into(), target_ref_json(it))));
    Value::Object(it)
}

/// Returns the JSON of a `targetRef`.
fn target_ref_json(target: &TargetRef) -> Value {
    let mut it = Map::new();
    put_field(&mut it, "apiVersion", target.api_version.as_ref());
    put_field(&mut it, "kind", target.kind.as_ref());
    put_field(&mut it, "namespace", target.namespace.as_ref());
    put_field(&mut it, "name", target.name.as_ref());
    put_field(&mut it, "uid", target.uid.as_ref());
    put_field(&mut it, "fieldPath", target.field_path.as_ref());
    Value::Object(it)
}

/// Returns the JSON of an endpoint of an EndpointSlice.
fn endpoint_json(endpoint: &Endpoint) -> Value {
    let mut conditions = Map::new();
    put_field(&mut conditions, "ready", endpoint.condition.ready.as_ref());
    put_field(&mut conditions, "serving", endpoint.condition.serving.as_ref());
    put_field(&mut conditions, "terminating", endpoint.condition.terminating.as_ref());
    let mut it = Map::new();
    put_field(&mut it, "addresses", Some(&endpoint.addresses));
    put_field(&mut it, "conditions", Some(&conditions));
    put_field(&mut it, "hostname", endpoint.hostname.as_ref());
    put_field(&mut it, "nodeName", endpoint.node.as_ref());
    put_field(&mut it, "zone", endpoint.zone.as_ref());
    it.extend(endpoint.target.as_ref().map(|it| ("targetRef".into(), target_ref_json(it))));
    let mut hints = Map::new();
    for (field, names) in [("forZones", &endpoint.hints.zones), ("forNodes", &endpoint.hints.nodes)] {
        if !names.is_empty() {
            hints.insert(field.into(), names.iter().map(|it| json!({"name": it})).collect());
        }
    }
    if !hints.is_empty() {
        it.insert("hints".into(), Value::Object(hints));
    }
    Value::Object(it)
}

/// Formats the call for logs and tests. The desired content of a create or an update is on several lines.
impl fmt::Display for EndpointsCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.write {
            EndpointsWrite::CreateEndpoints(draft) => write!(f, "create endpoints {}{draft}", draft.key),
            EndpointsWrite::UpdateEndpoints(of, draft) => write!(f, "update endpoints {}{draft}", of.key),
            EndpointsWrite::DeleteEndpoints(of) => write!(f, "delete endpoints {}", of.key),
            EndpointsWrite::CreateSlice(draft) => write!(f, "create slice of {}{draft}", self.service),
            EndpointsWrite::UpdateSlice(of, draft) => write!(f, "update slice {}{draft}", of.key),
            EndpointsWrite::DeleteSlice(of) => write!(f, "delete slice {}", of.key),
        }
    }
}

/// Maximum number of endpoints that `Display` prints for one EndpointSlice, or addresses for one subset. If there are
/// more, it also prints the total number.
const DISPLAYED_ENDPOINTS_MAX: usize = 5;

/// Formats the desired content for logs and tests.
impl fmt::Display for EndpointsDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for subset in &self.subsets {
            write!(f, "\n   ")?;
            write_ports(f, &subset.ports)?;
            let all = subset.ready.iter().map(|it| (it, true));
            let all = all.chain(subset.unready.iter().map(|it| (it, false)));
            for (it, ready) in all.take(DISPLAYED_ENDPOINTS_MAX) {
                write!(f, " {}{}", it.ip, if ready { "" } else { " (not ready)" })?;
            }
            write_total_if_truncated(f, subset.ready.len() + subset.unready.len())?;
        }
        write_metadata(f, &self.labels, &self.annotations)
    }
}

/// Formats the desired content for logs and tests.
impl fmt::Display for SliceDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", self.family.as_str())?;
        write_ports(f, &self.ports)?;
        for it in self.endpoints.iter().take(DISPLAYED_ENDPOINTS_MAX) {
            write!(f, "\n    {it}")?;
        }
        write_total_if_truncated(f, self.endpoints.len())?;
        write_metadata(f, &self.labels, &self.annotations)
    }
}

/// Writes the total number of endpoints if `Display` does not print all of them.
fn write_total_if_truncated(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if DISPLAYED_ENDPOINTS_MAX < count { write!(f, " … {count} in all") } else { Ok(()) }
}

/// Writes ports as `NAME:PORT/PROTOCOL`, followed by `(APP_PROTOCOL)` if the port has one.
fn write_ports(f: &mut fmt::Formatter<'_>, ports: &[EndpointPort]) -> fmt::Result {
    for it in ports {
        write!(f, " {}:{}/{}", it.name, it.port.unwrap_or_default(), it.protocol)?;
        if let Some(protocol) = &it.app_protocol {
            write!(f, "({protocol})")?;
        }
    }
    Ok(())
}

/// Writes labels as `KEY=VALUE` and annotations as `@KEY=VALUE`.
fn write_metadata(
    f: &mut fmt::Formatter<'_>,
    labels: &BTreeMap<Text, Text>,
    annotations: &BTreeMap<Text, Option<Text>>,
) -> fmt::Result {
    write!(f, "\n   ")?;
    for (key, value) in labels {
        write!(f, " {key}={value}")?;
    }
    for (key, value) in annotations.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        write!(f, " @{key}={value}")?;
    }
    Ok(())
}

/// Formats the endpoint on one line, for logs and tests.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.addresses.join(","))?;
        let name = self.target.as_ref().and_then(|it| it.name.as_ref());
        for (word, value) in [
            ("", name),
            ("as ", self.hostname.as_ref()),
            ("on ", self.node.as_ref()),
            ("in ", self.zone.as_ref()),
        ] {
            if let Some(value) = value {
                write!(f, " {word}{value}")?;
            }
        }
        let conditions = [
            ("ready", self.condition.ready),
            ("serving", self.condition.serving),
            ("terminating", self.condition.terminating),
        ];
        for (word, _) in conditions.iter().filter(|(_, it)| *it == Some(true)) {
            write!(f, " {word}")?;
        }
        for it in self.hints.zones.iter().chain(&self.hints.nodes) {
            write!(f, " for {it}")?;
        }
        Ok(())
    }
}
