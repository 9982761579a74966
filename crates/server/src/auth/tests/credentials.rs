//! Tokens, bootstrap tokens and certificates on request.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use expect_test::expect;
use jiff::SignedDuration;
use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;
use crate::auth::{csr, review, token_request};
use crate::object::is_set;
use crate::pki::Pki;
use crate::pki::tests::Dir;
use crate::registry::DeleteOptions;
use crate::route::{Part, Target};

fn target(plural: &str, namespace: Option<&str>, name: &str) -> Target {
    let kind = Kind::find("", "v1", plural).unwrap();
    Target { kind, namespace: namespace.map(str::to_owned), name: name.to_owned(), part: Part::Whole }
}

impl World {
    fn request_token(&self, account: &str, spec: Value) -> Result<Value, Refusal> {
        let context = Context::of_server("create", self.now);
        let target = target("serviceaccounts", Some("default"), account);
        token_request::answer(&self.registry, &context, &target, json!({"spec": spec}))
    }

    fn token(&self, account: &str, spec: Value) -> String {
        self.request_token(account, spec).unwrap()["status"]["token"].as_str().unwrap().to_owned()
    }

    fn whose(&self, token: &str, audience: &str, later_s: i64) -> String {
        let now = self.now + SignedDuration::from_secs(later_s);
        match user_of_token(&self.registry, token, &[audience], now) {
            Ok(user) => {
                let keys: Vec<_> = user.extra.keys().map(|it| it.rsplit('/').next().unwrap()).collect();
                format!("{} {:?} {keys:?}", user.name, user.groups)
            }
            Err(why) => why,
        }
    }

    async fn delete(&self, target: &Target) {
        let context = Context::of_server("delete", self.now);
        let options = DeleteOptions { grace_s: Some(0), ..DeleteOptions::default() };
        self.registry.delete(&context, target, &options).await.unwrap();
    }
}

#[tokio::test]
async fn a_token_is_good_for_its_time_and_audience_and_while_its_account_lives() {
    let world = World::new().await;
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "bot"}})).await;
    let token = world.token("bot", json!({"expirationSeconds": 600}));
    let other = world.token("bot", json!({"audiences": ["vault"]}));
    let at = token.len() - 10;
    let letter = if &token[at..=at] == "A" { "B" } else { "A" };
    let forged = format!("{}{letter}{}", &token[..at], &token[at + 1..]);
    let mut said = vec![
        world.whose(&token, token::ISSUER, 0),
        world.whose(&token, token::ISSUER, 659),
        world.whose(&token, token::ISSUER, 661),
        world.whose(&token, token::ISSUER, -61),
        world.whose(&token, "vault", 0),
        world.whose(&other, token::ISSUER, 0),
        world.whose(&other, "vault", 0),
        world.whose(&forged, token::ISSUER, 0),
        world.whose("a.b.c", token::ISSUER, 0),
        world.whose("", token::ISSUER, 0),
    ];
    world.delete(&target("serviceaccounts", Some("default"), "bot")).await;
    said.push(world.whose(&token, token::ISSUER, 0));
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "bot"}})).await;
    let again = world.whose(&token, token::ISSUER, 0);
    said.push(again.split(" (").next().unwrap().to_owned());
    expect![[r#"
        system:serviceaccount:default:bot ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"] ["credential-id"]
        system:serviceaccount:default:bot ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"] ["credential-id"]
        service account token has expired
        service account token is not valid yet
        token audiences ["https://kubernetes.default.svc.cluster.local"] is invalid for the target audiences ["vault"]
        token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc.cluster.local"]
        system:serviceaccount:default:bot ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"] ["credential-id"]
        invalid bearer token
        invalid bearer token
        invalid bearer token
        service account token has been invalidated
        serviceaccount UID"#]].assert_eq(&said.join("\n"));
}

#[tokio::test]
async fn a_token_that_is_bound_to_a_pod_goes_with_it() {
    let world = World::new().await;
    for name in ["bot", "other"] {
        world.create("", "serviceaccounts", "default", json!({"metadata": {"name": name}})).await;
    }
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "bot", "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    world.create("", "pods", "default", pod).await;
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
    let token = world.token("bot", bound.clone());
    let refused =
        |account: &str, spec: Value| world.request_token(account, spec).unwrap_err().message().to_owned();
    let mut said = vec![
        world.whose(&token, token::ISSUER, 0),
        refused("other", bound),
        refused("bot", json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "q"}})),
        refused(
            "bot",
            json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "x"}}),
        )
        .split(" (x)")
        .next()
        .unwrap()
        .to_owned(),
        refused("bot", json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Service", "name": "p"}})),
        refused("bot", json!({"expirationSeconds": 599})),
        refused("nobody", json!({})),
    ];
    world.delete(&target("pods", Some("default"), "p")).await;
    said.push(world.whose(&token, token::ISSUER, 0));
    expect![[r#"
        system:serviceaccount:default:bot ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"] ["credential-id", "node-name", "pod-name", "pod-uid"]
        cannot bind token for serviceaccount "other" to pod running with different serviceaccount name.
        pods "q" not found
        Operation cannot be fulfilled on Pod "p": the UID in the bound object reference
        cannot bind token to object of type v1, Kind=Service
        TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes
        serviceaccounts "nobody" not found
        service account token has been invalidated"#]].assert_eq(&said.join("\n"));
}

#[tokio::test]
async fn bootstrap_tokens() {
    let world = World::new().await;
    let secret = |id: &str, change: &[(&str, &str)]| {
        let mut data = json!({
            "token-id": id,
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "expiration": "2026-01-01T00:10:00Z",
        });
        for (name, value) in change {
            data[*name] = json!(value);
        }
        for (_, value) in data.as_object_mut().unwrap() {
            *value = json!(BASE64.encode(value.as_str().unwrap()));
        }
        let name = format!("bootstrap-token-{id}");
        json!({"metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token", "data": data})
    };
    let secrets = [
        secret("plain1", &[]),
        secret("groups", &[("auth-extra-groups", "system:bootstrappers:rack7")]),
        secret("master", &[("auth-extra-groups", "system:masters")]),
        secret("unused", &[("usage-bootstrap-authentication", "false")]),
    ];
    for secret in secrets {
        world.create("", "secrets", "kube-system", secret).await;
    }
    let whose =
        |id: &str, secret: &str, later_s| world.whose(&format!("{id}.{secret}"), token::ISSUER, later_s);
    let said = [
        whose("plain1", "0123456789abcdef", 0),
        whose("plain1", "0123456789abcdef", 601),
        whose("plain1", "0123456789abcdeX", 0),
        whose("plain1", "0123456789abcde0", 0),
        whose("groups", "0123456789abcdef", 0),
        whose("master", "0123456789abcdef", 0),
        whose("unused", "0123456789abcdef", 0),
        whose("nobody", "0123456789abcdef", 0),
    ];
    expect![[r#"
        system:bootstrap:plain1 ["system:bootstrappers", "system:authenticated"] []
        invalid bearer token
        invalid bearer token
        invalid bearer token
        system:bootstrap:groups ["system:bootstrappers", "system:bootstrappers:rack7", "system:authenticated"] []
        invalid bearer token
        invalid bearer token
        invalid bearer token"#]].assert_eq(&said.join("\n"));
}

#[tokio::test]
async fn reviews_of_tokens_and_of_oneself() {
    let world = World::new().await;
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "bot"}})).await;
    let token = world.token("bot", json!({}));
    let context = Context::new(someone("eve"), "create", world.now);
    let of_token = |token: &str| {
        let review = json!({"spec": {"token": token}});
        let review = review::of_token(&world.registry, &context, review).unwrap();
        let status = &review["status"];
        format!("{} {} {}", status["authenticated"], status["user"]["username"], status["audiences"])
    };
    let said =
        [of_token(&token), of_token("nonsense"), review::of_self(&context, json!({}))["status"].to_string()];
    expect![[r#"
        true "system:serviceaccount:default:bot" ["https://kubernetes.default.svc.cluster.local"]
        null null null
        {"userInfo":{"groups":["system:authenticated"],"username":"eve"}}"#]]
    .assert_eq(&said.join("\n"));
}

fn signing_request(common_name: &str, organization: &str) -> String {
    signing_request_for(common_name, organization, &[])
}

fn signing_request_for(common_name: &str, organization: &str, names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|it| (*it).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, common_name);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    BASE64.encode(pem)
}

#[test]
fn a_certificate_is_no_longer_believed_when_it_has_ended() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "me");
    params.not_after = rcgen::date_time_ymd(2026, 1, 2);
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let peer = Peer::of(certificate.der()).unwrap();
    let name = |at: &str| peer.user(at.parse().unwrap()).map(|it| it.name.as_str());
    assert_eq!((name("2026-01-02T00:00:00Z"), name("2026-01-02T00:00:01Z")), (Some("me"), None));
}

#[tokio::test]
async fn who_approves_may_annotate_but_not_change_what_is_asked_for() {
    let world = World::new().await;
    let kind = Kind::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    let request = json!({
        "metadata": {"name": "r"},
        "spec": {
            "request": signing_request("me", "us"),
            "signerName": "example.com/signer",
            "usages": ["client auth"],
        },
    });
    world.create("certificates.k8s.io", "certificatesigningrequests", "", request).await;
    let name = "r".to_owned();
    let target = Target { kind, namespace: None, name, part: Part::Approval };
    let approve = |old: &Value| {
        let mut new = old.clone();
        new["metadata"]["annotations"] = json!({"why": "known"});
        new["spec"]["signerName"] = json!("example.com/other");
        new["status"] = json!({
            "conditions": [{"type": "Approved", "status": "True", "reason": "Known"}],
            "certificate": "bm9uZQ==",
        });
        Ok(new)
    };
    let context = Context::of_server("update", world.now);
    let approved = object::parse(&world.registry.update(&context, &target, approve).await.unwrap());
    let condition = &approved["status"]["conditions"][0]["type"];
    let seen = [&approved["metadata"]["annotations"], &approved["spec"]["signerName"], condition];
    assert_eq!(seen, [&json!({"why": "known"}), &json!("example.com/signer"), &json!("Approved")]);
    assert_eq!(approved["status"]["certificate"], Value::Null);
}

/// What becomes of a request by itself: its conditions, and whom its certificate names.
#[tokio::test]
async fn certificates_on_request() {
    let world = World::new().await;
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let kind = Kind::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    let mut said = Vec::new();
    let cases = [
        ("a new node", "system:bootstrap:abcdef", "system:bootstrappers", "system:node:n1", "system:nodes"),
        ("a node, for itself", "system:node:n1", "system:nodes", "system:node:n1", "system:nodes"),
        ("a node, for another", "system:node:n1", "system:nodes", "system:node:n2", "system:nodes"),
        ("a user, for a node", "eve", "dev", "system:node:n1", "system:nodes"),
        (
            "a new node, for a master",
            "system:bootstrap:abcdef",
            "system:bootstrappers",
            "me",
            "system:masters",
        ),
    ];
    for (number, (what, user, group, common_name, organization)) in cases.into_iter().enumerate() {
        let name = format!("r{number}");
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "request": signing_request(common_name, organization),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["client auth", "digital signature"],
                "expirationSeconds": 3600,
            },
        });
        let context = Context::new(User::new(user, [group, "system:authenticated"]), "create", world.now);
        if let Err(refusal) = world.registry.create(&context, kind, None, object).await {
            said.push(format!("{what}: {}", refusal.message()));
            continue;
        }
        let read = || object::parse(&world.registry.peek(kind, None, &name).unwrap());
        // Approved, signed, and then nothing more.
        for _ in 0..3 {
            csr::step(&world.registry, &pki, csr::LIFE, &read(), world.now).await.unwrap();
        }
        let object = read();
        let conditions: Vec<_> = object::list(&object["status"], "conditions")
            .iter()
            .map(|it| format!("{} {}", it["type"], it["message"]))
            .collect();
        let certificate = BASE64.decode(str_at(&object, "status.certificate")).unwrap();
        let named = x509_parser::pem::parse_x509_pem(&certificate)
            .ok()
            .and_then(|(_, pem)| crate::auth::certificate::user(&pem.contents))
            .map_or_else(|| "none".to_owned(), |it| format!("{} {:?}", it.name, it.groups));
        said.push(format!("{what}: {conditions:?} {named}"));
    }
    expect![[r#"
        a new node: ["\"Approved\" \"Auto approving kubelet client certificate after SubjectAccessReview.\""] system:node:n1 ["system:nodes", "system:authenticated"]
        a node, for itself: ["\"Approved\" \"Auto approving self kubelet client certificate after SubjectAccessReview.\""] system:node:n1 ["system:nodes", "system:authenticated"]
        a node, for another: certificatesigningrequests.certificates.k8s.io "r2" is forbidden: can only create a node CSR with CN=system:node:n1
        a user, for a node: [] none
        a new node, for a master: [] none"#]]
    .assert_eq(&said.join("\n"));

    let object = object::parse(&world.registry.peek(kind, None, "r0").unwrap());
    let later = world.now + SignedDuration::from_mins(61);
    csr::step(&world.registry, &pki, csr::LIFE, &object, later).await.unwrap();
    assert!(world.registry.peek(kind, None, "r0").is_none(), "what was decided is cleared away");
}

/// What a node serves with names it, and what nobody else has.
#[tokio::test]
async fn serving_certificates_on_request() {
    let world = World::new().await;
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let kind = Kind::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    for (name, addresses) in [("n1", vec!["10.0.0.1", "10.0.0.9"]), ("n2", vec!["10.0.0.2", "10.0.0.9"])] {
        let addresses = addresses.iter().map(|it| json!({"type": "InternalIP", "address": it}));
        let addresses: Vec<_> = addresses.chain([json!({"type": "Hostname", "address": "else"})]).collect();
        let node = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        world.create("", "nodes", "", node).await;
    }
    let node = ("system:node:n1", "system:nodes");
    let cases: [(&str, (&str, &str), &[&str]); 6] = [
        ("its name and address", node, &["n1", "10.0.0.1"]),
        ("another's name", node, &["n2", "10.0.0.1"]),
        ("what it says its name is", node, &["else"]),
        ("another's address", node, &["n1", "10.0.0.2"]),
        ("an address that another claims too", node, &["n1", "10.0.0.9"]),
        ("a user", ("eve", "dev"), &["n1", "10.0.0.1"]),
    ];
    let mut said = Vec::new();
    for (number, (what, (user, group), names)) in cases.into_iter().enumerate() {
        let name = format!("r{number}");
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "request": signing_request_for("system:node:n1", "system:nodes", names),
                "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["server auth", "digital signature"],
            },
        });
        let context = Context::new(User::new(user, [group, "system:authenticated"]), "create", world.now);
        world.registry.create(&context, kind, None, object).await.unwrap();
        let read = || object::parse(&world.registry.peek(kind, None, &name).unwrap());
        for _ in 0..2 {
            csr::step(&world.registry, &pki, csr::LIFE, &read(), world.now).await.unwrap();
        }
        let is_signed = is_set(&read()["status"]["certificate"]);
        said.push(format!("{what}: {}", if is_signed { "signed" } else { "waits" }));
    }
    expect![[r#"
        its name and address: signed
        another's name: waits
        what it says its name is: waits
        another's address: waits
        an address that another claims too: waits
        a user: waits"#]]
    .assert_eq(&said.join("\n"));
}
