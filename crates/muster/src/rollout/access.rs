//! Reads and writes the objects of a rollout in the API server. If a kind or object is missing, or the user lacks a
//! ClusterRole, the error names it.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http::{Method, Request};
use kube::Client;
use kube::api::ListParams;
use muster_api::meta_v1::LabelSelector;
use muster_api::muster_v1alpha1::policy::RolloutSettings;
use muster_api::muster_v1alpha1::values::RolloutPhase;
use muster_api::muster_v1alpha1::{API_VERSION, CLUSTER_ROLLOUT_POLICY, DAEMON_ROLLOUT, ROLLOUT_POLICY};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::snapshot::{RevisionRecord, RolloutSnapshot, SetName, StoredRollout};
use super::{printable, string_at};

/// Timeout of one request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Field manager under which `muster rollout` writes a DaemonRollout.
const FIELD_MANAGER: &str = "muster-rollout";
/// Maximum number of ControllerRevisions that are read. A DaemonSet keeps ten old ones by default.
const REVISIONS_MAX: u32 = 1000;

/// Client that reads and writes the objects of the rollout of one DaemonSet.
#[derive(Debug)]
pub(super) struct RolloutApi {
    client: ClientHandle,
    set: SetName,
    /// Name of the ClusterRole that grants the requests of the command. Error messages name it.
    role: &'static str,
}

/// A Kubernetes client whose `Debug` output is only `Client`, so that no credentials are printed.
struct ClientHandle(Client);

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Why a write failed.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The object was changed or replaced since it was read, or was created meanwhile. The text is the message of the
    /// API server.
    Conflict(String),
    Other(anyhow::Error),
}

/// Why a request to the API server failed.
#[derive(Debug)]
enum RequestError {
    /// The object does not exist.
    NotFound,
    /// The API server does not serve the kind.
    NotServed,
    /// The object was changed or replaced since it was read, or exists already. The text is the message of the API
    /// server.
    Conflict(String),
    /// The user is not authorized for the request. The text is the message of the API server.
    Forbidden(String),
    Other(anyhow::Error),
}

impl RolloutApi {
    /// Creates a client for the rollout of this DaemonSet. `role` is the ClusterRole that error messages name.
    pub(super) fn new(client: Client, set: SetName, role: &'static str) -> Self {
        Self { client: ClientHandle(client), set, role }
    }

    /// Reads the objects of the rollout for a command that writes to the DaemonRollout. Reads the ControllerRevisions
    /// only if there is no DaemonRollout or if the rollout has stopped, because otherwise the command does not need
    /// them. If the user may not read DaemonSets or ControllerRevisions, the snapshot of an existing DaemonRollout does
    /// not contain them.
    pub(super) async fn read_for_write(&self) -> anyhow::Result<RolloutSnapshot> {
        let set = match self.get_daemonset().await {
            Err(RequestError::Forbidden(message)) => Err(message),
            set => Ok(self.daemonset_or_user_error(set)?),
        };
        let mut snapshot = self.read_rollout(set.as_ref().ok()).await?;
        let has_rollout = snapshot.rollout.is_some();
        let is_stopped = snapshot.rollout.as_ref().is_some_and(|it| it.status.phase == RolloutPhase::Stopped);
        snapshot.daemon_set = match set {
            Ok(set) => Some(set),
            Err(_) if has_rollout => None,
            Err(message) => {
                return Err(self.user_error(RequestError::Forbidden(message), "read", "daemonsets", "view"));
            }
        };
        if !has_rollout || is_stopped {
            match self.list_revisions(&snapshot).await {
                Ok(revisions) => snapshot.revisions = revisions,
                Err(RequestError::Forbidden(_)) if has_rollout => {}
                Err(refusal) => return Err(self.user_error(refusal, "list", "controllerrevisions", "view")),
            }
        }
        Ok(snapshot)
    }

    /// Reads the DaemonRollout, its policy, the DaemonSet and its revisions. Fails if the user may not read one of
    /// them, except the policy.
    pub(super) async fn read_all(&self) -> anyhow::Result<RolloutSnapshot> {
        let set = self.daemonset_or_user_error(self.get_daemonset().await)?;
        let mut snapshot = self.read_rollout(Some(&set)).await?;
        snapshot.daemon_set = Some(set);
        let revisions = self.list_revisions(&snapshot).await;
        snapshot.revisions =
            revisions.map_err(|it| self.user_error(it, "list", "controllerrevisions", "view"))?;
        Ok(snapshot)
    }

    /// Reads the DaemonRollout and the settings of its policy. A DaemonRollout without a policy has the default
    /// settings. `set` is the DaemonSet, or `None` if it could not be read. A DaemonRollout that belongs to another
    /// DaemonSet is left out of the snapshot.
    async fn read_rollout(&self, set: Option<&Value>) -> anyhow::Result<RolloutSnapshot> {
        let key = self.set.key();
        let (rollout, are_kinds_served) = match self.get(&self.rollout_path()).await {
            Ok(object) => {
                let rollout = StoredRollout::decode(object);
                (Some(rollout.with_context(|| format!("read the DaemonRollout {key}"))?), true)
            }
            Err(RequestError::NotFound) => (None, true),
            Err(RequestError::NotServed) => (None, false),
            Err(refusal) => return Err(self.user_error(refusal, "read", DAEMON_ROLLOUT.plural, self.role)),
        };
        let is_ours =
            |it: &StoredRollout| set.is_none_or(|set| it.belongs_to(&string_at(set, "/metadata/uid")));
        let has_stale_rollout = rollout.as_ref().is_some_and(|it| !is_ours(it));
        let rollout = rollout.filter(is_ours);
        let policy = match rollout.as_ref().map(|it| &it.status.policy) {
            Some(Some(policy)) => {
                let object = self.get(&self.policy_path(&policy.kind, &policy.name)).await.ok();
                object.and_then(|it| serde_json::from_value::<RolloutSettings>(it["spec"].clone()).ok())
            }
            Some(None) => Some(RolloutSettings::default()),
            None => None,
        };
        let (set, daemon_set, revisions) = (self.set.clone(), None, Vec::new());
        Ok(RolloutSnapshot {
            set,
            rollout,
            has_stale_rollout,
            are_kinds_served,
            policy,
            daemon_set,
            revisions,
        })
    }

    /// Returns the URL path of the API group `apps/v1` in the namespace of the DaemonSet.
    fn apps_path(&self) -> String {
        format!("/apis/apps/v1/namespaces/{}", self.set.namespace)
    }

    /// Reads the DaemonSet.
    async fn get_daemonset(&self) -> Result<Value, RequestError> {
        self.get(&format!("{}/daemonsets/{}", self.apps_path(), self.set.name)).await
    }

    /// Returns the DaemonSet that was read. Converts a [`RequestError`] to the error that the user sees.
    fn daemonset_or_user_error(&self, set: Result<Value, RequestError>) -> anyhow::Result<Value> {
        set.map_err(|refusal| match refusal {
            RequestError::NotFound | RequestError::NotServed => anyhow!(
                "{} not found: `kubectl get daemonsets -n {}` lists those of the namespace",
                self.set,
                self.set.namespace
            ),
            refusal => self.user_error(refusal, "read", "daemonsets", "view"),
        })
    }

    /// Lists the ControllerRevisions of the DaemonSet in the snapshot, sorted by number. Empty if the snapshot has no
    /// DaemonSet.
    async fn list_revisions(&self, snapshot: &RolloutSnapshot) -> Result<Vec<RevisionRecord>, RequestError> {
        let Some(set) = &snapshot.daemon_set else { return Ok(Vec::new()) };
        // The owner of each is checked, so a page limit is enough as a bound.
        let path = revisions_query(&format!("{}/controllerrevisions", self.apps_path()), set);
        let list = self.get(&path).await?;
        let uid = string_at(set, "/metadata/uid");
        let is_owned = |it: &&Value| {
            let owners = it.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            owners.into_iter().flatten().any(|it| it["controller"] == true && it["uid"] == *uid)
        };
        let items = list["items"].as_array().into_iter().flatten();
        let mut revisions: Vec<RevisionRecord> = items.filter(is_owned).map(RevisionRecord::decode).collect();
        revisions.sort_by_key(|it| it.number);
        Ok(revisions)
    }

    /// Writes the fields in `spec` to the spec of the DaemonRollout in one request. An existing DaemonRollout gets a
    /// JSON merge patch with the resourceVersion that was read. Otherwise a DaemonRollout is created.
    pub(super) async fn write_spec(
        &self,
        snapshot: &RolloutSnapshot,
        spec: &Value,
        dry_run: bool,
    ) -> Result<(), WriteError> {
        let (verb, sent) = match &snapshot.rollout {
            Some(rollout) => {
                let patch = json!({"metadata": {"resourceVersion": rollout.resource_version}, "spec": spec});
                let path = self.rollout_path() + &write_query(dry_run);
                ("patch", self.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await)
            }
            None => {
                let path = self.rollouts_path() + &write_query(dry_run);
                let object = self.new_rollout(snapshot, spec);
                ("create", self.send(Method::POST, &path, "application/json", &object).await)
            }
        };
        self.check_write_result(verb, sent)
    }

    /// Deletes the DaemonRollout of the snapshot, if it has one. The UID is a precondition, so that a later
    /// DaemonRollout of the same name is not deleted.
    pub(super) async fn delete(&self, snapshot: &RolloutSnapshot, dry_run: bool) -> Result<(), WriteError> {
        let Some(rollout) = &snapshot.rollout else { return Ok(()) };
        let mut options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": rollout.uid},
        });
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let sent = self.send(Method::DELETE, &self.rollout_path(), "application/json", &options).await;
        self.check_write_result("delete", sent)
    }

    /// Returns `Ok` if a write of the DaemonRollout succeeded. Otherwise returns a conflict, or the error that the user
    /// sees. `verb` is the verb of the request.
    fn check_write_result(&self, verb: &str, sent: Result<Value, RequestError>) -> Result<(), WriteError> {
        match sent {
            Ok(_) => Ok(()),
            Err(RequestError::Conflict(message)) => Err(WriteError::Conflict(message)),
            Err(refusal) => {
                Err(WriteError::Other(self.user_error(refusal, verb, DAEMON_ROLLOUT.plural, self.role)))
            }
        }
    }

    /// Returns the DaemonRollout to create, with this spec. The DaemonSet becomes its owner, so that the garbage
    /// collector deletes the DaemonRollout after the DaemonSet. The owner reference does not set `controller`.
    fn new_rollout(&self, snapshot: &RolloutSnapshot, spec: &Value) -> Value {
        let uid = snapshot.daemon_set.as_ref().map(|it| string_at(it, "/metadata/uid")).unwrap_or_default();
        json!({
            "apiVersion": API_VERSION,
            "kind": DAEMON_ROLLOUT.kind,
            "metadata": {
                "name": self.set.name,
                "namespace": self.set.namespace,
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": self.set.name, "uid": uid},
                ],
            },
            "spec": spec,
        })
    }

    /// Returns the URL path of the DaemonRollouts in the namespace of the DaemonSet.
    fn rollouts_path(&self) -> String {
        format!("/apis/{API_VERSION}/namespaces/{}/{}", self.set.namespace, DAEMON_ROLLOUT.plural)
    }

    /// Returns the URL path of the DaemonRollout of the DaemonSet.
    fn rollout_path(&self) -> String {
        format!("{}/{}", self.rollouts_path(), self.set.name)
    }

    /// Returns the URL path of the policy with this kind and name.
    fn policy_path(&self, kind: &str, name: &str) -> String {
        // A name that is no path segment, which no API server stores, must not change the path.
        let name: String =
            name.chars().filter(|it| it.is_ascii_alphanumeric() || "-.".contains(*it)).collect();
        if kind == CLUSTER_ROLLOUT_POLICY.kind {
            return format!("/apis/{API_VERSION}/{}/{name}", CLUSTER_ROLLOUT_POLICY.plural);
        }
        let namespace = &self.set.namespace;
        format!("/apis/{API_VERSION}/namespaces/{namespace}/{}/{name}", ROLLOUT_POLICY.plural)
    }

    /// Reads the object or list at a URL path.
    async fn get(&self, path: &str) -> Result<Value, RequestError> {
        self.send(Method::GET, path, "", &Value::Null).await
    }

    /// Sends one request, without retries, and returns the body of the response.
    async fn send(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: &Value,
    ) -> Result<Value, RequestError> {
        let mut request =
            Request::builder().method(method.clone()).uri(path).header("Accept", "application/json");
        let mut bytes = Vec::new();
        if !body.is_null() {
            request = request.header("Content-Type", media_type);
            bytes = body.to_string().into_bytes();
        }
        let request = request.body(bytes).map_err(|it| RequestError::Other(it.into()))?;
        match timeout(REQUEST_TIMEOUT, self.client.0.request::<Value>(request)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(classify_error(error)),
            Err(_) => {
                let limit = REQUEST_TIMEOUT.as_secs();
                Err(RequestError::Other(anyhow!("the API server did not answer within {limit} s")))
            }
        }
    }

    /// Returns the error that the user sees after a failed request: what was tried, and what to do. `role` is the
    /// ClusterRole that grants the request.
    fn user_error(&self, refusal: RequestError, verb: &str, resource: &str, role: &str) -> anyhow::Error {
        let SetName { namespace, name, .. } = &self.set;
        match refusal {
            RequestError::NotFound => {
                anyhow!("{verb} {resource} {namespace}/{name}: it was deleted meanwhile")
            }
            RequestError::NotServed => not_served_error(),
            RequestError::Conflict(message) => anyhow!("{verb} {resource} {namespace}/{name}: {message}"),
            RequestError::Forbidden(message) => anyhow!(
                "you may not {verb} {resource} in the namespace {namespace}: bind the ClusterRole {role} to your user: {message}"
            ),
            RequestError::Other(error) => error.context(format!("{verb} {resource} {namespace}/{name}")),
        }
    }
}

/// Returns the error for an API server that does not serve the kinds of `muster.dev`.
pub(super) fn not_served_error() -> anyhow::Error {
    anyhow!(
        "the API server does not have the kinds of {API_VERSION}: `kubectl apply -k deploy/kubernetes/crds` adds them"
    )
}

/// Classifies a client error by its HTTP status code.
fn classify_error(error: kube::Error) -> RequestError {
    let kube::Error::Api(status) = error else { return RequestError::Other(error.into()) };
    let message = printable(&status.message);
    match status.code {
        // An API server that lacks the kind answers without the name of an object.
        404 if status.details.as_ref().is_some_and(|it| !it.name.is_empty()) => RequestError::NotFound,
        404 => RequestError::NotServed,
        409 => RequestError::Conflict(message),
        403 => RequestError::Forbidden(message),
        401 => RequestError::Other(anyhow!(
            "the API server rejected your credentials: check that the kubeconfig belongs to this cluster and has not expired"
        )),
        _ => RequestError::Other(anyhow!(message)),
    }
}

/// Returns the query string of a create or a patch: the field manager, and `dryRun=All` for a dry run.
fn write_query(dry_run: bool) -> String {
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    format!("?fieldManager={FIELD_MANAGER}{dry_run}")
}

/// Returns the path and query of a list of the ControllerRevisions at `path` that the selector of the DaemonSet selects.
/// Revisions have the labels of the template. If the selector is invalid or selects nothing, the list has all
/// ControllerRevisions.
fn revisions_query(path: &str, set: &Value) -> String {
    let text = set["spec"]["selector"].to_string();
    let selector: Option<LabelSelector<'_>> = serde_json::from_str(&text).unwrap_or_default();
    let selector = LabelSelector::to_selector(selector.as_ref()).ok();
    let mut options = ListParams::default().limit(REVISIONS_MAX);
    options.label_selector = selector.and_then(|it| it.to_query()).filter(|it| !it.is_empty());
    let request = kube::core::Request::new(path).list(&options);
    // kube writes an empty first parameter.
    request.map_or_else(|_| path.to_owned(), |it| it.uri().to_string().replacen("?&", "?", 1))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn refusals_are_classified() {
        let status = |text: &str| kube::Error::Api(serde_json::from_str(text).unwrap());
        let plain =
            kube::core::Status::failure("404 page not found", "Failed to parse error data").with_code(404);
        let object =
            r#"{"code": 404, "reason": "NotFound", "details": {"name": "web", "kind": "daemonrollouts"}}"#;
        let kind = r#"{"code": 404, "reason": "NotFound", "details": {}}"#;
        let all = [
            classify_error(kube::Error::Api(plain.boxed())),
            classify_error(status(object)),
            classify_error(status(kind)),
            classify_error(status(r#"{"code": 409, "message": "changed\u001b[2J"}"#)),
            classify_error(status(r#"{"code": 403, "message": "no"}"#)),
        ];
        expect![[r#"
            NotServed
            NotFound
            NotServed
            Conflict("changed\\u{1b}[2J")
            Forbidden("no")"#]]
        .assert_eq(&all.map(|it| format!("{it:?}")).join("\n"));
    }

    #[test]
    fn revisions_are_listed_by_the_selector_of_the_set() {
        let all = [
            json!({"matchLabels": {"a.b/c": "x", "d": "y&z"}}),
            json!({"matchExpressions": [{"key": "e", "operator": "NotIn", "values": ["f", "g"]}]}),
            json!({"matchExpressions": [{"key": "e", "operator": "Other"}]}),
            json!({}),
            json!(null),
        ];
        expect![[r#"
            /p?labelSelector=a.b%2Fc+in+%28x%29%2Cd+in+%28y%26z%29&limit=1000
            /p?labelSelector=e+notin+%28f%2Cg%29&limit=1000
            /p?limit=1000
            /p?limit=1000
            /p?limit=1000"#]]
        .assert_eq(&all.map(|it| revisions_query("/p", &json!({"spec": {"selector": it}}))).join("\n"));
    }
}
