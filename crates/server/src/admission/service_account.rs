//! Sets a pod's service account and mounts its token. Upstream: `ServiceAccount`.

use std::time::Duration;

use muster_api::well_known::ANNOTATION_CONFIG_MIRROR;
use serde_json::{Value, json};

use super::AdmissionAttributes;
use super::AdmissionChain;
use crate::auth::node_authorizer;
use crate::error::ApiError;
use crate::kinds::{Kind, generate_name_suffix};
use crate::small_map::SmallSet;
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};

/// Name of the service account that a pod gets if it names none.
const DEFAULT_ACCOUNT: &str = "default";
/// Name prefix of the volume with the service account token.
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
/// Path in each container at which the token volume is mounted.
const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// `expirationSeconds` of mounted tokens: one hour and seven seconds. The odd number of seconds distinguishes tokens
/// that admission adds from tokens that a pod requests. Upstream: `WarnOnlyBoundTokenExpirationPeriod`.
const TOKEN_EXPIRATION_S: u32 = 3607;

/// Maximum time that the creation of a pod waits for a `default` service account that does not exist yet.
const DEFAULT_ACCOUNT_WAIT_TIMEOUT: Duration = Duration::from_millis(1500);

/// Sets the service account of a new pod. Adds the token volume, unless automounting is off, and the image pull secrets
/// of the account, unless the pod has its own. Refuses a pod whose service account does not exist, or that uses Secrets
/// which the account does not allow. Mirror pods are checked, but not changed.
pub(super) async fn mutate(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    pod: &mut Value,
) -> Result<(), ApiError> {
    if !attributes.is_create() {
        return Ok(());
    }
    // A mirror pod must equal the static pod on the node, so nothing is added.
    if pod["metadata"]["annotations"].get(ANNOTATION_CONFIG_MIRROR).is_some() {
        return check_mirror_pod(attributes, pod);
    }
    if str_at(pod, "spec.serviceAccountName").is_empty() {
        map_at_mut(pod, "spec").insert("serviceAccountName".into(), json!(DEFAULT_ACCOUNT));
    }
    // The deprecated field `serviceAccount` has the same value.
    let name = str_at(pod, "spec.serviceAccountName").to_owned();
    pod["spec"]["serviceAccount"] = json!(name);
    let Some(account) = find_account(admission, attributes.namespace(), &name).await else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            attributes.namespace()
        );
        return Err(attributes.forbidden(pod, &why));
    };
    let automount = [&pod["spec"], &account].map(|it| it["automountServiceAccountToken"].as_bool());
    if automount.into_iter().flatten().next().unwrap_or(true) {
        mount_token(&mut pod["spec"]);
    }
    if list_at(&pod["spec"], "imagePullSecrets").is_empty() && is_set(&account["imagePullSecrets"]) {
        pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    check_mountable_secrets(attributes, &account, pod)
}

/// Finds a service account. Returns `None` if the account does not exist. Waits up to `DEFAULT_ACCOUNT_WAIT_TIMEOUT`
/// for the account `default`, because it is created after its namespace.
async fn find_account(admission: &AdmissionChain, namespace: &str, name: &str) -> Option<Value> {
    let kind = Kind::builtin("", "v1", "serviceaccounts");
    let find =
        || admission.storage.find(kind, Some(namespace), name).map(|it| unstructured::parse_stored(&it));
    let mut commits = admission.storage.watch_revision();
    if let Some(found) = find() {
        return Some(found);
    }
    if name != DEFAULT_ACCOUNT {
        return None;
    }
    let arrives = async {
        while commits.changed().await.is_ok() {
            if let Some(found) = find() {
                return Some(found);
            }
        }
        None
    };
    tokio::time::timeout(DEFAULT_ACCOUNT_WAIT_TIMEOUT, arrives).await.ok().flatten()
}

/// Mounts the token volume into every regular and init container that mounts nothing at `TOKEN_MOUNT_PATH` yet. Adds
/// the volume to the pod spec if a container mounts it and the spec has no token volume yet.
fn mount_token(spec: &mut Value) {
    let existing = list_at(spec, "volumes")
        .iter()
        .map(|it| str_at(it, "name"))
        .find(|it| it.starts_with(TOKEN_VOLUME_PREFIX));
    let (has_volume, name) = match existing {
        Some(name) => (true, name.to_owned()),
        None => (false, format!("{TOKEN_VOLUME_PREFIX}{}", generate_name_suffix())),
    };
    let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH});
    let mut is_used = false;
    for containers in ["initContainers", "containers"] {
        for container in spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            if list_at(container, "volumeMounts").iter().any(|it| it["mountPath"] == TOKEN_MOUNT_PATH) {
                continue;
            }
            push_item(container, "volumeMounts", mount.clone());
            is_used = true;
        }
    }
    if !has_volume && is_used {
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_S, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]);
        push_item(
            spec,
            "volumes",
            json!({"name": name, "projected": {"sources": sources, "defaultMode": 420}}),
        );
    }
}

/// Appends an item to the array in the field `name`. Creates the array if the field is absent.
fn push_item(object: &mut Value, name: &str, item: Value) {
    match &mut object[name] {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

/// Checks that a mirror pod names no service account, references no Secret, and has no projected volume with a service
/// account token.
fn check_mirror_pod(attributes: AdmissionAttributes<'_>, pod: &Value) -> Result<(), ApiError> {
    let spec = &pod["spec"];
    let why = if is_set(&spec["serviceAccountName"]) {
        "a mirror pod may not reference service accounts"
    } else if !node_authorizer::names_referenced_by_pod(spec, "secrets").is_empty() {
        "a mirror pod may not reference secrets"
    } else if list_at(spec, "volumes")
        .iter()
        .flat_map(|it| list_at(&it["projected"], "sources"))
        .any(|it| it["serviceAccountToken"].is_object())
    {
        "a mirror pod may not use ServiceAccountToken volume projections"
    } else {
        return Ok(());
    };
    Err(attributes.forbidden(pod, why))
}

/// If the annotation `kubernetes.io/enforce-mountable-secrets` of the service account is true, checks that the account
/// lists the Secrets of [`referenced_secrets`] and the image pull secrets of the pod.
fn check_mountable_secrets(
    attributes: AdmissionAttributes<'_>,
    account: &Value,
    pod: &Value,
) -> Result<(), ApiError> {
    /// Annotation of a service account. If true, its pods may use only the Secrets that the account lists.
    const ENFORCE_SECRETS_ANNOTATION: &str = "kubernetes.io/enforce-mountable-secrets";
    let enforces = account["metadata"]["annotations"][ENFORCE_SECRETS_ANNOTATION].as_str();
    if !enforces.is_some_and(|it| matches!(it, "1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(());
    }
    let account_name = str_at(account, "metadata.name");
    let names = |field| -> SmallSet<&str> {
        list_at(account, field).iter().filter_map(|it| it["name"].as_str()).collect()
    };
    let (secrets, pull_secrets) = (names("secrets"), names("imagePullSecrets"));
    for (source, secret) in referenced_secrets(&pod["spec"]) {
        if !secrets.contains(secret) {
            let why = format!(
                "{source} secret.secretName=\"{secret}\" is not allowed because service account {account_name} does not reference that secret"
            );
            return Err(attributes.forbidden(pod, &why));
        }
    }
    for (at, secret) in list_at(&pod["spec"], "imagePullSecrets").iter().enumerate() {
        let secret = str_at(secret, "name");
        if !pull_secrets.contains(secret) {
            let why = format!(
                "imagePullSecrets[{at}].name=\"{secret}\" is not allowed because service account {account_name} does not reference that imagePullSecret"
            );
            return Err(attributes.forbidden(pod, &why));
        }
    }
    Ok(())
}

/// Returns the Secrets that the `secret` volumes of a pod and the environment variables of its regular and init
/// containers reference. Each item is a description of the reference for error messages, and the name of the Secret.
fn referenced_secrets(spec: &Value) -> Vec<(String, &str)> {
    let mut all = Vec::new();
    for volume in list_at(spec, "volumes").iter().filter(|it| it["secret"].is_object()) {
        all.push(("volume with".to_owned(), str_at(volume, "secret.secretName")));
    }
    for (containers, called) in [("initContainers", "init container"), ("containers", "container")] {
        for container in list_at(spec, containers) {
            let name = str_at(container, "name");
            for env in
                list_at(container, "env").iter().filter(|it| it["valueFrom"]["secretKeyRef"].is_object())
            {
                let reference = format!("{called} {name} with envVar {} referencing", str_at(env, "name"));
                all.push((reference, str_at(env, "valueFrom.secretKeyRef.name")));
            }
            for from in list_at(container, "envFrom").iter().filter(|it| it["secretRef"].is_object()) {
                all.push((
                    format!("{called} {name} with envFrom referencing"),
                    str_at(from, "secretRef.name"),
                ));
            }
        }
    }
    all
}
