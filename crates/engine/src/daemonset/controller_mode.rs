//! Determines from the `managedFields` of a DaemonSet which controller writes its status. The result tells clients
//! whether Muster's controller runs in assist mode, that is, beside upstream's DaemonSet controller.

use alloc::string::String;
use alloc::vec::Vec;

use muster_api::meta_v1::{ManagedFields, ManagedFieldsEntry};

use super::manifest::{ASSIST_FIELD_MANAGER, CONTROLLER_FIELD_MANAGER};

/// The mode in which this controller acts on a DaemonSet, as far as the `managedFields` of the DaemonSet show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerMode {
    /// This controller replaces upstream's DaemonSet controller: it creates all pods, including those of the stable
    /// revision.
    Own,
    /// Assist mode: this controller runs beside upstream's DaemonSet controller, which creates all pods from the newest
    /// template.
    Assist,
    /// The `managedFields` do not show the mode, for example because this controller has not written the status of the
    /// DaemonSet yet, or because another field manager has written node counts after this controller's last write.
    Unknown,
}

impl ControllerMode {
    /// Returns the mode in which this controller acts on a DaemonSet. `metadata` is the JSON of the DaemonSet's
    /// metadata.
    ///
    /// Rule: this controller writes the status with a different field manager in each mode, and the field manager of
    /// its last status write shows the mode. The mode is [`Self::Unknown`] in these cases:
    ///
    /// - This controller has not written the status.
    /// - The last writes of both modes have the same time.
    /// - The last write of this controller was in the mode [`Self::Own`], and another field manager has written node
    ///   counts later.
    pub fn from_metadata(metadata: &str) -> Self {
        let entries = managed_status_fields(metadata);
        let last_write = |is_counted: &dyn Fn(&ManagedFieldsEntry) -> bool| {
            entries.iter().filter(|it| is_counted(it)).map(|it| it.time.as_str()).max()
        };
        let own = last_write(&|it| it.manager == CONTROLLER_FIELD_MANAGER);
        let assist = last_write(&|it| it.manager == ASSIST_FIELD_MANAGER);
        let others = last_write(&|it| {
            it.manager != CONTROLLER_FIELD_MANAGER
                && it.manager != ASSIST_FIELD_MANAGER
                && owns_node_counts(it)
        });
        if own < assist {
            Self::Assist
        } else if assist < own && others <= own {
            Self::Own
        } else {
            Self::Unknown
        }
    }
}

/// A field manager that owns node counts of a DaemonSet's status. Writers are ordered by the time of their last write,
/// earliest first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StatusWriter {
    /// Time of the last write, in RFC 3339. Empty if it is missing.
    pub time: String,
    pub manager: String,
}

/// Returns the field managers that own a node count of the status, such as `numberReady`. `metadata` is the JSON of a
/// DaemonSet's metadata.
///
/// Rule: only DaemonSet controllers are expected to own node counts. A manager that owns only conditions is not
/// returned. Only counts directly in `status` are node counts. A field with the same name elsewhere in the object is
/// not a node count.
pub fn status_writers(metadata: &str) -> impl Iterator<Item = StatusWriter> {
    let entries = managed_status_fields(metadata).into_iter().filter(owns_node_counts);
    entries.map(|it| StatusWriter { time: it.time, manager: it.manager })
}

/// Whether the manager of the entry owns a node count of the status.
fn owns_node_counts(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1["f:status"].as_object();
    let mut names = fields.into_iter().flat_map(|it| it.keys());
    names.any(|it| it.starts_with("f:number") || it.ends_with("NumberScheduled"))
}

/// Returns the `managedFields` entries for the subresource `status`. `metadata` is the JSON of a DaemonSet's metadata.
/// Empty if the JSON cannot be decoded.
pub(super) fn managed_status_fields(metadata: &str) -> Vec<ManagedFieldsEntry> {
    let Ok(ManagedFields { mut managed_fields }) = serde_json::from_str(metadata) else { return Vec::new() };
    managed_fields.retain(|it| it.subresource == "status");
    managed_fields
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_status_write_decides() {
        let entry = |manager: &str, minute: u32, field: &str| {
            json!({
                "manager": manager, "subresource": "status", "time": format!("2026-08-23T10:{minute:02}:00Z"),
                "fieldsV1": {"f:status": {field: {}}},
            })
        };
        let own = |minute| entry("muster-controller", minute, "f:conditions");
        let assist = |minute| entry("muster-assist", minute, "f:conditions");
        let upstream = |minute| entry("kube-controller-manager", minute, "f:numberReady");
        let others_conditions = |minute| entry("kstatus", minute, "f:conditions");
        let mut template_of_user = own(9);
        template_of_user["subresource"] = json!("");
        for (entries, mode) in [
            (json!([]), ControllerMode::Unknown),
            (json!([own(1)]), ControllerMode::Own),
            // The counts did not change when this controller took over, so upstream's still own them.
            (json!([upstream(1), own(2)]), ControllerMode::Own),
            (json!([own(1), others_conditions(2)]), ControllerMode::Own),
            (json!([upstream(1), assist(2)]), ControllerMode::Assist),
            (json!([upstream(3), assist(2)]), ControllerMode::Assist),
            (json!([own(1), assist(2), upstream(3)]), ControllerMode::Assist),
            (json!([assist(1), own(2)]), ControllerMode::Own),
            // In assist mode without conditions, or without this controller.
            (json!([own(1), upstream(2)]), ControllerMode::Unknown),
            (json!([upstream(1)]), ControllerMode::Unknown),
            (json!([own(1), assist(1)]), ControllerMode::Unknown),
            (json!([template_of_user]), ControllerMode::Unknown),
        ] {
            let metadata = json!({"managedFields": entries}).to_string();
            assert_eq!(ControllerMode::from_metadata(&metadata), mode, "{metadata}");
        }
        for metadata in ["", "{}", "[]", r#"{"managedFields": 1}"#] {
            assert_eq!(ControllerMode::from_metadata(metadata), ControllerMode::Unknown);
        }
    }

    #[test]
    fn only_node_counts_of_the_status_identify_a_writer() {
        let writers = |subresource: &str, fields: serde_json::Value| {
            let entry = json!({"manager": "m", "subresource": subresource, "time": "1", "fieldsV1": fields});
            status_writers(&json!({"managedFields": [entry]}).to_string()).count()
        };
        for (count, subresource, fields) in [
            (1, "status", json!({"f:status": {"f:currentNumberScheduled": {}}})),
            (1, "status", json!({"f:status": {"f:numberReady": {}, "f:conditions": {}}})),
            (0, "", json!({"f:status": {"f:numberReady": {}}})),
            (0, "status", json!({"f:status": {"f:conditions": {"f:numberReady": {}}}})),
            (
                0,
                "status",
                json!({"f:metadata": {"f:annotations": {"f:number": {}, "f:NumberScheduled": {}}}}),
            ),
            (0, "status", json!(null)),
        ] {
            assert_eq!(writers(subresource, fields.clone()), count, "{subresource} {fields}");
        }
    }
}
