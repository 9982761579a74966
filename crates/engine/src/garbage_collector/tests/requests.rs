//! API requests of calls.

use expect_test::expect;

use super::*;

#[test]
fn api_requests_of_calls() {
    let object = Arc::new(object(
        &["DaemonSet", "web", "uid=u", "of=Node/n1!", "of=Node/n2", "finalizer=orphan", "finalizer=mine"],
        7,
    ));
    let pod = Arc::new(self::object(&["Pod", "p", "uid=u"], 7));
    let why = Why::OwnersAbsent;
    let resource = resources()[1].clone();
    let calls = [
        GarbageCollectorCall::Read(ObjectIdentity {
            resource,
            key: ObjectKey::new("", "../a b"),
            uid: "n1".into(),
        }),
        GarbageCollectorCall::Delete {
            object: object.clone(),
            propagation: Propagation::Foreground,
            why: why.clone(),
        },
        GarbageCollectorCall::RemoveOwners {
            object: object.clone(),
            owners: Vec::from(["n1".into(), "n2".into()]),
            why,
        },
        GarbageCollectorCall::UnblockOwners { object: object.clone() },
        GarbageCollectorCall::RemoveFinalizer { object, finalizer: FINALIZER_ORPHAN },
        GarbageCollectorCall::MarkPodFailed {
            object: pod.clone(),
            why: Why::NodeDeleted,
            at: Time::from_secs(5),
        },
        GarbageCollectorCall::MarkPodFailed {
            object: pod.clone(),
            why: Why::NeverBound,
            at: Time::from_secs(5),
        },
        GarbageCollectorCall::ForceDeletePod { object: pod, why: Why::NeverBound },
    ];
    let mut requests = String::new();
    for call in &calls {
        let crate::controller::Request { verb, path, body, .. } = request(call);
        let body = body.map(|it| it.to_string()).unwrap_or_default();
        requests += &format!("{} {path} {body}\n", verb.as_str());
    }
    expect![[r#"
        get /api/v1/nodes/..%2Fa%20b 
        delete /apis/apps/v1/namespaces/a/daemonsets/web {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"u"},"propagationPolicy":"Foreground"}
        patch /apis/apps/v1/namespaces/a/daemonsets/web {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"n1"},{"$patch":"delete","uid":"n2"}],"uid":"u"}}
        patch /apis/apps/v1/namespaces/a/daemonsets/web {"metadata":{"ownerReferences":[{"blockOwnerDeletion":false,"uid":"n1"}],"uid":"u"}}
        patch /apis/apps/v1/namespaces/a/daemonsets/web {"metadata":{"finalizers":["mine"],"resourceVersion":"7","uid":"u"}}
        patch /api/v1/namespaces/a/pods/p/status {"metadata":{"uid":"u"},"status":{"conditions":[{"lastTransitionTime":"1970-01-01T00:00:05Z","message":"PodGC: node no longer exists","reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"phase":"Failed"}}
        patch /api/v1/namespaces/a/pods/p/status {"metadata":{"uid":"u"},"status":{"phase":"Failed"}}
        delete /api/v1/namespaces/a/pods/p {"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{"uid":"u"}}
    "#]].assert_eq(&requests);
}
