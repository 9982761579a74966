//! `muster token`: creates bootstrap tokens for new nodes, lists and revokes tokens, and replaces the server token.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};
use muster_agent::join::fingerprint;
use muster_agent::local_node;
use muster_api::names;
use muster_api::time::Time;
use muster_api::well_known::{
    ANNOTATION_SERVICE_ACCOUNT_NAME, LABEL_SERVICE_NAME, NAMESPACE_SYSTEM, SECRET_BOOTSTRAP_TOKEN_PREFIX,
    SECRET_TYPE_BOOTSTRAP_TOKEN, SECRET_TYPE_SERVICE_ACCOUNT_TOKEN,
};
use muster_server::{CLUSTER_KEYS_CHECK_INTERVAL, SERVER_TOKEN_FILE};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::admin::{AdminConnection, AdminFlags};
use crate::command_line::quote_for_shell;
use crate::duration_flag;
use crate::etcd_flags::EtcdFlags;
use crate::logging::{aligned_table, print_to_stderr, print_to_stdout};
use crate::revocation_list::{add_to_revocation_list, revocation_entry};

#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    Create(CreateTokenArgs),
    Rotate(RotateTokenArgs),
    List(ListTokensArgs),
    Revoke(RevokeTokensArgs),
}

/// Create a bootstrap token, and print it with the command with which a new node joins
///
/// Until it expires, the token can be used to request a node certificate, except for a node that is Ready. The token is
/// stored as a Secret in kube-system; `muster token revoke` revokes it.
///
/// With --server, print the server token of a cluster on etcd, with the command that starts another server. This token and
/// access to etcd together give access to all keys of the cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster token create
  muster token create --ttl 15m --description 'rack 7'
  muster token create --for node-7
  muster token create --server --data-dir /var/lib/muster     start another server of a cluster on etcd")]
struct CreateTokenArgs {
    #[command(flatten)]
    administrator: AdminFlags,
    /// Lifetime of the token, such as 15m, 24h or 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration_flag::parse_duration)]
    ttl: Duration,
    /// Name of the only node that may join with the token [default: any node]
    #[arg(long = "for", value_name = "NODE", default_value = "")]
    node: String,
    /// Description stored in the Secret and shown by `muster token list`
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// Print the server token, and the command that starts another server on the same etcd
    #[arg(long, conflicts_with_all = ["ttl", "node", "description"])]
    server: bool,
}

/// Replace the server token of a cluster on etcd, and print the new token
///
/// The keys of the cluster in etcd are encrypted again, with the new token. No server is restarted. The new token must
/// be put on the machines of the other servers: without it they do not start again and do not get new signing keys.
/// Backups that were made before need the old token. If the command is interrupted, run it again: it continues.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  muster token rotate --server --data-dir /var/lib/muster --etcd https://10.0.0.1:2379 \\
      --etcd-ca ca.crt --etcd-cert client.crt --etcd-key client.key")]
struct RotateTokenArgs {
    /// Replace the server token
    #[arg(long, required = true)]
    server: bool,
    /// Data directory of a server of the cluster, which gets the new token
    #[arg(long, value_name = "DIR", default_value = ".muster")]
    data_dir: PathBuf,
    #[command(flatten)]
    etcd: EtcdFlags,
}

/// List bootstrap tokens and the Secrets that hold service account tokens
///
/// Tokens of pods, and those of `kubectl create token`, are not stored and therefore not listed. They become invalid
/// with their pod, Secret or service account. To revoke one, pass the token itself to `muster token revoke`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster token list
  muster token list --data-dir /var/lib/muster")]
struct ListTokensArgs {
    #[command(flatten)]
    administrator: AdminFlags,
}

/// Revoke a token: the next request that uses it is rejected
///
/// Name a bootstrap token by its ID: its Secret is deleted. Name a service account token that is stored in a Secret by
/// the NAMESPACE/NAME of the Secret: all tokens bound to the Secret are added to the revocation list, and then the
/// Secret is deleted. Pass any other service account token itself, preferably on standard input: it is added to the
/// revocation list.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster token revoke bx2k7d              a bootstrap token, by the part before its dot
  muster token revoke default/ci-token    the Secret of a service account token
  muster token revoke - < stolen.token    a service account token itself")]
struct RevokeTokensArgs {
    /// ID of a bootstrap token, NAMESPACE/NAME of a Secret, or - to read a token from standard input
    #[arg(value_name = "TOKEN", required = true)]
    tokens: Vec<String>,
    #[command(flatten)]
    administrator: AdminFlags,
}

/// Executes `muster token`.
pub(crate) async fn run(args: TokenArgs) -> anyhow::Result<()> {
    match args.command {
        TokenCommand::Create(args) => create_and_print_token(args).await,
        TokenCommand::Rotate(args) => rotate_server_token(args).await,
        TokenCommand::List(args) => list_tokens(args).await,
        TokenCommand::Revoke(args) => revoke_tokens(args).await,
    }
}

/// Executes `muster token create`.
async fn create_and_print_token(args: CreateTokenArgs) -> anyhow::Result<()> {
    if args.server {
        return print_server_token(&args.administrator.data_dir);
    }
    let AdminConnection { client, ca_certificate, .. } = args.administrator.connect().await?;
    let token = create_token_for_node(&client, args.ttl, &args.description, &args.node).await?;
    print_to_stdout(token);
    let servers = read_server_addresses(&client).await;
    if servers.is_empty() {
        print_to_stderr(
            "The server listens on a loopback address only: for nodes on other machines, start it with --listen 0.0.0.0:6443",
        );
        return Ok(());
    }
    let urls: Vec<_> = servers.iter().map(|it| format!("https://{it}")).collect();
    let hash = ca_certificate.map(|it| format!(" --ca-hash {}", fingerprint(&it))).unwrap_or_default();
    let name = if args.node.is_empty() { String::new() } else { format!(" --node-name {}", args.node) };
    print_to_stderr(format_args!(
        "On the new node, put the token into a file that only root can read, and start the agent with it:\n  \
         (umask 077; cat > muster-token)    paste the token, then press Ctrl-D\n  \
         muster agent --server {} --token-file muster-token{hash}{name}",
        urls.join(",")
    ));
    if let Some(server) = servers.iter().find(|it| local_node::is_bridge_address(it.ip())) {
        print_to_stderr(format_args!(
            "{server} is reachable from this machine only: for a node on another machine, start `muster up` with \
             --listen 0.0.0.0:PORT, and give an address of this machine that the node can reach"
        ));
    }
    Ok(())
}

/// Reads the addresses and ports of the API servers from the EndpointSlices of the Service `default/kubernetes`. Returns
/// an empty list if they cannot be read or have no address.
async fn read_server_addresses(client: &Client) -> Vec<SocketAddr> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let of_servers = ListParams::default().labels(&format!("{LABEL_SERVICE_NAME}=kubernetes"));
    let slices = slices.list(&of_servers).await.map(|it| it.items).unwrap_or_default();
    let mut servers = Vec::new();
    for slice in &slices {
        let Some(port) = slice.ports.iter().flatten().find_map(|it| u16::try_from(it.port?).ok()) else {
            continue;
        };
        let addresses = slice.endpoints.iter().flatten().flat_map(|it| &it.addresses);
        let addresses = addresses.filter_map(|it| it.parse::<IpAddr>().ok());
        servers.extend(addresses.map(|it| SocketAddr::new(it, port)));
    }
    servers.sort_unstable();
    servers
}

/// Prints the server token of the data directory, and the command that starts another server.
fn print_server_token(data_dir: &Path) -> anyhow::Result<()> {
    let flags = EtcdFlags::read_saved(data_dir)?;
    let path = data_dir.join(SERVER_TOKEN_FILE);
    let token = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    print_to_stdout(token.trim());
    let has_files = flags.iter().any(|it| it.starts_with("--etcd-ca="));
    let files = if has_files { "copy the certificates for etcd to the same paths, " } else { "" };
    print_to_stderr(format_args!(
        "On the new machine, {files}put the token into a file that only root can read, and start the server with it:\n  \
         (umask 077; cat > server-token)    paste the token, then press Ctrl-D\n  \
         muster server --data-dir /var/lib/muster --listen 0.0.0.0:6443 --token-file server-token \\\n      {}",
        flags.iter().map(|it| quote_for_shell(it)).collect::<Vec<_>>().join(" \\\n      ")
    ));
    Ok(())
}

/// Executes `muster token rotate --server`.
async fn rotate_server_token(args: RotateTokenArgs) -> anyhow::Result<()> {
    let etcd = args.etcd.options().context("add --etcd: only a cluster on etcd has a server token")?;
    let token = muster_server::rotate_server_token(&etcd, &args.data_dir).await?;
    print_to_stdout(token);
    print_to_stderr(format_args!(
        "The server token is replaced, here in {}. On the machine of each other server, put the token into the file \
         {SERVER_TOKEN_FILE} of its data directory, and into the file of --token-file if the server is started with it:\n  \
         (umask 077; cat > /var/lib/muster/{SERVER_TOKEN_FILE})    paste the token, then press Ctrl-D\n\
         A running server reads {SERVER_TOKEN_FILE} within {} s. Without the new token a server goes on, but does not start \
         again and does not get new signing keys. Backups that were made before need the old token: make a new backup.",
        args.data_dir.join(SERVER_TOKEN_FILE).display(),
        CLUSTER_KEYS_CHECK_INTERVAL.as_secs()
    ));
    Ok(())
}

/// Creates a bootstrap token that expires after `ttl` and is valid for any node. Returns the token.
pub(crate) async fn create_bootstrap_token(
    client: &Client,
    ttl: Duration,
    description: &str,
) -> anyhow::Result<String> {
    create_token_for_node(client, ttl, description, "").await
}

/// Creates a bootstrap token that is valid for one node, or for any node if `node` is empty. Returns the token.
async fn create_token_for_node(
    client: &Client,
    ttl: Duration,
    description: &str,
    node: &str,
) -> anyhow::Result<String> {
    let (id, secret) = (random_token_part(6), random_token_part(16));
    let expires = Timestamp::now() + ttl;
    let mut object = json!({
        "metadata": {"name": format!("{SECRET_BOOTSTRAP_TOKEN_PREFIX}{id}"), "namespace": NAMESPACE_SYSTEM},
        "type": SECRET_TYPE_BOOTSTRAP_TOKEN,
        "stringData": {
            "token-id": id,
            "token-secret": secret,
            "expiration": Time::from(expires).to_rfc3339(),
            "usage-bootstrap-authentication": "true",
            "description": description,
        },
    });
    if !node.is_empty() {
        object["stringData"]["node"] = json!(node);
    }
    let object: Secret = serde_json::from_value(object).context("build the Secret")?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE_SYSTEM);
    secrets.create(&PostParams::default(), &object).await.context("store the token")?;
    Ok(format!("{id}.{secret}"))
}

/// Executes `muster token list`.
async fn list_tokens(args: ListTokensArgs) -> anyhow::Result<()> {
    let client = args.administrator.connect().await?.client;
    let secrets: Api<Secret> = Api::all(client);
    let mut rows = vec![["TOKEN", "KIND", "FOR", "EXPIRES", "DESCRIPTION"].map(str::to_owned)];
    for kind in [SECRET_TYPE_BOOTSTRAP_TOKEN, SECRET_TYPE_SERVICE_ACCOUNT_TOKEN] {
        let of_kind = ListParams::default().fields(&format!("type={kind}"));
        for secret in secrets.list(&of_kind).await.context("read the Secrets")?.items {
            let data = secret.data.clone().unwrap_or_default();
            let value = |name: &str| {
                let text = data.get(name).map(|it| String::from_utf8_lossy(&it.0).into_owned());
                text.filter(|it| !it.is_empty()).unwrap_or_else(|| "-".to_owned())
            };
            let (name, namespace) =
                (secret.metadata.name.unwrap_or_default(), secret.metadata.namespace.unwrap_or_default());
            rows.push(if kind == SECRET_TYPE_BOOTSTRAP_TOKEN {
                let node = data.get("node").map_or_else(|| "any node".to_owned(), |_| value("node"));
                [value("token-id"), "bootstrap".to_owned(), node, value("expiration"), value("description")]
            } else {
                let annotations = secret.metadata.annotations.unwrap_or_default();
                let account = annotations.get(ANNOTATION_SERVICE_ACCOUNT_NAME).cloned().unwrap_or_default();
                let account = format!("account {account}");
                [
                    format!("{namespace}/{name}"),
                    "service account".to_owned(),
                    account,
                    "-".to_owned(),
                    "-".to_owned(),
                ]
            });
        }
    }
    print_to_stdout(aligned_table(&rows));
    Ok(())
}

/// Executes `muster token revoke`.
async fn revoke_tokens(args: RevokeTokensArgs) -> anyhow::Result<()> {
    let client = args.administrator.connect().await?.client;
    for token in &args.tokens {
        let mut text = token.clone();
        if text == "-" {
            text.clear();
            std::io::stdin().take(64 << 10).read_to_string(&mut text).context("read the token")?;
        }
        match TokenReference::parse(text.trim())? {
            TokenReference::Bootstrap(id) => {
                delete_bootstrap_token(&client, &id).await?;
                print_to_stdout(format_args!("revoked bootstrap token {id}"));
            }
            TokenReference::Secret { namespace, name } => {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
                let secret = secrets
                    .get(&name)
                    .await
                    .with_context(|| format!("read the Secret {namespace}/{name}"))?;
                if secret.type_.as_deref() != Some(SECRET_TYPE_SERVICE_ACCOUNT_TOKEN) {
                    bail!("the Secret {namespace}/{name} holds no service account token");
                }
                // A finalizer may delay the deletion, and the server accepts tokens of a deleted object for another
                // minute.
                let uid = secret.metadata.uid.context("the Secret has no UID")?;
                let revoke = |not_after: &str| {
                    let subject = format!("Secret {namespace}/{name}");
                    let entry = revocation_entry(&subject, not_after);
                    add_to_revocation_list(&client, BTreeMap::from([(format!("secret.{uid}"), entry)]))
                };
                revoke("").await?;
                let of_uid =
                    DeleteParams { preconditions: Some(uid_precondition(&uid)), ..DeleteParams::default() };
                secrets.delete(&name, &of_uid).await.with_context(|| {
                    format!("the token is revoked, but the Secret {namespace}/{name} is not deleted")
                })?;
                // The deletion invalidates the token from now on, so the entry may expire.
                revoke(&Time::from(Timestamp::now()).to_rfc3339()).await?;
                print_to_stdout(format_args!("revoked the token of Secret {namespace}/{name}"));
            }
            TokenReference::Account { id, subject, not_after } => {
                let entry = revocation_entry(&subject, &not_after);
                add_to_revocation_list(&client, BTreeMap::from([(format!("token.{id}"), entry)])).await?;
                print_to_stdout(format_args!("revoked token {id} ({subject})"));
            }
        }
    }
    Ok(())
}

/// Returns a precondition for the deletion of an object: the object must still have this UID.
fn uid_precondition(uid: &str) -> Preconditions {
    Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() }
}

/// A reference to a token on the command line.
#[derive(Debug, PartialEq, Eq)]
enum TokenReference {
    /// The ID of a bootstrap token.
    Bootstrap(String),
    /// The Secret of a service account token.
    Secret { namespace: String, name: String },
    /// A service account token itself. The fields are its claims. The signature of the token is not verified.
    Account {
        /// Claim `jti`, the ID of the token.
        id: String,
        /// Claim `sub`, the name of the service account's user.
        subject: String,
        /// Claim `exp`, the time of expiry in RFC 3339. Empty if the token has no such claim.
        not_after: String,
    },
}

impl TokenReference {
    /// Parses an argument of `muster token revoke`: a bootstrap token or its ID, `NAMESPACE/NAME` of a Secret, or a
    /// service account token.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let is_id =
            |it: &str| it.len() == 6 && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        if let [_, claims, _] = parts[..] {
            let claims =
                BASE64URL.decode(claims).ok().and_then(|it| serde_json::from_slice::<Value>(&it).ok());
            let claims = claims.context("this is not a service account token")?;
            let id = claims["jti"].as_str().filter(|it| !it.is_empty()).context("the token has no ID")?;
            let not_after = claims["exp"].as_i64().and_then(|it| Timestamp::from_second(it).ok());
            return Ok(Self::Account {
                id: id.to_owned(),
                subject: claims["sub"].as_str().unwrap_or_default().to_owned(),
                not_after: not_after.map(|it| Time::from(it).to_rfc3339()).unwrap_or_default(),
            });
        }
        if let Some((namespace, name)) = text.split_once('/') {
            return Ok(Self::Secret { namespace: namespace.to_owned(), name: name.to_owned() });
        }
        match parts[..] {
            [id] | [id, _] if is_id(id) => Ok(Self::Bootstrap(id.to_owned())),
            _ => bail!(
                "give the ID of a bootstrap token, NAMESPACE/NAME of a Secret, or a service account token"
            ),
        }
    }
}

/// Deletes a bootstrap token. `token` is the token or its ID.
pub(crate) async fn delete_bootstrap_token(client: &Client, token: &str) -> anyhow::Result<()> {
    let (id, _) = token.split_once('.').unwrap_or((token, ""));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE_SYSTEM);
    let deleted =
        secrets.delete(&format!("{SECRET_BOOTSTRAP_TOKEN_PREFIX}{id}"), &DeleteParams::default()).await;
    deleted.map(drop).context("delete the bootstrap token")
}

/// Returns random characters for a bootstrap token. 16 characters have 76 bits of entropy.
fn random_token_part(length: usize) -> String {
    names::random_string(std::iter::repeat_with(|| Uuid::new_v4().into_bytes()), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_named_in_three_ways() {
        assert_eq!(TokenReference::parse("abcdef").unwrap(), TokenReference::Bootstrap("abcdef".to_owned()));
        assert_eq!(
            TokenReference::parse("abcdef.0123456789abcdef").unwrap(),
            TokenReference::Bootstrap("abcdef".to_owned())
        );
        let secret = TokenReference::Secret { namespace: "a".to_owned(), name: "b.c".to_owned() };
        assert_eq!(TokenReference::parse("a/b.c").unwrap(), secret);
        let claims = BASE64URL.encode(r#"{"jti":"7","sub":"system:serviceaccount:a:b","exp":0}"#);
        let account = TokenReference::Account {
            id: "7".to_owned(),
            subject: "system:serviceaccount:a:b".to_owned(),
            not_after: "1970-01-01T00:00:00Z".to_owned(),
        };
        assert_eq!(TokenReference::parse(&format!("h.{claims}.s")).unwrap(), account);
        for wrong in ["", "abc", "ABCDEF", "a.b.c", "a.b.c.d"] {
            assert!(TokenReference::parse(wrong).is_err(), "{wrong}");
        }
    }
}
