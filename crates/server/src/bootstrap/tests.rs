use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};

use super::*;
use crate::auth::TOKEN_ISSUER;
use crate::registry::DeleteOptions;

struct World {
    registry: Arc<Registry>,
    stop: CancellationToken,
}

impl World {
    fn new() -> Self {
        let registry = Arc::new(Registry::new(10_000));
        let stop = CancellationToken::new();
        tokio::spawn(run(
            registry.clone(),
            ServerIdentity::for_test(),
            ApiEndpoints::Fixed(BTreeSet::new()),
            stop.clone(),
        ));
        Self { registry, stop }
    }

    async fn create(&self, plural: &str, namespace: Option<&str>, object: Value) {
        let context = RequestContext::for_server("create", Timestamp::now());
        self.registry.create(&context, Kind::builtin("", "v1", plural), namespace, object).await.unwrap();
    }

    async fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let context = RequestContext::for_server("delete", Timestamp::now());
        let target = target(plural, namespace, name);
        self.registry.delete(&context, &target, &DeleteOptions::default()).await.unwrap();
    }

    async fn change(&self, plural: &str, namespace: &str, name: &str, change: fn(&mut Value)) {
        let context = RequestContext::for_server("update", Timestamp::now());
        let update = |old: &Value| {
            let mut new = old.clone();
            change(&mut new);
            Ok(new)
        };
        self.registry.update(&context, &target(plural, namespace, name), update).await.unwrap();
    }

    fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.registry
            .storage
            .find(Kind::builtin("", "v1", plural), Some(namespace), name)
            .map(|it| unstructured::parse_stored(&it))
    }

    /// Waits until the object is as it should be, however long that takes on this machine.
    async fn until(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        is: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        for _ in 0..12_000 {
            let found = self.get(plural, namespace, name);
            if is(found.as_ref()) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{plural} {namespace}/{name}: {:?}", self.get(plural, namespace, name));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn target(plural: &str, namespace: &str, name: &str) -> RequestTarget {
    RequestTarget {
        kind: Kind::builtin("", "v1", plural),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        subresource: Subresource::Whole,
    }
}

#[tokio::test]
async fn a_namespace_has_an_account_and_a_certificate_and_gets_them_back() {
    let world = World::new();
    world.create("namespaces", None, json!({"metadata": {"name": "a"}})).await;
    let is_there = |it: Option<&Value>| it.is_some();
    let first = world.until("serviceaccounts", "a", DEFAULT_ACCOUNT, is_there).await.unwrap();
    let is_ours = |it: Option<&Value>| it.is_some_and(|it| it["data"] == json!({"ca.crt": "a certificate"}));
    world.until("configmaps", "a", CA_CONFIG_MAP, is_ours).await;

    world.delete("serviceaccounts", "a", DEFAULT_ACCOUNT).await;
    let is_another =
        |it: Option<&Value>| it.is_some_and(|it| it["metadata"]["uid"] != first["metadata"]["uid"]);
    world.until("serviceaccounts", "a", DEFAULT_ACCOUNT, is_another).await;
    world
        .change("configmaps", "a", CA_CONFIG_MAP, |it| it["data"] = json!({"ca.crt": "forged", "b": "c"}))
        .await;
    world.until("configmaps", "a", CA_CONFIG_MAP, is_ours).await;
    world.delete("configmaps", "a", CA_CONFIG_MAP).await;
    world.until("configmaps", "a", CA_CONFIG_MAP, is_ours).await;
}

#[tokio::test]
async fn a_secret_for_a_token_is_filled_in_and_goes_with_its_account() {
    let world = World::new();
    // For requested tokens only.
    world.registry.access.tokens.set_max_lifetime(Duration::from_secs(3600));
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token",
        })
    };
    world.create("namespaces", None, json!({"metadata": {"name": "a"}})).await;
    world.create("serviceaccounts", Some("a"), json!({"metadata": {"name": "robot"}})).await;
    world.create("secrets", Some("a"), secret("robot-token", "robot")).await;
    let is_filled = |it: Option<&Value>| it.is_some_and(|it| is_set(&it["data"]["token"]));
    let filled = world.until("secrets", "a", "robot-token", is_filled).await.unwrap();
    let account = world.get("serviceaccounts", "a", "robot").unwrap();
    let annotations = &filled["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/service-account.uid"], account["metadata"]["uid"]);
    let read = |key: &str| {
        let bytes = BASE64.decode(filled["data"][key].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!((read("namespace").as_str(), read("ca.crt").as_str()), ("a", "a certificate"));
    let claims = world.registry.access.tokens.verified_claims(&read("token")).unwrap();
    let user = |now: Timestamp| {
        claims.authenticated_user(&world.registry.access, &[TOKEN_ISSUER], now).map(|it| it.name)
    };
    assert_eq!(user(Timestamp::now()), Ok("system:serviceaccount:a:robot".to_owned()));
    let years_later = Timestamp::now() + jiff::SignedDuration::from_hours(50 * 365 * 24);
    assert_eq!(user(years_later), Ok("system:serviceaccount:a:robot".to_owned()));

    // A token that is taken out is replaced; what others wrote beside it stays.
    world
        .change("secrets", "a", "robot-token", |it| {
            it["data"]["token"] = json!("");
            it["data"]["more"] = json!("eA==");
        })
        .await;
    let refilled = world
        .until("secrets", "a", "robot-token", |it| {
            is_filled(it) && it.is_some_and(|it| it["data"]["token"] != "")
        })
        .await
        .unwrap();
    assert_ne!(refilled["data"]["token"], filled["data"]["token"]);
    assert_eq!(refilled["data"]["more"], "eA==");

    // There is no such account, or no longer.
    world.create("secrets", Some("a"), secret("nobodys-token", "nobody")).await;
    world.until("secrets", "a", "nobodys-token", |it| it.is_none()).await;
    world.delete("serviceaccounts", "a", "robot").await;
    world.until("secrets", "a", "robot-token", |it| it.is_none()).await;
    assert_eq!(user(Timestamp::now()), Err("service account token has been invalidated".to_owned()));
}

#[tokio::test]
async fn the_services_of_dns_and_of_the_server_come_back_when_they_are_deleted() {
    let registry = Arc::new(Registry::new(10_000));
    let server = ServerIdentity::for_test();
    ensure_bootstrap_objects(&registry, &server, Some(&BTreeSet::new()), Timestamp::now()).await.unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(run(registry.clone(), server, ApiEndpoints::Fixed(BTreeSet::new()), stop.clone()));
    let world = World { registry, stop };
    // It looks from the moment on at which it first runs.
    tokio::task::yield_now().await;
    for (namespace, name) in [("kube-system", "kube-dns"), ("default", "kubernetes")] {
        let before = world.get("services", namespace, name).unwrap();
        world.delete("services", namespace, name).await;
        let is_another =
            |it: Option<&Value>| it.is_some_and(|it| it["metadata"]["uid"] != before["metadata"]["uid"]);
        let after = world.until("services", namespace, name, is_another).await.unwrap();
        assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    }
}

#[tokio::test]
async fn the_endpoints_follow_the_servers() {
    let registry = Arc::new(Registry::new(10_000));
    let server = ServerIdentity::for_test();
    ensure_bootstrap_objects(&registry, &server, None, Timestamp::now()).await.unwrap();
    let world = World { registry: registry.clone(), stop: CancellationToken::new() };
    assert_eq!(world.get("endpoints", "default", "kubernetes"), None, "another server may have written them");
    let servers = |them: &[&str]| them.iter().map(|it| it.parse().unwrap()).collect::<BTreeSet<SocketAddr>>();
    let (sender, endpoints) = watch::channel(None);
    tokio::spawn(run(registry.clone(), server, ApiEndpoints::Watched(endpoints), world.stop.clone()));
    let slices = || {
        let kind = Kind::builtin("discovery.k8s.io", "v1", "endpointslices");
        let (slices, _) = registry.storage.list(kind, Some("default"), &ObjectSelector::default());
        let slices = slices.iter().map(|it| unstructured::parse_stored(it));
        let describe = |it: Value| {
            let (name, family) = (str_at(&it, "metadata.name"), str_at(&it, "addressType"));
            format!(
                "{name} {family} {} {}",
                it["ports"][0]["port"],
                it["endpoints"].as_array().unwrap().len()
            )
        };
        slices.map(describe).collect::<Vec<_>>()
    };
    let until = async |expected: &[&str]| {
        for _ in 0..12_000 {
            if slices() == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?} instead of {expected:?}", slices());
    };
    let is_there = |it: Option<&Value>| it.is_some();
    world.until("services", "kube-system", "kube-dns", is_there).await;
    assert_eq!(slices(), Vec::<String>::new(), "the servers are not known yet");
    sender.send(Some(servers(&["10.0.0.1:6443", "10.0.0.2:6444"]))).unwrap();
    until(&["kubernetes IPv4 6443 1", "kubernetes-ipv4-6444 IPv4 6444 1"]).await;
    sender.send(Some(servers(&["10.0.0.1:6443", "10.0.0.3:6443"]))).unwrap();
    until(&["kubernetes IPv4 6443 2"]).await;
    // The address type of an EndpointSlice cannot be updated.
    sender.send(Some(servers(&["[fd00::1]:6443"]))).unwrap();
    until(&["kubernetes IPv6 6443 1"]).await;
    let has_one =
        |it: Option<&Value>| it.is_some_and(|it| it["subsets"][0]["addresses"][0]["ip"] == "fd00::1");
    world.until("endpoints", "default", "kubernetes", has_one).await;
}
