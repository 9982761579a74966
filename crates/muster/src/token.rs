//! `muster token create`: a token with which a new node joins.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use muster_agent::join::fingerprint;
use muster_agent::machine;
use serde_json::json;
use uuid::Uuid;

use crate::span;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Create(Create),
}

/// Make a bootstrap token and print it, and the command with which a new node joins
///
/// Whoever has the token may ask for a node's certificate until it expires. It is kept as a Secret in kube-system: to take
/// it back, delete the Secret `bootstrap-token-ID`, where ID is what stands before the dot.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster token create
  muster token create --ttl 15m --description 'rack 7'")]
struct Create {
    /// The administrator's kubeconfig [default: $KUBECONFIG, or DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The data directory of the server, if it runs on this machine
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    /// How long the token is good for: 30s, 15m, 24h, 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = span::parse)]
    ttl: Duration,
    /// A note for whoever looks at the Secret later
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Command::Create(args) = args.command;
    let path = args.kubeconfig.or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
    let path = path.unwrap_or_else(|| args.data_dir.join("kubeconfig"));
    let kubeconfig = Kubeconfig::read_from(&path)
        .with_context(|| format!("read the kubeconfig {}: is the server running?", path.display()))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let authority = config.root_cert.iter().flatten().next().cloned();
    let client = Client::try_from(config)?;
    let token = create(&client, args.ttl, &args.description).await?;
    println!("{token}");
    match reachable(&client).await {
        Some(server) => {
            let hash = authority.map(|it| format!(" --ca-hash {}", fingerprint(&it))).unwrap_or_default();
            eprintln!("On the new node: muster agent --server https://{server} --token {token}{hash}");
            if server.parse::<SocketAddr>().is_ok_and(|it| machine::is_hub(it.ip())) {
                eprintln!(
                    "{server} is of this machine only: for another one give an address of this machine's that it reaches, and start \
                     `muster up` with --listen 0.0.0.0:PORT"
                );
            }
        }
        None => eprintln!(
            "The server listens to its own machine only: for others start it with --listen 0.0.0.0:6443, or an address of its own"
        ),
    }
    Ok(())
}

/// Where others reach the server: what it says of itself to pods.
async fn reachable(client: &Client) -> Option<String> {
    let endpoints: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let own = endpoints.get_opt("kubernetes").await.ok().flatten()?;
    let address = own.endpoints.as_ref()?.first()?.addresses.first()?.clone();
    let port = own.ports.iter().flatten().find_map(|it| it.port)?;
    Some(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
}

/// Makes a token that is good for so long.
pub(crate) async fn create(client: &Client, ttl: Duration, description: &str) -> anyhow::Result<String> {
    let (id, secret) = (word(6), word(16));
    let expires = Timestamp::now() + ttl;
    let object = json!({
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id,
            "token-secret": secret,
            "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "usage-bootstrap-authentication": "true",
            "description": description,
        },
    });
    let object: Secret = serde_json::from_value(object).context("make the Secret")?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    secrets.create(&PostParams::default(), &object).await.context("store the token")?;
    Ok(format!("{id}.{secret}"))
}

/// Takes a token back.
pub(crate) async fn delete(client: &Client, token: &str) -> anyhow::Result<()> {
    let (id, _) = token.split_once('.').unwrap_or((token, ""));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let deleted = secrets.delete(&format!("bootstrap-token-{id}"), &DeleteParams::default()).await;
    deleted.map(drop).context("take the token back")
}

/// Random letters and digits. The 27 that make no words are enough: 16 of them are 76 bits.
fn word(length: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = std::iter::repeat_with(|| Uuid::new_v4().into_bytes()).flatten();
    // Bytes beyond the last whole multiple of 27 would make some letters likelier than others, and so would the six bits
    // of a UUID that are always the same.
    let fair = random.enumerate().filter(|(at, byte)| !matches!(at % 16, 6 | 8) && *byte < 243);
    fair.map(|(_, byte)| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).take(length).collect()
}
