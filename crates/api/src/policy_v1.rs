//! `policy/v1`: PodDisruptionBudgets.

use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::Value;

use crate::json::{IntOrString, StrMap};
use crate::meta_v1::{LabelSelector, ObjectMeta};

/// Upstream: `policy/v1.PodDisruptionBudget`.
#[derive(Deserialize, Clone, Debug)]
pub struct PodDisruptionBudget<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub spec: Option<PodDisruptionBudgetSpec<'a>>,
    #[serde(borrow)]
    pub status: Option<PodDisruptionBudgetStatus<'a>>,
}

/// Upstream: `policy/v1.PodDisruptionBudgetSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudgetSpec<'a> {
    #[serde(borrow)]
    pub min_available: Option<IntOrString<'a>>,
    #[serde(borrow)]
    pub max_unavailable: Option<IntOrString<'a>>,
    #[serde(borrow)]
    pub selector: Option<LabelSelector<'a>>,
}

/// Upstream: `policy/v1.PodDisruptionBudgetStatus`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudgetStatus<'a> {
    pub observed_generation: Option<i64>,
    pub disruptions_allowed: Option<i64>,
    pub current_healthy: Option<i64>,
    pub desired_healthy: Option<i64>,
    pub expected_pods: Option<i64>,
    /// Times of the evictions that the API server has allowed, as text, by pod name. `None` if the field is absent.
    #[serde(borrow)]
    pub disrupted_pods: Option<StrMap<'a>>,
    /// The conditions as JSON, because a status write must keep the conditions of other writers. `None` if the field is
    /// absent.
    pub conditions: Option<Vec<Value>>,
}
