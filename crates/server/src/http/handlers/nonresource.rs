//! Paths that are not resources: discovery, OpenAPI, health, metrics, token keys, `/debug/explain`.

use std::sync::atomic::Ordering;

use hyper::{Method, StatusCode};
use muster_api::metrics_exposition::Format;
use serde_json::Value;

use crate::decode::JSON;
use crate::error::ApiError;
use crate::health::HealthState;
use crate::http::reply::{TEXT, json_of, not_found, respond};
use crate::http::route::Route;
use crate::http::{Api, ApiRequest, Response};
use crate::registry::Registry;
use crate::{auth, discovery, health, openapi};

/// Number of namespaces, the largest, whose bytes are in the metrics.
const NAMESPACES_SHOWN: usize = 10;

impl Api {
    pub(super) async fn nonresource(&self, route: Route, asked: &ApiRequest) -> Result<Response, ApiError> {
        if asked.method != Method::GET && asked.method != Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        let found =
            |document: Option<Value>| document.map_or_else(not_found, |it| json_of(StatusCode::OK, &it));
        match route {
            Route::Collection { .. } | Route::Watch { .. } | Route::Object(_) => {
                Err(ApiError::no_such_resource())
            }
            Route::Root => Ok(json_of(StatusCode::OK, &discovery::paths())),
            Route::Health(health) => {
                let excluded: Vec<_> = asked.query.all("exclude").collect();
                let (code, text) =
                    health::answer(&health, self.state(), asked.query.has("verbose"), &excluded);
                Ok(respond(code, TEXT, text.into()))
            }
            Route::Metrics => {
                let text = self.metrics_text();
                let format = Format::of(&asked.view_wanted);
                Ok(respond(StatusCode::OK, format.media_type(), format.write(text).into()))
            }
            Route::HealthMetrics => {
                let format = Format::of(&asked.view_wanted);
                Ok(respond(
                    StatusCode::OK,
                    format.media_type(),
                    format.write(health::metrics(self.state())).into(),
                ))
            }
            Route::Explain => match &self.explain_provider {
                Some(explain_provider) => {
                    let (query, of) = (&asked.query, |it: &str| it.to_owned());
                    match explain_provider.explain(of(query.get("namespace")), of(query.get("name"))).await {
                        Ok(json) => Ok(respond(StatusCode::OK, JSON, json.into())),
                        Err(why) => Ok(respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, why.into())),
                    }
                }
                None => Ok(not_found()),
            },
            Route::TokenIssuer => Ok(json_of(StatusCode::OK, &auth::issuer())),
            Route::TokenKeys => {
                let keys = self.registry.access.token_keys().to_string();
                Ok(respond(StatusCode::OK, "application/jwk-set+json", keys.into()))
            }
            Route::Version => Ok(json_of(StatusCode::OK, &discovery::version())),
            Route::CoreVersions => Ok(asked.document(discovery::core(&asked.view_wanted))),
            Route::Groups => Ok(asked.document(discovery::groups(&asked.view_wanted))),
            Route::Group(group) => Ok(found(discovery::group(&group))),
            Route::Resources { group, version } => match discovery::resources(&group, &version) {
                Some(document) => Ok(json_of(StatusCode::OK, &document)),
                None if group.is_empty() || discovery::group(&group).is_some() => {
                    Err(ApiError::no_such_resource())
                }
                None => Ok(not_found()),
            },
            Route::OpenApiV2 => Ok(asked.document(openapi::v2(&asked.view_wanted))),
            Route::OpenApiV3Index => Ok(asked.document(openapi::v3_index())),
            Route::OpenApiV3 { group, version } => {
                Ok(openapi::v3(&group, &version).map_or_else(not_found, |it| asked.document(it)))
            }
        }
    }

    /// Renders all metrics with their current values.
    pub(crate) fn metrics_text(&self) -> String {
        let Registry { storage, metrics, .. } = &*self.registry;
        self.limits.flow_control.show(metrics);
        metrics.set_store(storage.revision(), storage.bytes(), storage.largest_namespaces(NAMESPACES_SHOWN));
        for kind in storage.kinds.writable() {
            metrics.set_objects(kind, storage.count(kind));
        }
        metrics.text()
    }

    fn state(&self) -> HealthState {
        let is_full = self.registry.storage.is_full.load(Ordering::Relaxed);
        HealthState {
            is_stopping: self.stop.is_cancelled(),
            is_writable: !is_full,
            store_bytes: self.registry.storage.bytes(),
        }
    }
}
