//! Requests for non-resource paths, such as discovery, OpenAPI, health, metrics, token keys and `/debug/explain`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::{Method, StatusCode};
use muster_api::metrics_exposition::ExpositionFormat;
use muster_api::well_known::JSON_MEDIA_TYPE;
use serde_json::Value;

use crate::error::ApiError;
use crate::health::HealthState;
use crate::http::filters::RequiredState;
use crate::http::reply::{TEXT_PLAIN, full_response, json_response, not_found_page};
use crate::http::route::Route;
use crate::http::{Api, ApiRequest, ApiResponse};
use crate::registry::Registry;
use crate::{auth, discovery, health, openapi};

/// Maximum number of namespaces whose stored bytes are reported in the metrics. These are the namespaces with the most
/// bytes.
const METRIC_NAMESPACES_MAX: usize = 10;

/// Maximum time since the last read barrier for a health check that does not wait for one.
const HEALTH_STATE_AGE_MAX: Duration = Duration::from_secs(1);

impl Api {
    /// Handles a GET or HEAD of a non-resource path.
    pub(super) async fn handle_nonresource(
        &self,
        route: Route,
        api_request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        if api_request.method != Method::GET && api_request.method != Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        let found = |document: Option<Value>| {
            document.map_or_else(not_found_page, |it| json_response(StatusCode::OK, &it))
        };
        let kinds = self.registry.storage.kinds.served();
        match route {
            Route::Collection { .. } | Route::Watch { .. } | Route::Object(_) => {
                Err(ApiError::no_such_resource())
            }
            Route::Root => Ok(json_response(StatusCode::OK, &discovery::root_paths(&kinds))),
            Route::Health(health) => {
                let excluded: Vec<_> = api_request.query.values("exclude").collect();
                let state = self.health_state(health.endpoint, api_request).await;
                let (code, text) =
                    health::health_response(&health, state, api_request.query.contains("verbose"), &excluded);
                Ok(full_response(code, TEXT_PLAIN, text.into()))
            }
            Route::Metrics => {
                let text = self.metrics_text();
                let format = ExpositionFormat::negotiate(&api_request.accept);
                Ok(full_response(StatusCode::OK, format.media_type(), format.encode(text).into()))
            }
            Route::HealthMetrics => {
                let format = ExpositionFormat::negotiate(&api_request.accept);
                Ok(full_response(
                    StatusCode::OK,
                    format.media_type(),
                    format
                        .encode(health::health_metrics(self.health_state("readyz", api_request).await))
                        .into(),
                ))
            }
            Route::Explain => match &self.explain_provider {
                Some(explain_provider) => {
                    let (query, of) = (&api_request.query, |it: &str| it.to_owned());
                    match explain_provider.explain(of(query.get("namespace")), of(query.get("name"))).await {
                        Ok(json) => Ok(full_response(StatusCode::OK, JSON_MEDIA_TYPE, json.into())),
                        Err(why) => {
                            Ok(full_response(StatusCode::SERVICE_UNAVAILABLE, TEXT_PLAIN, why.into()))
                        }
                    }
                }
                None => Ok(not_found_page()),
            },
            Route::OpenIdConfiguration => Ok(json_response(StatusCode::OK, &auth::openid_configuration())),
            Route::Jwks => {
                let keys = self.registry.access.token_keys().to_string();
                Ok(full_response(StatusCode::OK, "application/jwk-set+json", keys.into()))
            }
            Route::Version => Ok(json_response(StatusCode::OK, &discovery::version_info())),
            Route::CoreVersions => {
                Ok(api_request.document_response(&discovery::core_discovery(&kinds, &api_request.accept)))
            }
            Route::Groups => {
                Ok(api_request.document_response(&discovery::groups_discovery(&kinds, &api_request.accept)))
            }
            Route::Group(group) => Ok(found(discovery::api_group(&kinds, &group))),
            Route::Resources { group, version } => {
                match discovery::api_resource_list(&kinds, &group, &version) {
                    Some(document) => Ok(json_response(StatusCode::OK, &document)),
                    None if group.is_empty() || discovery::api_group(&kinds, &group).is_some() => {
                        Err(ApiError::no_such_resource())
                    }
                    None => Ok(not_found_page()),
                }
            }
            Route::OpenApiV2 => {
                Ok(api_request.document_response(&openapi::v2_document(&kinds, &api_request.accept)))
            }
            Route::OpenApiV3Index => Ok(api_request.document_response(&openapi::v3_index_document(&kinds))),
            Route::OpenApiV3 { group, version } => Ok(openapi::v3_document(&kinds, &group, &version)
                .map_or_else(not_found_page, |it| api_request.document_response(&it))),
        }
    }

    /// Updates the gauges and returns all metrics in the OpenMetrics text format.
    pub(crate) fn metrics_text(&self) -> String {
        let Registry { storage, metrics, .. } = &*self.registry;
        self.limits.flow_control.update_metrics(metrics);
        metrics.set_store_metrics(
            storage.revision(),
            storage.used_bytes_and_capacity(),
            storage.largest_namespaces(METRIC_NAMESPACES_MAX),
        );
        metrics.set_store_full(storage.is_full());
        if let Some(statistics) = storage.sync_statistics() {
            metrics.set_sync_metrics(statistics);
        }
        let kinds = storage.kinds.served();
        metrics.set_object_counts(kinds.writable().map(|it| (it, storage.count_objects(it))));
        metrics.encode()
    }

    /// Returns the server state that the checks of a health endpoint report.
    async fn health_state(&self, endpoint: &str, api_request: &ApiRequest) -> HealthState {
        let is_set = |it: &AtomicBool| it.load(Ordering::Relaxed);
        let is_disk_full = is_set(&self.registry.storage.is_disk_full);
        let is_shared_storage_full = is_set(&self.registry.storage.is_shared_storage_full);
        // Without a quorum of etcd, the barrier fails after a timeout. A restart would not help, so `/livez` ignores it.
        let address = api_request.source_ip.filter(|_| api_request.context.user.is_anonymous());
        // Checks seldom wait, so that they are not refused because many other requests of their address do.
        let required = match endpoint {
            "livez" => RequiredState::Any,
            _ => RequiredState::ConfirmedWithin(HEALTH_STATE_AGE_MAX),
        };
        let is_current = self.wait_for_state(required, address).await.is_ok();
        HealthState {
            is_stopping: self.shutting_down.is_cancelled(),
            is_writable: !is_disk_full && is_current,
            is_shared_storage_full,
            store_bytes: self.registry.storage.used_bytes_and_capacity(),
        }
    }
}
