//! Revocation of tokens and certificates, and the records of issued certificates.

use muster_api::well_known::API_GROUP_CERTIFICATES;

use super::*;

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
    let kind = Kind::builtin("", "v1", "configmaps");
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
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let kind = Kind::builtin(API_GROUP_CERTIFICATES, "v1", "certificatesigningrequests");
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
            certificate_signing::DEFAULT_LIFETIME_MAX,
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
        certificate_signing::DEFAULT_LIFETIME_MAX,
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
        certificate_signing::DEFAULT_LIFETIME_MAX,
        &pending,
        later,
    )
    .await
    .unwrap();
    let again =
        signed_in(&unstructured::parse_stored(&world.registry.storage.find(kind, None, "again").unwrap()));
    assert!(authenticate(&world.registry.access, Some(&again), &HeaderMap::new(), later).is_ok());
}

/// The records of credentials are for administrators alone to write, whatever roles others have.
#[tokio::test]
async fn records_of_credentials_are_written_by_masters_alone() {
    let world = World::new().await;
    let kind = Kind::builtin("", "v1", "configmaps");
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
    let again = crate::pki::IssuedCertificate { serial: "50".to_owned(), ..issued.clone() };
    // The first has expired when the other is recorded.
    for (it, later_s) in [(issued, 0), (again, 61)] {
        let (mut unrecorded, now) = (vec![it], world.now + SignedDuration::from_secs(later_s));
        certificate_records::record_issued_certificates(&world.registry, &mut unrecorded, now).await.unwrap();
        assert!(unrecorded.is_empty());
    }
    let stored =
        world.registry.storage.find(kind, Some("kube-system"), "muster-issued-certificates-0").unwrap();
    let data = unstructured::parse_stored(&stored)["data"].clone();
    assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), ["50"]);
}

/// Servers record certificates at the same time, also when a ConfigMap becomes full.
#[tokio::test]
async fn certificates_that_are_recorded_at_the_same_time_are_all_kept() {
    const CALLS: usize = 40;
    const CERTIFICATES_PER_CALL: usize = 20;
    let world = World::new().await;
    let issue = |serial: usize| crate::pki::IssuedCertificate {
        serial: format!("{serial:04x}"),
        subject: "me".to_owned(),
        groups: Vec::new(),
        issued_at: world.now,
        not_after: world.now + SignedDuration::from_secs(60),
    };
    let record = async |call: usize| {
        let first = call * CERTIFICATES_PER_CALL;
        let mut issued: Vec<_> = (first..first + CERTIFICATES_PER_CALL).map(issue).collect();
        certificate_records::record_issued_certificates(&world.registry, &mut issued, world.now)
            .await
            .unwrap();
    };
    futures::future::join_all((0..CALLS).map(record)).await;
    let kind = Kind::builtin("", "v1", "configmaps");
    let serials = |name: &str| {
        let stored = world.registry.storage.find(kind, Some("kube-system"), name).unwrap();
        let data = unstructured::parse_stored(&stored)["data"].clone();
        data.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let mut recorded = serials("muster-issued-certificates-0");
    assert_eq!(recorded.len(), 500);
    recorded.extend(serials("muster-issued-certificates-1"));
    recorded.sort();
    let issued: Vec<String> = (0..CALLS * CERTIFICATES_PER_CALL).map(|it| issue(it).serial).collect();
    assert_eq!(recorded, issued);
}

/// Certificates with many groups need several ConfigMaps. One that fits into none prevents no other record.
#[tokio::test]
async fn large_records_of_certificates_are_split_and_one_that_is_too_large_is_left_out() {
    let world = World::new().await;
    let issue = |serial: &str, groups: usize| crate::pki::IssuedCertificate {
        serial: serial.to_owned(),
        subject: "me".to_owned(),
        groups: vec!["x".repeat(1_000); groups],
        issued_at: world.now,
        not_after: world.now + SignedDuration::from_secs(60),
    };
    let mut issued = vec![issue("00", 950), issue("01", 500), issue("02", 500), issue("03", 0)];
    certificate_records::record_issued_certificates(&world.registry, &mut issued, world.now).await.unwrap();
    assert!(issued.is_empty());
    let kind = Kind::builtin("", "v1", "configmaps");
    let serials = [0, 1].map(|number| {
        let name = format!("muster-issued-certificates-{number}");
        let stored = world.registry.storage.find(kind, Some("kube-system"), &name).unwrap();
        let data = unstructured::parse_stored(&stored)["data"].clone();
        data.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    });
    assert_eq!(serials, [vec!["01"], vec!["02", "03"]]);
}
