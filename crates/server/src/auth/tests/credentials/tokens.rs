//! Service account tokens and bootstrap tokens.

use super::*;

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
