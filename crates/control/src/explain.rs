//! `muster explain`: reads one DaemonSet with the nodes and its pods, queries its controller, and calls the engine.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::join;
use kube::{Client, Config};
use muster_api::json;
use muster_api::meta_v1::PartialObjectMetadata;
use muster_api::object_key::ObjectKey;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_engine::controller::Verb;
use muster_engine::daemonset::facts::Kind;
use muster_engine::daemonset::manifest;
use muster_engine::explain::{
    ControllerAnswer, ControllerState, Explanation, NodeSummary, Snapshot, SnapshotError,
};
use muster_events::clock::now;
use muster_events::error_chain::format_error_chain;
use tokio::time::timeout;

use crate::explain_query::ExplainQueries;
use crate::paged_list::Page;
use crate::read::{Permission, ReadError, for_each_object, get};
use crate::request::request;

/// Timeout of the explain query to the controller. It is short, because the controller answers from memory.
const CONTROLLER_QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of nodes whose pods are listed with one request per node. For more nodes, all bound pods of the
/// cluster are listed.
const NODE_QUERIES_MAX: usize = 8;

/// Why a DaemonSet cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("DaemonSet {namespace}/{name} not found{}", other_names_hint(.others))]
    NoSuchSet { namespace: String, name: String, others: Vec<String> },
    #[error(transparent)]
    ReadError(#[from] ReadError),
}

/// Returns the end of the error message for a DaemonSet that was not found: names of other DaemonSets in the namespace.
/// Empty if `others` is empty.
fn other_names_hint(others: &[String]) -> String {
    if others.is_empty() { String::new() } else { format!("; the namespace has {}", others.join(", ")) }
}

/// Explains the state of one DaemonSet on every node. `controller` is the address of the controller's debug endpoint,
/// for API servers that do not serve `/debug/explain`. `None` queries the controller through the API server.
pub async fn explain(
    client: &Client,
    namespace: &str,
    name: &str,
    controller: Option<&str>,
) -> Result<Explanation, ExplainError> {
    let no_such_set = |others| {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        ExplainError::NoSuchSet { namespace, name, others }
    };
    let mut snapshot = Snapshot::new(ObjectKey::new(namespace, name));
    let Some(set) = read_set(client, namespace, name).await? else {
        return Err(no_such_set(daemonset_names(client, namespace).await));
    };
    add_daemonset_to_snapshot(&mut snapshot, namespace, &set)?;
    let querying = query_controller(client, namespace, name, controller);
    let (read, answer) = join!(read_cluster_objects(client, &mut snapshot, namespace), querying);
    read?;
    let gone = |SnapshotError::NoSuchSet| no_such_set(Vec::new());
    let first = snapshot.explain(answer.clone(), now()).map_err(gone)?;
    let is_unplaced = |state| matches!(state, NodeSummary::Pending | NodeSummary::Missing);
    let nodes = first
        .nodes
        .iter()
        .filter(|it| is_unplaced(it.explained.state))
        .map(|it| it.explained.node.to_string());
    let nodes: BTreeSet<String> = nodes.collect();
    if nodes.is_empty() {
        return Ok(first);
    }
    read_pods_on_nodes(client, &mut snapshot, &nodes).await?;
    snapshot.explain(answer, now()).map_err(gone)
}

/// Reads a DaemonSet as JSON. `None` if the DaemonSet does not exist.
pub(crate) async fn read_set(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, ReadError> {
    let permission = Permission { verb: "get", kind: Kind::Sets, namespace: Some(namespace) };
    let path = format!("{}/{name}", Kind::Sets.watch().resource.collection_path(Some(namespace)));
    match get(client, permission, path).await {
        Err(ReadError::Refused { code: 404, .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Adds the JSON of a DaemonSet to the snapshot.
pub(crate) fn add_daemonset_to_snapshot(
    snapshot: &mut Snapshot,
    namespace: &str,
    set: &str,
) -> Result<(), ReadError> {
    let operation = format!("read a DaemonSet in the namespace {namespace}");
    snapshot
        .add_object(Kind::Sets, set.as_bytes())
        .map_err(|source| ReadError::Unreadable { operation, source: source.into() })
}

/// Returns the names of up to five DaemonSets in the namespace, for an error message. Empty if they cannot be read.
async fn daemonset_names(client: &Client, namespace: &str) -> Vec<String> {
    let permission = Permission { verb: "list", kind: Kind::Sets, namespace: Some(namespace) };
    let path = format!("{}?limit=5", Kind::Sets.watch().resource.collection_path(Some(namespace)));
    let text = get(client, permission, path).await.unwrap_or_default();
    let Ok(page) = serde_json::from_str::<Page<'_>>(&text) else { return Vec::new() };
    let objects = page.objects().filter_map(|it| json::from_slice::<PartialObjectMetadata<'_>>(it).ok());
    objects.map(|it| it.metadata.name().to_owned()).collect()
}

/// Reads all nodes, the pods and revisions that the DaemonSet's selector matches, and the objects of its progressive
/// rollout. Adds them to the snapshot.
pub(crate) async fn read_cluster_objects(
    client: &Client,
    snapshot: &mut Snapshot,
    namespace: &str,
) -> Result<(), ReadError> {
    let selector = snapshot.set().and_then(|it| manifest::label_selector_query(it)).unwrap_or_default();
    for_each_object(client, Kind::Nodes, None, ("", ""), |node| {
        snapshot.add_node_capacity(node)?;
        Ok(snapshot.add_object(Kind::Nodes, node)?)
    })
    .await?;
    for kind in [Kind::Pods, Kind::Revisions] {
        let wanted = ("labelSelector", selector.as_str());
        for_each_object(client, kind, Some(namespace), wanted, |object| {
            Ok(snapshot.add_object(kind, object)?)
        })
        .await?;
    }
    for kind in Kind::OPTIONAL {
        read_optional_kind(client, snapshot, kind, namespace).await?;
    }
    Ok(())
}

/// Reads the objects of a kind of [`Kind::OPTIONAL`], which only progressive rollouts need, and adds them to the
/// snapshot. Adds nothing if the API server does not serve the kind. Adds a note if the user may not list the kind.
async fn read_optional_kind(
    client: &Client,
    snapshot: &mut Snapshot,
    kind: Kind,
    namespace: &str,
) -> Result<(), ReadError> {
    let by_name = format!("metadata.name={namespace}");
    let wanted = if kind == Kind::Namespaces { ("fieldSelector", by_name.as_str()) } else { ("", "") };
    let is_namespaced = kind.watch().resource.namespaced;
    let namespace = Some(namespace).filter(|_| is_namespaced);
    let reading =
        for_each_object(client, kind, namespace, wanted, |object| Ok(snapshot.add_object(kind, object)?));
    match reading.await {
        Err(ReadError::Refused { code: 404, .. }) => Ok(()),
        Err(ReadError::Forbidden { operation, .. }) => {
            snapshot
                .add_note(format!("Progressive rollouts are not shown in full: you may not {operation}."));
            Ok(())
        }
        read => read,
    }
}

/// Adds all pods on these nodes (or on all nodes, if there are more than [`NODE_QUERIES_MAX`]) to the snapshot, to
/// check ports and resources. Without permission to list pods, adds a note that ports and resources are not checked.
pub(crate) async fn read_pods_on_nodes(
    client: &Client,
    snapshot: &mut Snapshot,
    nodes: &BTreeSet<String>,
) -> Result<(), ReadError> {
    let wanted: Vec<String> = if nodes.len() <= NODE_QUERIES_MAX {
        nodes.iter().map(|it| format!("spec.nodeName={it}")).collect()
    } else {
        vec!["spec.nodeName!=".to_owned()]
    };
    for wanted in wanted {
        let wanted = ("fieldSelector", wanted.as_str());
        match for_each_object(client, Kind::Pods, None, wanted, |pod| Ok(snapshot.add_scheduled_pod(pod)?))
            .await
        {
            Err(ReadError::Forbidden { .. }) => {
                snapshot.add_note(
                    "Ports and resources were not checked: you may not list pods in all namespaces."
                        .to_owned(),
                );
                return Ok(());
            }
            read => read?,
        }
    }
    Ok(())
}

/// Asks the controller for its in-memory state about the DaemonSet: at the address `at`, or through the API server if
/// `at` is `None`.
async fn query_controller(
    client: &Client,
    namespace: &str,
    name: &str,
    at: Option<&str>,
) -> ControllerAnswer {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("namespace", namespace)
        .append_pair("name", name)
        .finish();
    let path = format!("{}?{query}", ExplainQueries::PATH);
    let Some(at) = at else { return send_controller_query(client, path, None).await };
    let uri: http::Uri = match at.parse() {
        Ok(uri) => uri,
        Err(error) => return ControllerAnswer::Unavailable(format!("{at} is not a valid address: {error}")),
    };
    match Client::try_from(Config::new(uri)) {
        Ok(client) => send_controller_query(&client, path, Some(at)).await,
        Err(error) => ControllerAnswer::Unavailable(format!("{at}: {error}")),
    }
}

/// Sends an explain query to the server of `client`. `at` is the server's address for messages, or `None` for the API
/// server.
async fn send_controller_query(client: &Client, path: String, at: Option<&str>) -> ControllerAnswer {
    let request = request(Verb::Get, path, JSON_MEDIA_TYPE, String::new());
    let server = at.map_or("this API server".to_owned(), ToOwned::to_owned);
    let why = match timeout(CONTROLLER_QUERY_TIMEOUT, client.request_text(request)).await {
        Err(_) => format!("{server} did not respond in time"),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            format!("you may not get {} of {server}", ExplainQueries::PATH)
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 404 && at.is_none() => {
            format!(
                "the API server does not serve {}; name the metrics address of `muster controller` with --controller",
                ExplainQueries::PATH
            )
        }
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 503) => {
            format!("{server}: {}", status.message.trim())
        }
        Ok(Err(error)) => format!("{server}: {}", format_error_chain(&error)),
        Ok(Ok(text)) => match ControllerState::from_json(text.as_bytes()) {
            Some(known) => return ControllerAnswer::Responded(known),
            None => format!("{server}: unexpected response"),
        },
    };
    ControllerAnswer::Unavailable(why)
}
