//! Tokens, bootstrap tokens and certificates on request.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use expect_test::expect;
use jiff::SignedDuration;
use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;
use crate::auth::{bootstrap_token, reviews, token_request};
use crate::controllers::{certificate_records, certificate_signing};
use crate::pki::tests::{Dir, signing_request, signing_request_for};
use crate::pki::{PeerCertificate, Pki};
use crate::registry::DeleteOptions;
use crate::request::{ClientCertificate, RequestTarget};
use crate::subresource::Subresource;
use crate::unstructured::is_set;

fn target(plural: &str, namespace: Option<&str>, name: &str) -> RequestTarget {
    let kind = Kind::find("", "v1", plural).unwrap();
    RequestTarget {
        kind,
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        subresource: Subresource::Whole,
    }
}

impl World {
    fn request_token(&self, account: &str, spec: Value) -> Result<Value, ApiError> {
        let context = RequestContext::for_server("create", self.now);
        let target = target("serviceaccounts", Some("default"), account);
        token_request::create_token(&self.registry.access, &context, &target, json!({"spec": spec}))
    }

    fn token(&self, account: &str, spec: Value) -> String {
        self.request_token(account, spec).unwrap()["status"]["token"].as_str().unwrap().to_owned()
    }

    fn whose(&self, token: &str, audience: &str, later_s: i64) -> String {
        let now = self.now + SignedDuration::from_secs(later_s);
        match token_user(&self.registry.access, token, &[audience], now) {
            Ok(user) => {
                let keys: Vec<_> = user.extra.keys().map(|it| it.rsplit('/').next().unwrap()).collect();
                format!("{} {:?} {keys:?}", user.name, user.groups)
            }
            Err(why) => why,
        }
    }

    /// A node's request to renew its client certificate, as it is stored.
    async fn renewal(&self, name: &str, node: &str) -> Value {
        let kind = Kind::find(
            crate::admission::certificate_approval::CERTIFICATES_GROUP,
            "v1",
            "certificatesigningrequests",
        )
        .unwrap();
        let user = format!("system:node:{node}");
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "request": signing_request(&user, "system:nodes"),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["client auth", "digital signature"],
            },
        });
        let context = RequestContext::new(
            User::new(user, ["system:nodes", "system:authenticated"]),
            "create",
            self.now,
        );
        unstructured::parse_stored(&self.registry.create(&context, kind, None, object).await.unwrap())
    }

    async fn delete(&self, target: &RequestTarget) {
        let context = RequestContext::for_server("delete", self.now);
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
        world.whose(&token, service_account_token::TOKEN_ISSUER, 0),
        world.whose(&token, service_account_token::TOKEN_ISSUER, 659),
        world.whose(&token, service_account_token::TOKEN_ISSUER, 661),
        world.whose(&token, service_account_token::TOKEN_ISSUER, -61),
        world.whose(&token, "vault", 0),
        world.whose(&other, service_account_token::TOKEN_ISSUER, 0),
        world.whose(&other, "vault", 0),
        world.whose(&forged, service_account_token::TOKEN_ISSUER, 0),
        world.whose("a.b.c", service_account_token::TOKEN_ISSUER, 0),
        world.whose("", service_account_token::TOKEN_ISSUER, 0),
    ];
    world.delete(&target("serviceaccounts", Some("default"), "bot")).await;
    said.push(world.whose(&token, service_account_token::TOKEN_ISSUER, 0));
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "bot"}})).await;
    let again = world.whose(&token, service_account_token::TOKEN_ISSUER, 0);
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
        world.whose(&token, service_account_token::TOKEN_ISSUER, 0),
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
    said.push(world.whose(&token, service_account_token::TOKEN_ISSUER, 0));
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
    let whose = |id: &str, secret: &str, later_s| {
        world.whose(&format!("{id}.{secret}"), service_account_token::TOKEN_ISSUER, later_s)
    };
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
    let context = RequestContext::new(someone("eve"), "create", world.now);
    let of_token = |token: &str| {
        let review = json!({"spec": {"token": token}});
        let review = reviews::review_token(&world.registry.access, &context, review).unwrap();
        let status = &review["status"];
        format!("{} {} {}", status["authenticated"], status["user"]["username"], status["audiences"])
    };
    let said = [
        of_token(&token),
        of_token("nonsense"),
        reviews::review_self(&context, json!({}))["status"].to_string(),
    ];
    expect![[r#"
        true "system:serviceaccount:default:bot" ["https://kubernetes.default.svc.cluster.local"]
        null null null
        {"userInfo":{"groups":["system:authenticated"],"username":"eve"}}"#]]
    .assert_eq(&said.join("\n"));
}

#[test]
fn a_certificate_is_no_longer_believed_when_it_has_ended() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "me");
    params.not_after = rcgen::date_time_ymd(2026, 1, 2);
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let peer = PeerCertificate::from_der(certificate.der()).unwrap();
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
    let target = RequestTarget { kind, namespace: None, name, subresource: Subresource::Approval };
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
    let context = RequestContext::for_server("update", world.now);
    let approved =
        unstructured::parse_stored(&world.registry.update(&context, &target, approve).await.unwrap());
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
        let context =
            RequestContext::new(User::new(user, [group, "system:authenticated"]), "create", world.now);
        if let Err(refusal) = world.registry.create(&context, kind, None, object).await {
            said.push(format!("{what}: {}", refusal.message()));
            continue;
        }
        let read = || unstructured::parse_stored(&world.registry.storage.find(kind, None, &name).unwrap());
        // Approved, signed, and then nothing more.
        for _ in 0..3 {
            certificate_signing::reconcile(
                &world.registry,
                &pki,
                certificate_signing::DEFAULT_LIFETIME,
                &read(),
                world.now,
            )
            .await
            .unwrap();
        }
        let object = read();
        let conditions: Vec<_> = unstructured::list_at(&object["status"], "conditions")
            .iter()
            .map(|it| format!("{} {}", it["type"], it["message"]))
            .collect();
        let certificate = BASE64.decode(str_at(&object, "status.certificate")).unwrap();
        let named = x509_parser::pem::parse_x509_pem(&certificate)
            .ok()
            .and_then(|(_, pem)| crate::pki::certificate_user(&pem.contents))
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

    let object = unstructured::parse_stored(&world.registry.storage.find(kind, None, "r0").unwrap());
    let later = world.now + SignedDuration::from_mins(61);
    certificate_signing::reconcile(
        &world.registry,
        &pki,
        certificate_signing::DEFAULT_LIFETIME,
        &object,
        later,
    )
    .await
    .unwrap();
    assert!(world.registry.storage.find(kind, None, "r0").is_none(), "what was decided is cleared away");
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
        let context =
            RequestContext::new(User::new(user, [group, "system:authenticated"]), "create", world.now);
        world.registry.create(&context, kind, None, object).await.unwrap();
        let read = || unstructured::parse_stored(&world.registry.storage.find(kind, None, &name).unwrap());
        for _ in 0..2 {
            certificate_signing::reconcile(
                &world.registry,
                &pki,
                certificate_signing::DEFAULT_LIFETIME,
                &read(),
                world.now,
            )
            .await
            .unwrap();
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

/// Neither the requester nor the request, its signer or its usages can be changed once it is made: what was approved is
/// what is signed.
#[tokio::test]
async fn a_signing_request_cannot_be_rewritten_after_it_was_made() {
    let world = World::new().await;
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let kind = Kind::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    let target = |subresource| RequestTarget { kind, namespace: None, name: "r".to_owned(), subresource };
    let request = json!({
        "metadata": {"name": "r"},
        "spec": {
            "request": signing_request("system:node:n1", "system:nodes"),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["client auth", "digital signature"],
        },
    });
    let eve = RequestContext::new(someone("eve"), "create", world.now);
    let made = unstructured::parse_stored(&world.registry.create(&eve, kind, None, request).await.unwrap());
    let rewritten = json!({
        "username": "system:bootstrap:abcdef",
        "groups": ["system:bootstrappers"],
        "request": signing_request("mallory", "system:masters"),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    });
    for subresource in [Subresource::Whole, Subresource::Status, Subresource::Approval] {
        let rewrite = |old: &Value| {
            let mut new = old.clone();
            merge_into(&mut new["spec"], &rewritten);
            Ok(new)
        };
        let server = RequestContext::for_server("update", world.now);
        let written = unstructured::parse_stored(
            &world.registry.update(&server, &target(subresource), rewrite).await.unwrap(),
        );
        assert_eq!(written["spec"], made["spec"], "{subresource:?}");
    }
    let stored =
        unstructured::parse_stored(&world.registry.storage.get(&target(Subresource::Whole)).unwrap());
    certificate_signing::reconcile(
        &world.registry,
        &pki,
        certificate_signing::DEFAULT_LIFETIME,
        &stored,
        world.now,
    )
    .await
    .unwrap();
    let stored =
        unstructured::parse_stored(&world.registry.storage.get(&target(Subresource::Whole)).unwrap());
    assert_eq!(stored["status"], json!({}), "eve has no right to a node's certificate");
}

fn merge_into(object: &mut Value, changes: &Value) {
    for (name, value) in changes.as_object().unwrap() {
        object[name] = value.clone();
    }
}

/// An older server let an approved request be rewritten: such a one is not signed.
#[tokio::test]
async fn an_approved_request_for_masters_or_with_other_usages_is_not_signed() {
    let world = World::new().await;
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let kind = Kind::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    let mut said = Vec::new();
    for (number, organization, usages) in [
        (0, "us", json!(["client auth"])),
        (1, "system:masters", json!(["client auth"])),
        (2, "us", json!(["server auth"])),
    ] {
        let name = format!("r{number}");
        // The signer is another one first, because a request for masters is refused when it is created.
        let request = json!({
            "metadata": {"name": name},
            "spec": {
                "request": signing_request("mallory", organization),
                "signerName": "example.com/signer",
                "usages": usages,
            },
        });
        let mut object = world.create("certificates.k8s.io", "certificatesigningrequests", "", request).await;
        object["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client");
        object["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
        let target = RequestTarget { kind, namespace: None, name, subresource: Subresource::Whole };
        // As it would be in the store: the write that notes the outcome keeps the stored conditions.
        let approve = |old: &Value| {
            let mut new = old.clone();
            new["status"] = object["status"].clone();
            Ok(new)
        };
        let approval = RequestTarget { subresource: Subresource::Approval, ..target.clone() };
        let context = RequestContext::for_server("update", world.now);
        let approved =
            unstructured::parse_stored(&world.registry.update(&context, &approval, approve).await.unwrap());
        object["metadata"] = approved["metadata"].clone();
        object["status"] = approved["status"].clone();
        certificate_signing::reconcile(
            &world.registry,
            &pki,
            certificate_signing::DEFAULT_LIFETIME,
            &object,
            world.now,
        )
        .await
        .unwrap();
        let stored = unstructured::parse_stored(&world.registry.storage.get(&target).unwrap());
        let failed =
            unstructured::list_at(&stored["status"], "conditions").iter().find(|it| it["type"] == "Failed");
        said.push(format!(
            "{} {}",
            is_set(&stored["status"]["certificate"]),
            failed.map_or("", |it| str_at(it, "message"))
        ));
    }
    expect![[r#"
        true 
        false use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed
        false invalid usage for client certificate: server auth"#]]
    .assert_eq(&said.join("\n"));
}

/// A bootstrap token gets no certificate for a node that is there and Ready, and none for another node than its own.
#[tokio::test]
async fn a_bootstrap_token_does_not_take_over_a_ready_node() {
    let world = World::new().await;
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let kind = Kind::find("certificates.k8s.io", "v1", "certificatesigningrequests").unwrap();
    let node = |name: &str, ready: &str| {
        json!({
            "metadata": {"name": name},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            },
        })
    };
    world.create("", "nodes", "", node("ready", "True")).await;
    world.create("", "nodes", "", node("unknown", "Unknown")).await;
    for (id, of) in [("aaaaaa", None), ("bbbbbb", Some("unknown"))] {
        let mut data = json!({
            "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        });
        if let Some(of) = of {
            data["node"] = json!(of);
        }
        let secret = json!({
            "metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": data,
        });
        world.create("", "secrets", "kube-system", secret).await;
    }
    let mut said = Vec::new();
    let cases = [
        ("aaaaaa", "ready"),
        ("aaaaaa", "unknown"),
        ("aaaaaa", "new"),
        ("aaaaaa", ""),
        ("aaaaaa", "No_Name"),
        ("bbbbbb", "unknown"),
        ("bbbbbb", "new"),
        ("node", "ready"),
    ];
    for (number, (who, name)) in cases.into_iter().enumerate() {
        let user = match who {
            "node" => User::new(format!("system:node:{name}"), ["system:nodes", "system:authenticated"]),
            id => bootstrap_token::bootstrap_token_user(
                &world.registry.access,
                &format!("{id}.0123456789abcdef"),
                world.now,
            )
            .unwrap(),
        };
        let object = json!({
            "metadata": {"name": format!("r{number}")},
            "spec": {
                "request": signing_request(&format!("system:node:{name}"), "system:nodes"),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["client auth", "digital signature"],
            },
        });
        let context = RequestContext::new(user, "create", world.now);
        let object = match world.registry.create(&context, kind, None, object).await {
            Ok(object) => unstructured::parse_stored(&object),
            Err(refusal) => {
                said.push(format!("{who} for {name:?}: {}", refusal.message()));
                continue;
            }
        };
        certificate_signing::reconcile(
            &world.registry,
            &pki,
            certificate_signing::DEFAULT_LIFETIME,
            &object,
            world.now,
        )
        .await
        .unwrap();
        let object = unstructured::parse_stored(
            &world.registry.storage.find(kind, None, &format!("r{number}")).unwrap(),
        );
        let condition = &object["status"]["conditions"][0];
        let is_signed = is_set(&object["status"]["certificate"]);
        let message = str_at(condition, "message").split(':').next().unwrap();
        said.push(format!(
            "{who} for {name:?}: {} {message} signed={is_signed}",
            str_at(condition, "reason")
        ));
    }
    expect![[r#"
        aaaaaa for "ready": NodeIsReady a Ready node "ready" already exists at 10.0.0.7 signed=false
        aaaaaa for "unknown": AutoApproved Auto approving kubelet client certificate after SubjectAccessReview. signed=true
        aaaaaa for "new": AutoApproved Auto approving kubelet client certificate after SubjectAccessReview. signed=true
        aaaaaa for "":   signed=false
        aaaaaa for "No_Name":   signed=false
        bbbbbb for "unknown": AutoApproved Auto approving kubelet client certificate after SubjectAccessReview. signed=true
        bbbbbb for "new": certificatesigningrequests.certificates.k8s.io "r6" is forbidden: this bootstrap token may not join node "new"
        node for "ready": AutoApproved Auto approving self kubelet client certificate after SubjectAccessReview. signed=true"#]]
    .assert_eq(&said.join("\n"));
}

/// A revoked certificate or token is refused with the next request, and so is one that lost what it is bound to.
#[tokio::test]
async fn a_revoked_credential_is_refused() {
    let world = World::new().await;
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "bot"}})).await;
    let [first, second] = [0, 1].map(|_| world.token("bot", json!({"expirationSeconds": 600})));
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "eve");
    params.serial_number = Some(vec![0, 0x4f, 0xa0].into());
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let eve = crate::pki::certificate_user(certificate.der()).unwrap();
    assert_eq!(&*eve.client_certificate.as_ref().unwrap().serial, "4fa0");
    let ask = |user: Option<&User>, token: &str| {
        let mut headers = HeaderMap::new();
        if !token.is_empty() {
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        match authenticate(&world.registry.access, user, &headers, world.now) {
            Ok(user) => user.name,
            Err(refusal) => refusal.code.as_str().to_owned(),
        }
    };
    let all = || [ask(Some(&eve), ""), ask(None, &first), ask(None, &second)];
    let bot = "system:serviceaccount:default:bot";
    assert_eq!(all(), ["eve", bot, bot]);

    let id = world.registry.access.tokens.verified_claims(&first).unwrap().id.clone();
    let revoked = json!({
        "metadata": {"name": "muster-revoked-credentials"},
        "data": {format!("token.{id}"): "{}", "certificate.4fa0": "{}"},
    });
    world.create("", "configmaps", "kube-system", revoked).await;
    assert_eq!(all(), ["401", "401", bot]);
    assert_eq!(world.whose(&first, service_account_token::TOKEN_ISSUER, 0), "the token has been revoked");
    world.delete(&target("configmaps", Some("kube-system"), "muster-revoked-credentials")).await;
    assert_eq!(all(), ["eve", bot, bot]);
    world.delete(&target("serviceaccounts", Some("default"), "bot")).await;
    assert_eq!(all(), ["eve", "401", "401"]);
}

/// The tokens of a Secret are revoked by its UID: a finalizer, which keeps a deleted Secret, does not keep them valid.
#[tokio::test]
async fn the_tokens_of_a_secret_are_revoked_with_it() {
    let world = World::new().await;
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "bot"}})).await;
    let secret = json!({"metadata": {"name": "s", "finalizers": ["example.com/kept"]}});
    let secret = world.create("", "secrets", "default", secret).await;
    let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": "s"});
    let [bound, free] = [json!({"boundObjectRef": bound}), json!({})].map(|it| world.token("bot", it));
    let is_valid = |token: &str| {
        world.whose(token, service_account_token::TOKEN_ISSUER, 0).starts_with("system:serviceaccount:")
    };
    world.delete(&target("secrets", Some("default"), "s")).await;
    assert!(is_valid(&bound), "within the leeway");
    let key = format!("secret.{}", str_at(&secret, "metadata.uid"));
    let revoked = json!({"metadata": {"name": "muster-revoked-credentials"}, "data": {key: "{}"}});
    world.create("", "configmaps", "kube-system", revoked).await;
    assert_eq!(world.whose(&bound, service_account_token::TOKEN_ISSUER, 0), "the token has been revoked");
    assert!(is_valid(&free));
}

/// One entry revokes all certificates of a user up to a time, recorded or not.
#[tokio::test]
async fn the_certificates_of_a_user_are_revoked_by_one_entry() {
    let world = World::new().await;
    let user = |name: &str, serial: &str, issued_s: i64| {
        let issued_at = world.now + SignedDuration::from_secs(issued_s);
        let mut user = someone(name);
        user.client_certificate = Some(ClientCertificate { serial: serial.into(), issued_at });
        user
    };
    let until = unstructured::format_time(world.now);
    let entry = json!({"subject": "system:node:evil", "kept": "7", "issuedUntil": until}).to_string();
    let revoked = json!({
        "metadata": {"name": "muster-revoked-credentials"},
        "data": {crate::revoked_subject_key("system:node:evil"): entry},
    });
    world.create("", "configmaps", "kube-system", revoked).await;
    let mut said = Vec::new();
    for (name, serial, issued_s) in [
        ("system:node:evil", "1", -1_000_000),
        ("system:node:evil", "2", 0),
        ("system:node:evil", "3", 1),
        ("system:node:evil", "7", -1),
        ("system:node:good", "4", -1),
    ] {
        let user = user(name, serial, issued_s);
        let answer = authenticate(&world.registry.access, Some(&user), &HeaderMap::new(), world.now);
        let code = answer.map_or_else(|it| it.code.as_str().to_owned(), |_| "ok".to_owned());
        said.push(format!("{name} {serial} {issued_s}: {code}"));
    }
    expect![[r#"
        system:node:evil 1 -1000000: 401
        system:node:evil 2 0: 401
        system:node:evil 3 1: ok
        system:node:evil 7 -1: ok
        system:node:good 4 -1: ok"#]]
    .assert_eq(&said.join("\n"));
}

/// The server dates an entry by its own clock when it is written, and not when it is written again.
#[tokio::test]
async fn a_revocation_of_a_user_is_dated_by_the_server() {
    let world = World::new().await;
    let key = crate::revoked_subject_key("eve");
    let object =
        |entry: &str| json!({"metadata": {"name": "muster-revoked-credentials"}, "data": {&key: entry}});
    let kind = Kind::find("", "v1", "configmaps").unwrap();
    let context = RequestContext::for_server("create", world.now);
    for wrong in ["", "eve", "{}", r#"{"subject":"adam"}"#] {
        let created = world.registry.create(&context, kind, Some("kube-system"), object(wrong)).await;
        assert_eq!(created.unwrap_err().code.as_u16(), 400, "{wrong:?}");
    }
    let before = jiff::Timestamp::now();
    let stored = world.create("", "configmaps", "kube-system", object(r#"{"subject":"eve"}"#)).await;
    let entry: Value = serde_json::from_str(stored["data"][&key].as_str().unwrap()).unwrap();
    let time = |field: &str| str_at(&entry, field).parse::<jiff::Timestamp>().unwrap();
    let issued_until = time("issuedUntil");
    assert!(before < issued_until, "a certificate of this moment is revoked: {entry}");
    // No certificate is valid for more than ten years.
    assert!(issued_until + SignedDuration::from_hours(24 * 3_652) < time("notAfter"), "{entry}");
    let target = target("configmaps", Some("kube-system"), "muster-revoked-credentials");
    let context = RequestContext::for_server("update", world.now);
    let again = world.registry.update(&context, &target, |it| Ok(it.clone())).await.unwrap();
    assert_eq!(unstructured::parse_stored(&again)["data"], stored["data"]);
}

/// However many certificates a node has itself issued, one small entry revokes them, and what it asked for before is not
/// signed afterwards.
#[tokio::test]
async fn a_node_cannot_outrun_its_revocation() {
    let world = World::new().await;
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let kind = Kind::find(
        crate::admission::certificate_approval::CERTIFICATES_GROUP,
        "v1",
        "certificatesigningrequests",
    )
    .unwrap();
    let signed_in = |object: &Value| {
        let certificate = BASE64.decode(str_at(object, "status.certificate")).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(&certificate).unwrap();
        crate::pki::certificate_user(&pem.contents).unwrap()
    };
    let mut held = Vec::new();
    for number in 0..5 {
        let pending = world.renewal(&format!("r{number}"), "evil").await;
        certificate_signing::reconcile(
            &world.registry,
            &pki,
            certificate_signing::DEFAULT_LIFETIME,
            &pending,
            world.now,
        )
        .await
        .unwrap();
        held.push(signed_in(&unstructured::parse_stored(
            &world.registry.storage.find(kind, None, &format!("r{number}")).unwrap(),
        )));
    }
    let whoami =
        |user: &User| authenticate(&world.registry.access, Some(user), &HeaderMap::new(), world.now).is_ok();
    assert!(held.iter().all(whoami));
    let pending = world.renewal("pending", "evil").await;

    let until = unstructured::format_time(world.now + SignedDuration::from_secs(5));
    let entry = json!({"subject": "system:node:evil", "issuedUntil": until}).to_string();
    let revoked = json!({
        "metadata": {"name": "muster-revoked-credentials"},
        "data": {crate::revoked_subject_key("system:node:evil"): entry},
    });
    world.create("", "configmaps", "kube-system", revoked).await;
    assert!(!held.iter().any(whoami));
    let later = world.now + SignedDuration::from_secs(60);
    certificate_signing::reconcile(
        &world.registry,
        &pki,
        certificate_signing::DEFAULT_LIFETIME,
        &pending,
        later,
    )
    .await
    .unwrap();
    let refused = unstructured::parse_stored(&world.registry.storage.find(kind, None, "pending").unwrap());
    assert!(!is_set(&refused["status"]["certificate"]));
    expect![[r#"certificates and signing requests of "system:node:evil" up to 2026-01-01T00:00:05Z are revoked: create a new request"#]]
        .assert_eq(str_at(&refused["status"]["conditions"][1], "message"));

    // A node that joins again under this name gets a certificate that is good, although it is valid from before.
    let world = World { now: later, ..world };
    let pending = world.renewal("again", "evil").await;
    certificate_signing::reconcile(
        &world.registry,
        &pki,
        certificate_signing::DEFAULT_LIFETIME,
        &pending,
        later,
    )
    .await
    .unwrap();
    let again =
        signed_in(&unstructured::parse_stored(&world.registry.storage.find(kind, None, "again").unwrap()));
    assert!(authenticate(&world.registry.access, Some(&again), &HeaderMap::new(), later).is_ok());
}

/// Each client certificate that leaves the server is known by its serial number.
#[test]
fn issued_certificates_are_noted() {
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    assert!(pki.take_issued().is_empty());
    pki.kubeconfig("https://localhost", crate::BuiltinUser::Admin).unwrap();
    let [one] = &pki.take_issued()[..] else { panic!("one was issued") };
    assert_eq!(
        (one.subject.as_str(), &one.groups[..]),
        ("kubernetes-admin", &["system:masters".to_owned()][..])
    );
    assert!(one.serial.len() > 16 && one.serial.bytes().all(|it| it.is_ascii_hexdigit()), "{}", one.serial);
}

/// A request is signed and recorded once, also if its approval is looked at again after it was signed.
#[tokio::test]
async fn a_signing_request_is_signed_and_recorded_once() {
    let world = World::new().await;
    let dir = Dir::new();
    let pki = Pki::open(&dir.0).unwrap();
    let kind = Kind::find(
        crate::admission::certificate_approval::CERTIFICATES_GROUP,
        "v1",
        "certificatesigningrequests",
    )
    .unwrap();
    let pending = world.renewal("r", "n1").await;
    certificate_signing::reconcile(
        &world.registry,
        &pki,
        certificate_signing::DEFAULT_LIFETIME,
        &pending,
        world.now,
    )
    .await
    .unwrap();
    let signed = unstructured::parse_stored(&world.registry.storage.find(kind, None, "r").unwrap());
    assert!(is_set(&signed["status"]["certificate"]));
    let mut approved = signed.clone();
    approved["status"].as_object_mut().unwrap().remove("certificate");
    for version in ["1", str_at(&pending, "metadata.resourceVersion")] {
        approved["metadata"]["resourceVersion"] = json!(version);
        certificate_signing::reconcile(
            &world.registry,
            &pki,
            certificate_signing::DEFAULT_LIFETIME,
            &approved,
            world.now,
        )
        .await
        .unwrap();
    }
    assert_eq!(pki.take_issued().len(), 1);
    assert_eq!(unstructured::parse_stored(&world.registry.storage.find(kind, None, "r").unwrap()), signed);
}

/// The records of credentials are for administrators alone to write, whatever roles others have.
#[tokio::test]
async fn records_of_credentials_are_written_by_masters_alone() {
    let world = World::new().await;
    let kind = Kind::find("", "v1", "configmaps").unwrap();
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    world.bind("all", "", everything, json!({"kind": "User", "name": "eve"})).await;
    let context = RequestContext::new(someone("eve"), "create", world.now);
    for (name, is_allowed) in
        [("muster-revoked-credentials", false), ("muster-issued-certificates-0", false), ("other", true)]
    {
        let object = json!({"metadata": {"name": name}});
        let created = world.registry.create(&context, kind, Some("kube-system"), object.clone()).await;
        assert_eq!(created.is_ok(), is_allowed, "{name}");
        let elsewhere = world.registry.create(&context, kind, Some("default"), object).await;
        assert!(elsewhere.is_ok(), "{name}");
    }
    let issued = crate::pki::IssuedCertificate {
        serial: "4f".to_owned(),
        subject: "me".to_owned(),
        groups: Vec::new(),
        issued_at: world.now,
        not_after: world.now + SignedDuration::from_secs(60),
    };
    certificate_records::record_issued(&world.registry, std::slice::from_ref(&issued), world.now)
        .await
        .unwrap();
    let again = crate::pki::IssuedCertificate { serial: "50".to_owned(), ..issued };
    // The first has expired by then.
    certificate_records::record_issued(&world.registry, &[again], world.now + SignedDuration::from_secs(61))
        .await
        .unwrap();
    let stored =
        world.registry.storage.find(kind, Some("kube-system"), "muster-issued-certificates-0").unwrap();
    let data = unstructured::parse_stored(&stored)["data"].clone();
    assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), ["50"]);
}

#[tokio::test]
async fn a_token_that_is_bound_to_nothing_lives_a_day() {
    let world = World::new().await;
    world.create("", "serviceaccounts", "default", json!({"metadata": {"name": "bot"}})).await;
    let secret = json!({"metadata": {"name": "s"}});
    world.create("", "secrets", "default", secret).await;
    let seconds = |spec: Value| {
        world.request_token("bot", spec).unwrap()["spec"]["expirationSeconds"].as_i64().unwrap()
    };
    let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": "s"});
    assert_eq!(seconds(json!({"expirationSeconds": 1_i64 << 32})), 86_400);
    assert_eq!(seconds(json!({"expirationSeconds": 700_000, "boundObjectRef": bound})), 700_000);
    world.registry.access.tokens.set_max_lifetime(std::time::Duration::from_secs(3_600));
    assert_eq!(seconds(json!({"expirationSeconds": 700_000, "boundObjectRef": bound})), 3_600);
    assert_eq!(seconds(json!({"expirationSeconds": 600})), 600);
}
