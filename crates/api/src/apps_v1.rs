//! `apps/v1`: DaemonSets and ControllerRevisions.

use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::{IntOrString, Str};
use crate::meta_v1::{LabelSelector, ObjectMeta};

/// Upstream: `apps/v1.DaemonSet`. Metadata, template and status stay JSON text, because the controller writes them back
/// with all fields, including unknown fields.
#[derive(Deserialize, Clone, Debug)]
pub struct DaemonSet<'a> {
    /// The metadata as JSON text, which decodes to an [`ObjectMeta`].
    #[serde(borrow)]
    pub metadata: &'a RawValue,
    #[serde(borrow)]
    pub spec: Option<DaemonSetSpec<'a>>,
    /// The status as JSON text, which decodes to a [`DaemonSetStatus`]. `None` if the object has no status.
    #[serde(borrow)]
    pub status: Option<&'a RawValue>,
}

/// Upstream: `apps/v1.DaemonSetSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetSpec<'a> {
    #[serde(borrow)]
    pub selector: Option<LabelSelector<'a>>,
    /// The pod template as JSON text, which decodes to a [`PodTemplateSpec`](crate::core_v1::PodTemplateSpec). `None`
    /// if it is absent.
    #[serde(borrow)]
    pub template: Option<&'a RawValue>,
    #[serde(borrow)]
    pub update_strategy: Option<DaemonSetUpdateStrategy<'a>>,
    pub min_ready_seconds: Option<i64>,
    pub revision_history_limit: Option<i64>,
}

/// Upstream: `apps/v1.DaemonSetUpdateStrategy`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetUpdateStrategy<'a> {
    #[serde(borrow, rename = "type")]
    pub type_: Option<Str<'a>>,
    #[serde(borrow)]
    pub rolling_update: Option<RollingUpdateDaemonSet<'a>>,
}

/// Upstream: `apps/v1.RollingUpdateDaemonSet`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdateDaemonSet<'a> {
    #[serde(borrow)]
    pub max_unavailable: Option<IntOrString<'a>>,
    #[serde(borrow)]
    pub max_surge: Option<IntOrString<'a>>,
}

/// Upstream: `apps/v1.DaemonSetStatus`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetStatus<'a> {
    pub observed_generation: Option<i64>,
    pub desired_number_scheduled: Option<i64>,
    pub current_number_scheduled: Option<i64>,
    pub number_ready: Option<i64>,
    pub updated_number_scheduled: Option<i64>,
    pub number_available: Option<i64>,
    pub number_unavailable: Option<i64>,
    pub number_misscheduled: Option<i64>,
    pub collision_count: Option<i32>,
    #[serde(borrow)]
    pub conditions: Option<Vec<DaemonSetCondition<'a>>>,
}

/// Upstream: `apps/v1.DaemonSetCondition`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub type_: Option<Str<'a>>,
    #[serde(borrow)]
    pub status: Option<Str<'a>>,
    #[serde(borrow)]
    pub reason: Option<Str<'a>>,
    #[serde(borrow)]
    pub message: Option<Str<'a>>,
    #[serde(borrow)]
    pub last_transition_time: Option<Str<'a>>,
}

/// Upstream: `apps/v1.ControllerRevision`.
#[derive(Deserialize, Clone, Debug)]
pub struct ControllerRevision<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    pub data: Option<Value>,
    pub revision: Option<i64>,
}
