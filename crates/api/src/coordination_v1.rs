//! `coordination.k8s.io/v1`: Leases.

use serde::Deserialize;

use crate::json::Str;
use crate::meta_v1::ObjectMeta;

/// Upstream: `coordination/v1.Lease`.
#[derive(Deserialize, Clone, Debug)]
pub struct Lease<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub spec: Option<LeaseSpec<'a>>,
}

/// Upstream: `coordination/v1.LeaseSpec`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec<'a> {
    #[serde(borrow)]
    pub renew_time: Option<Str<'a>>,
}
