//! `muster explain`: reads what concerns one set, asks its controller, and leaves the rest to the engine.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::join;
use kube::{Client, Config};
use muster_engine::daemonset::explain::{Controller, Explanation, Picture, State, Told, Unread};
use muster_engine::daemonset::facts::{Key, Kind};
use muster_engine::daemonset::manifest::{self, Verb};
use serde::Deserialize;
use tokio::time::timeout;

use crate::daemonset::now;
use crate::inquiry::Inquiries;
use crate::read::{NotRead, Right, each, get};
use crate::request::{JSON, collection, request};

/// The controller answers from memory, or is not there.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(5);

/// What is on so few nodes is asked for node by node, and else all at once.
const NODES_APART_MAX: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum NotExplained {
    #[error("there is no DaemonSet {name} in the namespace {namespace}{}", instead(.others))]
    NoSuchSet { namespace: String, name: String, others: Vec<String> },
    #[error(transparent)]
    NotRead(#[from] NotRead),
}

fn instead(others: &[String]) -> String {
    if others.is_empty() { String::new() } else { format!("; there is {}", others.join(", ")) }
}

/// What is true of a set, on every node. `controller` is the address of its endpoint where the API server has none.
pub async fn explain(
    client: &Client,
    namespace: &str,
    name: &str,
    controller: Option<&str>,
) -> Result<Explanation, NotExplained> {
    let no_such_set = |others| {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        NotExplained::NoSuchSet { namespace, name, others }
    };
    let mut picture = Picture::of(Key::new(namespace, name));
    let Some(set) = read_set(client, namespace, name).await? else {
        return Err(no_such_set(names_in(client, namespace).await));
    };
    take_set(&mut picture, namespace, &set)?;
    let asking = ask(client, namespace, name, controller);
    let (read, told) = join!(read_around(client, &mut picture, namespace), asking);
    read?;
    let gone = |Unread::NoSuchSet| no_such_set(Vec::new());
    let first = picture.explain(told.clone(), now()).map_err(gone)?;
    let looks_for_room = |state| matches!(state, State::Pending | State::Missing);
    let rooms = first.nodes.iter().filter(|it| looks_for_room(it.is.state)).map(|it| it.is.node.to_string());
    let rooms: BTreeSet<String> = rooms.collect();
    if rooms.is_empty() {
        return Ok(first);
    }
    read_guests(client, &mut picture, &rooms).await?;
    picture.explain(told, now()).map_err(gone)
}

/// `None`: there is no such set.
pub(crate) async fn read_set(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, NotRead> {
    let right = Right { verb: "get", kind: Kind::Sets, namespace: Some(namespace) };
    let path = format!("{}/{name}", collection(Kind::Sets, Some(namespace)));
    match get(client, right, path).await {
        Err(NotRead::Refused { code: 404, .. }) => Ok(None),
        read => read.map(Some),
    }
}

pub(crate) fn take_set(picture: &mut Picture, namespace: &str, set: &str) -> Result<(), NotRead> {
    let what = format!("read a DaemonSet in the namespace {namespace}");
    picture
        .take(Kind::Sets, set.as_bytes())
        .map_err(|source| NotRead::Unreadable { what, source: source.into() })
}

/// A few of the sets that are there, for whoever has mistyped a name.
async fn names_in(client: &Client, namespace: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
    }
    let right = Right { verb: "list", kind: Kind::Sets, namespace: Some(namespace) };
    let path = format!("{}?limit=5", collection(Kind::Sets, Some(namespace)));
    let text = get(client, right, path).await.unwrap_or_default();
    let list: Result<List, _> = serde_json::from_str(&text);
    list.map(|it| it.items.into_iter().map(|it| it.metadata.name).collect()).unwrap_or_default()
}

/// Reads what is around the picture's set: all nodes, and the pods and revisions that its selector matches.
pub(crate) async fn read_around(
    client: &Client,
    picture: &mut Picture,
    namespace: &str,
) -> Result<(), NotRead> {
    let selector = picture.set().and_then(|it| manifest::label_selector(it)).unwrap_or_default();
    each(client, Kind::Nodes, None, ("", ""), |node| {
        picture.take_room(node)?;
        Ok(picture.take(Kind::Nodes, node)?)
    })
    .await?;
    for kind in [Kind::Pods, Kind::Revisions] {
        let wanted = ("labelSelector", selector.as_str());
        each(client, kind, Some(namespace), wanted, |object| Ok(picture.take(kind, object)?)).await?;
    }
    Ok(())
}

/// Reads who is on some nodes, whoever's they are. Where that is not allowed, nothing is said of ports and amounts.
pub(crate) async fn read_guests(
    client: &Client,
    picture: &mut Picture,
    nodes: &BTreeSet<String>,
) -> Result<(), NotRead> {
    let wanted: Vec<String> = if nodes.len() <= NODES_APART_MAX {
        nodes.iter().map(|it| format!("spec.nodeName={it}")).collect()
    } else {
        vec!["spec.nodeName!=".to_owned()]
    };
    for wanted in wanted {
        let wanted = ("fieldSelector", wanted.as_str());
        match each(client, Kind::Pods, None, wanted, |pod| Ok(picture.take_guest(pod)?)).await {
            Err(NotRead::Forbidden { .. }) => {
                picture.note(
                    "Whether ports or resources are in the way is not known: you may not list pods of all namespaces."
                        .to_owned(),
                );
                return Ok(());
            }
            read => read?,
        }
    }
    Ok(())
}

/// Asks whoever looks after the set: where the address says, or through the API server where that knows.
async fn ask(client: &Client, namespace: &str, name: &str, at: Option<&str>) -> Told {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("namespace", namespace)
        .append_pair("name", name)
        .finish();
    let path = format!("{}?{query}", Inquiries::PATH);
    let Some(at) = at else { return ask_at(client, path, None).await };
    let uri: http::Uri = match at.parse() {
        Ok(uri) => uri,
        Err(error) => return Told::NotKnown(format!("{at} is no address: {error}")),
    };
    match Client::try_from(Config::new(uri)) {
        Ok(client) => ask_at(&client, path, Some(at)).await,
        Err(error) => Told::NotKnown(format!("{at}: {error}")),
    }
}

async fn ask_at(client: &Client, path: String, at: Option<&str>) -> Told {
    let request = request(Verb::Get, path, JSON, String::new());
    let whose = at.map_or("this API server".to_owned(), ToOwned::to_owned);
    let why = match timeout(CONTROLLER_TIMEOUT, client.request_text(request)).await {
        Err(_) => format!("{whose} did not answer in time"),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            format!("you may not get {} of {whose}", Inquiries::PATH)
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 404 && at.is_none() => {
            "the API server has no controller of its own to ask; where `muster controller` runs, --controller says where \
             its metrics are"
                .to_owned()
        }
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 503) => {
            format!("{whose} says: {}", status.message.trim())
        }
        Ok(Err(error)) => {
            let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |it| it.source());
            format!("{whose}: {}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
        }
        Ok(Ok(text)) => match Controller::of_json(text.as_bytes()) {
            Some(known) => return Told::By(known),
            None => format!("{whose} answers something else"),
        },
    };
    Told::NotKnown(why)
}
