//! Credentials: tokens, certificates and their revocation.

mod certificates;
mod revocation;
mod tokens;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use expect_test::expect;
use jiff::SignedDuration;
use muster_api::well_known::API_GROUP_CERTIFICATES;
use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;
use crate::auth::{bootstrap_token, reviews, token_request};
use crate::controllers::{certificate_records, certificate_signing};
use crate::pki::tests::{signing_request, signing_request_for};
use crate::pki::{PeerCertificate, Pki};
use crate::registry::DeleteOptions;
use crate::request::{ClientCertificate, RequestTarget};
use crate::subresource::Subresource;
use crate::unstructured::is_set;

fn target(plural: &str, namespace: Option<&str>, name: &str) -> RequestTarget {
    let kind = Kind::builtin("", "v1", plural);
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
        match authenticate_token(&self.registry.access, token, &[audience], now) {
            Ok(user) => {
                let keys: Vec<_> = user.extra.keys().map(|it| it.rsplit('/').next().unwrap()).collect();
                format!("{} {:?} {keys:?}", user.name, user.groups)
            }
            Err(why) => why,
        }
    }

    /// A node's request to renew its client certificate, as it is stored.
    async fn renewal(&self, name: &str, node: &str) -> Value {
        let kind = Kind::builtin(API_GROUP_CERTIFICATES, "v1", "certificatesigningrequests");
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
