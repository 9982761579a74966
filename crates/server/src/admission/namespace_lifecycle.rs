//! Refuses new objects in missing or terminating namespaces, and the deletion of `default`, `kube-public` and
//! `kube-system`. Upstream: `NamespaceLifecycle`.

use muster_api::well_known::NAMESPACE_SYSTEM;
use serde_json::Value;

use super::AdmissionChain;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::unstructured::{self, str_at};

/// Namespaces that cannot be deleted. Upstream: `immortalNamespaces`.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-public", NAMESPACE_SYSTEM];

/// Refuses a create in a missing or terminating namespace, and the deletion of a namespace in `IMMORTAL_NAMESPACES`.
///
/// Rule: no object can be created in a namespace that does not exist or is terminating. The namespaces `default`,
/// `kube-public` and `kube-system` cannot be deleted.
pub(super) fn admit(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    object: &Value,
) -> Result<(), ApiError> {
    let target = attributes.target;
    if std::ptr::eq(target.kind, Kind::namespace_kind()) {
        let is_immortal = matches!(attributes.operation, AdmissionOperation::Delete)
            && IMMORTAL_NAMESPACES.contains(&&*target.name);
        return if is_immortal {
            Err(attributes.forbidden(object, "this namespace may not be deleted"))
        } else {
            Ok(())
        };
    }
    // Objects in a terminating namespace may be updated, and must be deleted.
    let (AdmissionOperation::Create, Some(namespace)) = (attributes.operation, target.namespace.as_deref())
    else {
        return Ok(());
    };
    let Some(stored) = admission.storage.find(Kind::namespace_kind(), None, namespace) else {
        return Err(ApiError::not_found(Kind::namespace_kind(), namespace));
    };
    if str_at(&unstructured::parse_stored(&stored), "status.phase") != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = format!("namespace {namespace} is being terminated");
    Err(attributes.forbidden(object, &why).with_cause("NamespaceTerminating", &cause, "metadata.namespace"))
}
