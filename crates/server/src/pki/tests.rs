use std::net::Ipv4Addr;

use expect_test::expect;
use rcgen::PublicKeyData as _;
use tempfile::tempdir;
use tokio_rustls::rustls::pki_types::UnixTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;

/// TLS of an agent on this machine, with a certificate for this user. It accepts clients with a certificate of
/// the authority.
pub(crate) fn agent(pki: &Pki, name: &str, group: &str) -> ServerConfig {
    let mut params = leaf_params(vec!["127.0.0.1".into()], ExtendedKeyUsagePurpose::ServerAuth, 1).unwrap();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, name);
    let identity = pki.node_serving_ca.issue_with_new_key(&params).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.ca.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

fn shown(serving: &ServingCertificate) -> Vec<u8> {
    serving.current_certificate().cert[0].to_vec()
}

#[test]
fn the_certificate_is_replaced_while_it_serves_and_not_before() {
    let dir = tempdir().unwrap();
    let pki = Arc::new(Pki::open(dir.path()).unwrap());
    let now: Timestamp = "2026-01-15T00:00:00Z".parse().unwrap();
    let serving = ServingCertificate::new(pki, vec![Ipv4Addr::LOCALHOST.into()], None, now).unwrap();
    let first = shown(&serving);

    assert!(!serving.renew_if_due("2026-09-14T23:59:59Z".parse().unwrap()).unwrap());
    assert_eq!(shown(&serving), first);
    let due = "2026-09-15T00:00:00Z".parse().unwrap();
    assert!(serving.renew_if_due(due).unwrap());
    assert_ne!(shown(&serving), first);
    assert!(!serving.renew_if_due(due).unwrap(), "once is enough");
}

#[test]
fn keys_are_for_their_owner_only_and_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempdir().unwrap();
    let ca = Pki::open(dir.path()).unwrap().ca.pem;
    assert_eq!(Pki::open(dir.path()).unwrap().ca.pem, ca);
    let mut files: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|it| {
            let it = it.unwrap();
            let mode = it.metadata().unwrap().permissions().mode() & 0o777;
            format!("{} {mode:o}", it.file_name().to_string_lossy())
        })
        .collect();
    files.sort();
    assert_eq!(files, ["ca.crt 600", "ca.key 600", "nodes-ca.crt 600", "nodes-ca.key 600", "sa.key 600"]);
}

#[test]
fn a_lost_key_is_refused_and_a_lost_certificate_made_again() {
    let dir = tempdir().unwrap();
    let before = Pki::open(dir.path()).unwrap();
    for name in ["ca", "nodes-ca"] {
        let (certificate, key) =
            (dir.path().join(format!("{name}.crt")), dir.path().join(format!("{name}.key")));
        let (kept, away) = (fs::read(&certificate).unwrap(), dir.path().join("away"));
        fs::rename(&key, &away).unwrap();
        let refused = Pki::open(dir.path()).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{name}.key is missing in ")), "{refused}");
        assert_eq!(fs::read(&certificate).unwrap(), kept, "nothing is replaced");
        fs::rename(&away, &key).unwrap();
        fs::remove_file(&certificate).unwrap();
    }
    // A client that knows the first certificate trusts what is issued under the second.
    let after = Pki::open(dir.path()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(before.ca.pem.as_bytes()).unwrap()).unwrap();
    let verifier = tokio_rustls::rustls::client::WebPkiServerVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::new(ring::default_provider()),
    );
    let shown = after.issue_serving_certificate(&[], Some("k8s.example.com")).unwrap();
    let verifier = verifier.build().unwrap();
    let verify = |name: &'static str| {
        tokio_rustls::rustls::client::danger::ServerCertVerifier::verify_server_cert(
            verifier.as_ref(),
            &shown.cert[0],
            &[],
            &name.try_into().unwrap(),
            &[],
            UnixTime::now(),
        )
        .map(drop)
    };
    assert_eq!((verify("localhost"), verify("k8s.example.com")), (Ok(()), Ok(())));
    assert!(verify("other.example.com").is_err());
}

#[test]
fn debug_output_contains_no_secrets() {
    let dir = tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let printed = format!("{pki:?} {:?}", pki.issue_client_certificate(BuiltinUser::Admin).unwrap());
    assert!(!printed.contains("PRIVATE KEY"), "{printed}");
}

/// A signing request as `spec.request` holds it.
pub(crate) fn signing_request(common_name: &str, organization: &str) -> String {
    signing_request_for(common_name, organization, &[])
}

pub(crate) fn signing_request_for(common_name: &str, organization: &str, names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|it| (*it).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, common_name);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    BASE64.encode(pem)
}

#[test]
fn a_signing_request_gets_its_subject_key_and_names() {
    let dir = tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["node-1".to_owned(), "10.0.0.1".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "one");
    params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "two");
    params.distinguished_name.push(DnType::CommonName, "me");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = CertificateRequest::parse(pem.as_bytes()).unwrap();
    let from: Timestamp = "2026-01-15T00:00:00Z".parse().unwrap();
    let until: Timestamp = "2051-01-15T00:00:00Z".parse().unwrap();
    let pem = pki
        .issue_certificate(&request, &[KeyUsage::DigitalSignature, KeyUsage::ClientAuth], (from, until), from)
        .unwrap();

    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let (rest, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    assert!(rest.is_empty());
    let (_, ca) = x509_parser::pem::parse_x509_pem(pki.ca.pem.as_bytes()).unwrap();
    let (_, ca) = X509Certificate::from_der(&ca.contents).unwrap();
    certificate.verify_signature(Some(ca.public_key())).unwrap();
    assert_eq!(certificate.public_key().raw, key.subject_public_key_info());
    let validity = certificate.validity();
    let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
    let usage = certificate.key_usage().unwrap().unwrap().value;
    let said = format!(
        "{}\nby {}\nfrom {} to {}\nfor {names:?}\nuse {usage} client {}",
        certificate.subject(),
        certificate.issuer(),
        validity.not_before,
        // It does not outlive its authority.
        if validity.not_after == ca.validity().not_after { "the authority's end" } else { "another time" },
        certificate.extended_key_usage().unwrap().unwrap().value.client_auth,
    );
    expect![[r#"
        O=one, O=two, CN=me
        by CN=muster-ca
        from Jan 15 00:00:00 2026 +00:00 to the authority's end
        for [DNSName("node-1"), IPAddress([10, 0, 0, 1])]
        use Digital Signature client true"#]]
    .assert_eq(&said);
}

#[test]
fn a_request_that_is_none_is_refused() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(Vec::new()).unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    // Another letter in the middle of the signature or of the key.
    let at = pem.len() - 60;
    let letter = if &pem[at..=at] == "A" { "B" } else { "A" };
    let forged = format!("{}{letter}{}", &pem[..at], &pem[at + 1..]);
    let said: Vec<_> =
        ["", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----", &forged]
            .map(|it| CertificateRequest::parse(it.as_bytes()).is_err())
            .into();
    assert_eq!(said, [true, true, true]);
}

#[test]
fn clients_of_the_cluster_ca_reject_node_serving_certificates() {
    use tokio_rustls::rustls::client::WebPkiServerVerifier;
    use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
    use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
    let dir = tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    // A node that is called as the server is, and says that it has its address.
    let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let request = CertificateRequest::parse(pem.as_bytes()).unwrap();
    let now = Timestamp::now();
    let until = now + jiff::SignedDuration::from_hours(1);
    let pem = pki
        .issue_certificate(&request, &[KeyUsage::DigitalSignature, KeyUsage::ServerAuth], (now, until), now)
        .unwrap();
    let shown = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let believes = |authority: &str, name: &str| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&shown, &[], &name, &[], UnixTime::now()).is_ok()
    };
    for name in ["localhost", "127.0.0.1"] {
        assert!(believes(&pki.node_serving_ca.pem, name), "the server, of its nodes: {name}");
        assert!(!believes(pki.ca_pem(), name), "a client: {name}");
    }
}

/// The issue time is in an extension of its own: `notBefore` is back-dated.
#[test]
fn a_client_certificate_carries_its_issue_time() {
    let dir = tempdir().unwrap();
    let pki = Pki::open(dir.path()).unwrap();
    let request = BASE64.decode(signing_request("me", "us")).unwrap();
    let request = CertificateRequest::parse(&request).unwrap();
    let now: Timestamp = "2026-01-15T12:34:56.7Z".parse().unwrap();
    let from = now - jiff::SignedDuration::from_mins(5);
    let until = now + jiff::SignedDuration::from_hours(24);
    let pem = pki.issue_certificate(&request, &[KeyUsage::ClientAuth], (from, until), now).unwrap();
    pki.queue_issued_certificate(&pem);
    let before = Timestamp::now();
    pki.issue_kubeconfig("https://localhost", BuiltinUser::Admin).unwrap();
    let [signed, admin] = &pki.take_issued_certificates()[..] else { panic!("two were issued") };
    assert_eq!(signed.issued_at.to_string(), "2026-01-15T12:34:56Z");
    assert!(
        before.as_second() <= admin.issued_at.as_second() && admin.issued_at <= Timestamp::now(),
        "{}",
        admin.issued_at
    );
    for wrong in
        [&b""[..], b"\x30\x00", b"\x30\x11\x80\x0f2026-01-15T1234", b"\x30\x11\x80\x0f20261332000000Z"]
    {
        assert_eq!(decode_issue_time(wrong), None, "{wrong:?}");
    }
}
