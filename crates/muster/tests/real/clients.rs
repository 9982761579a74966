//! What clients other than kubectl do in real containers. Simulated nodes answer it with 503.

use expect_test::expect;
use serde_json::json;

use crate::bed::{Cluster, IMAGE};
use crate::installed::{Installed, output, scripts};

#[test]
#[ignore = "needs real nodes and the client kubernetes-36: root, kubectl, containerd, ci/clients"]
fn pythons_client_writes_to_stdin_and_follows_a_log() {
    let client = Installed::find("kubernetes-36");
    let cluster = Cluster::up("clients", 1);
    let pod = |name: &str, script: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "clients"}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}],
            },
        })
    };
    // The second one ends when the client has asked for its log, and so ends the log.
    cluster.apply(&pod("stays", "echo begun; exec sleep 3600").to_string());
    cluster.apply(&pod("ends", "echo one; until test -e /end; do sleep 0.1; done; echo two").to_string());
    cluster.ready_pods("app=clients", 2);
    let mut command = client.python();
    command.arg(scripts().join("kubernetes_streams.py")).env("KUBECONFIG", cluster.kubeconfig());
    expect![[r#"
        cat: 'text: \xe4\u20ac\U0001f600'
        cat ended with: 0
        cat: b'bytes: \xff'
        the shell answered: 10 times
        followed: begun
        followed: from the shell
        the shell ended with: 3
        the whole log: 'one\ntwo\n'
    "#]]
    .assert_eq(&output(&mut command));
}
