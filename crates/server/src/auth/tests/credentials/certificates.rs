//! CertificateSigningRequests: approval and signing.

use muster_api::well_known::API_GROUP_CERTIFICATES;

use super::*;

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
    let kind = Kind::builtin("certificates.k8s.io", "v1", "certificatesigningrequests");
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
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let kind = Kind::builtin("certificates.k8s.io", "v1", "certificatesigningrequests");
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
                certificate_signing::DEFAULT_LIFETIME_MAX,
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
        certificate_signing::DEFAULT_LIFETIME_MAX,
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
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let kind = Kind::builtin("certificates.k8s.io", "v1", "certificatesigningrequests");
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
                certificate_signing::DEFAULT_LIFETIME_MAX,
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
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let kind = Kind::builtin("certificates.k8s.io", "v1", "certificatesigningrequests");
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
        certificate_signing::DEFAULT_LIFETIME_MAX,
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
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let kind = Kind::builtin("certificates.k8s.io", "v1", "certificatesigningrequests");
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
            certificate_signing::DEFAULT_LIFETIME_MAX,
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
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let kind = Kind::builtin("certificates.k8s.io", "v1", "certificatesigningrequests");
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
            certificate_signing::DEFAULT_LIFETIME_MAX,
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

/// Each client certificate that leaves the server is known by its serial number.
#[test]
fn issued_certificates_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    assert!(pki.take_issued_certificates().is_empty());
    pki.issue_kubeconfig("https://localhost", crate::BuiltinUser::Admin).unwrap();
    let [one] = &pki.take_issued_certificates()[..] else { panic!("one was issued") };
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
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let kind = Kind::builtin(API_GROUP_CERTIFICATES, "v1", "certificatesigningrequests");
    let pending = world.renewal("r", "n1").await;
    certificate_signing::reconcile(
        &world.registry,
        &pki,
        certificate_signing::DEFAULT_LIFETIME_MAX,
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
            certificate_signing::DEFAULT_LIFETIME_MAX,
            &approved,
            world.now,
        )
        .await
        .unwrap();
    }
    assert_eq!(pki.take_issued_certificates().len(), 1);
    assert_eq!(unstructured::parse_stored(&world.registry.storage.find(kind, None, "r").unwrap()), signed);
}
