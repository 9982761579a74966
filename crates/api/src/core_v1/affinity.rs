//! Affinity of pods to nodes and to other pods, and topology spread constraints.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;

use crate::json::Str;
use crate::labels::LabelRequirement;
use crate::meta_v1::LabelSelector;
use crate::text::Text;

/// Upstream: `v1.Affinity`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Affinity<'a> {
    #[serde(borrow)]
    pub node_affinity: Option<NodeAffinity<'a>>,
    #[serde(borrow)]
    pub pod_affinity: Option<PodAffinity<'a>>,
    #[serde(borrow)]
    pub pod_anti_affinity: Option<PodAffinity<'a>>,
}

/// Upstream: `v1.NodeAffinity`.
#[derive(Deserialize, Clone, Debug, Default)]
pub struct NodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector<'a>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<PreferredSchedulingTerm<'a>>>,
}

/// Upstream: `v1.NodeSelector`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector<'a> {
    #[serde(borrow)]
    pub node_selector_terms: Option<Vec<NodeSelectorTerm<'a>>>,
}

/// Upstream: `v1.PreferredSchedulingTerm`.
#[derive(Deserialize, Clone, Debug)]
pub struct PreferredSchedulingTerm<'a> {
    pub weight: Option<i64>,
    #[serde(borrow)]
    pub preference: Option<NodeSelectorTerm<'a>>,
}

/// Upstream: `v1.NodeSelectorTerm`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm<'a> {
    #[serde(borrow)]
    pub match_expressions: Option<Vec<NodeSelectorRequirement<'a>>>,
    #[serde(borrow)]
    pub match_fields: Option<Vec<NodeSelectorRequirement<'a>>>,
}

/// Upstream: `v1.NodeSelectorRequirement`.
#[derive(Deserialize, Clone, Debug)]
pub struct NodeSelectorRequirement<'a> {
    #[serde(borrow)]
    pub key: Option<Str<'a>>,
    #[serde(borrow)]
    pub operator: Option<Str<'a>>,
    #[serde(borrow)]
    pub values: Option<Vec<Str<'a>>>,
}

impl NodeSelectorRequirement<'_> {
    /// Returns the key, or "" if it is absent.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// Returns the operator, or "" if it is absent.
    pub fn operator(&self) -> &str {
        self.operator.as_deref().unwrap_or_default()
    }

    /// Parses this requirement as a requirement on a label of the node. The error is a message for the user.
    pub fn to_label_requirement(&self) -> Result<LabelRequirement, String> {
        let values = self.values.iter().flatten().map(|it| Text::from(&**it)).collect();
        LabelRequirement::parse_for_node(self.key(), self.operator(), values)
    }
}

/// Pod affinity or anti-affinity, which have the same fields. Upstream: `v1.PodAffinity`, `v1.PodAntiAffinity`.
#[derive(Deserialize, Clone, Debug, Default)]
pub struct PodAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<Vec<PodAffinityTerm<'a>>>,
    #[serde(borrow, rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<WeightedPodAffinityTerm<'a>>>,
}

/// Upstream: `v1.WeightedPodAffinityTerm`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct WeightedPodAffinityTerm<'a> {
    pub weight: Option<i64>,
    #[serde(borrow)]
    pub pod_affinity_term: Option<PodAffinityTerm<'a>>,
}

/// Upstream: `v1.PodAffinityTerm`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct PodAffinityTerm<'a> {
    #[serde(borrow)]
    pub label_selector: Option<LabelSelector<'a>>,
    #[serde(borrow)]
    pub namespaces: Option<Vec<Str<'a>>>,
    #[serde(borrow)]
    pub namespace_selector: Option<LabelSelector<'a>>,
    #[serde(borrow)]
    pub topology_key: Option<Str<'a>>,
}

/// Upstream: `v1.TopologySpreadConstraint`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint<'a> {
    pub max_skew: Option<i64>,
    #[serde(borrow)]
    pub topology_key: Option<Str<'a>>,
    #[serde(borrow)]
    pub when_unsatisfiable: Option<Str<'a>>,
    #[serde(borrow)]
    pub label_selector: Option<LabelSelector<'a>>,
    pub min_domains: Option<i64>,
    #[serde(borrow)]
    pub node_affinity_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub node_taints_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub match_label_keys: Option<Vec<Str<'a>>>,
}
