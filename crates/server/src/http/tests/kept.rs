//! What a write may not change stays, whichever way the write is made.

use super::*;
use crate::decode::arbitrary;

const WAYS: [&str; 5] = ["PUT", "json", "merge", "strategic", "apply"];

/// `at` in `object` becomes `value`; without a value it goes.
fn set(object: &mut Value, at: &[&str], value: Option<&Value>) {
    let (name, parents) = at.split_last().unwrap();
    let mut it = object;
    for parent in parents {
        it = &mut it[parent];
    }
    match value {
        Some(value) => it[name] = value.clone(),
        None => drop(it.as_object_mut().map(|it| it.remove(*name))),
    }
}

fn get<'a>(object: &'a Value, at: &[&str]) -> Option<&'a Value> {
    at.iter().try_fold(object, |it, name| it.get(name))
}

/// A source of bytes that is the same in each run.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(300)
    .collect()
}

#[tokio::test]
async fn every_kind_and_subresource_keeps_its_reset_fields() {
    let server = samples::server().await;
    let mut written = 0;
    for (kind, sample) in samples::all() {
        let parts: Vec<(Subresource, &str)> = [(Subresource::Whole, "")]
            .into_iter()
            .chain(kind.has_status_subresource().then_some((Subresource::Status, "/status")))
            .chain(
                kind.subresources
                    .iter()
                    .filter(|it| it.create_action.is_none() && !it.mutable_fields.is_empty())
                    .map(|it| {
                        (
                            it.subresource,
                            match it.name {
                                "approval" => "/approval",
                                "finalize" => "/finalize",
                                "ephemeralcontainers" => "/ephemeralcontainers",
                                other => panic!("the test does not know {other}"),
                            },
                        )
                    }),
            )
            .collect();
        let path = format!("{}/{}", samples::path(kind), str_at(&sample, "metadata.name"));
        for (subresource, suffix) in parts {
            // The fields that are named as kept, and whatever is beside those that may change.
            let mut kept: Vec<&[&str]> = kind.reset_fields(subresource).collect();
            if subresource != Subresource::Whole {
                kept.extend([&["spec"][..], &["status"], &["data"]].into_iter().filter(|path| {
                    !kind.mutable_fields(subresource).unwrap().iter().any(|it| it[0] == path[0])
                }));
            }
            if subresource == Subresource::Approval {
                kept.push(&["status", "certificate"]);
            }
            if subresource == Subresource::EphemeralContainers {
                kept.extend([
                    &["spec", "nodeName"][..],
                    &["spec", "serviceAccountName"],
                    &["metadata", "labels"],
                ]);
            }
            for way in WAYS {
                if subresource == Subresource::Finalize && way != "PUT" {
                    continue;
                }
                let mut done = 0;
                for seed in 1..=6 {
                    let (code, before) = server.get(&path).await;
                    assert_eq!(code, 200, "{path}");
                    let made = arbitrary::valid_object_of_kind(kind.gvk(), &bytes(seed + written));
                    let mut body = match way {
                        "PUT" => before.clone(),
                        "apply" => json!({
                            "apiVersion": kind.api_version(),
                            "kind": kind.kind,
                            "metadata": {"name": before["metadata"]["name"]},
                        }),
                        _ => json!({}),
                    };
                    let mut operations = Vec::new();
                    for at in &kept {
                        let value = match get(&made, at) {
                            Some(value) => value.clone(),
                            None if *at == ["spec"] || *at == ["status"] => json!({}),
                            None if *at == ["status", "certificate"] => json!("bm9uZQ=="),
                            None if *at == ["metadata", "labels"] => json!({"other": "label"}),
                            None if at[0] == "spec" && at[1] != "finalizers" => json!("other"),
                            None => continue,
                        };
                        operations
                            .push(json!({"op": "add", "path": format!("/{}", at.join("/")), "value": value}));
                        set(&mut body, at, Some(&value));
                    }
                    let (method, media_type, body) = match way {
                        "PUT" => ("PUT", JSON_MEDIA_TYPE, body),
                        "json" => ("PATCH", "application/json-patch+json", Value::Array(operations)),
                        "merge" => ("PATCH", "application/merge-patch+json", body),
                        "strategic" => ("PATCH", "application/strategic-merge-patch+json", body),
                        _ => ("PATCH", "application/apply-patch+yaml", body),
                    };
                    let query = if way == "apply" { "?fieldManager=test&force=true" } else { "" };
                    let (code, said) = server
                        .send(method, &format!("{path}{suffix}{query}"), media_type, &body.to_string())
                        .await;
                    let (_, after) = server.get(&path).await;
                    for at in &kept {
                        assert_eq!(
                            get(&after, at),
                            get(&before, at),
                            "{way} {path}{suffix}: {} is changed by {body}: {code} {said}",
                            at.join(".")
                        );
                    }
                    if code == 200 {
                        done += 1;
                    }
                    written += 1;
                }
                // A write that is refused shows nothing. The older APIs of a kind cannot be applied.
                let is_converted = kind.conversion().is_some();
                assert!(done > 0 || is_converted, "{way} {path}{suffix}: none of the writes was made");
            }
        }
    }
    assert!(1000 < written);
}
