//! Sets the fields `username`, `uid`, `groups` and `extra` of a new CertificateSigningRequest from the authenticated
//! user. Values that the client sent are dropped. Upstream: `csrStrategy.PrepareForCreate`.

use serde_json::{Value, json};

use super::AdmissionAttributes;
use crate::request::RequestContext;
use crate::unstructured::map_at_mut;

/// Fields of the spec that describe the user who created the CertificateSigningRequest.
const REQUESTER_FIELDS: [&str; 4] = ["username", "uid", "groups", "extra"];

/// Replaces `REQUESTER_FIELDS` of a new CertificateSigningRequest with those of the authenticated user.
pub(super) fn mutate(context: &RequestContext, attributes: AdmissionAttributes<'_>, request: &mut Value) {
    if !attributes.is_create() {
        return;
    }
    let user = &context.user;
    let spec = map_at_mut(request, "spec");
    for name in REQUESTER_FIELDS {
        spec.remove(name);
    }
    let requester = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    spec.extend(requester.into_iter().filter(|it| !it.2).map(|(name, value, _)| (name.to_owned(), value)));
}
