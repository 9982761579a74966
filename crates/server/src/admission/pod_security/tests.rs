//! Each control at each level and version. What kube-apiserver answers to pods is compared over HTTP, in
//! `http/tests/pod_security.rs`.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::level::{LevelVersion, PodSecurityLevel, PolicyVersion};
use super::policy::{EvaluatedPod, evaluate_pod, format_details};

/// Satisfies every level at every version.
fn compliant() -> Value {
    let container = |name: &str| {
        json!({
            "name": name,
            "image": "i",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        })
    };
    json!({
        "metadata": {"name": "p"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [container("i")],
            "containers": [container("a"), container("b")],
            "ephemeralContainers": [container("e")],
        },
    })
}

/// Sets the value at a JSON pointer, and makes what leads to it. `null` removes it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
    let mut at = object;
    for step in parent.split('/').skip(1) {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[step],
        };
    }
    if value.is_null() {
        at.as_object_mut().expect("fields are removed from objects").remove(&unescaped(name));
    } else {
        at[unescaped(name)] = value;
    }
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/")
}

/// For each case what forbids it: by level, from one version to another. Versions that say the same are one line.
fn check(cases: &[&[(&str, Value)]], golden: &Expect) {
    let mut lines = String::new();
    for case in cases {
        let mut pod = compliant();
        for (pointer, value) in *case {
            set(&mut pod, pointer, value.clone());
        }
        let fields: Vec<_> = case
            .iter()
            .map(|(at, value)| format!("{}={value}", at.replace("/securityContext", "/sc")))
            .collect();
        writeln!(lines, "{}", fields.join(" ")).unwrap();
        for level in [PodSecurityLevel::Privileged, PodSecurityLevel::Baseline, PodSecurityLevel::Restricted]
        {
            let versions: Vec<_> =
                (0..=36).map(PolicyVersion::Minor).chain([PolicyVersion::Latest]).collect();
            let says = |version: PolicyVersion| {
                let pod = EvaluatedPod { metadata: &pod["metadata"], spec: &pod["spec"] };
                format_details(&evaluate_pod(LevelVersion { level, version }, pod))
            };
            let mut from = 0;
            for (at, version) in versions.iter().enumerate() {
                let said = says(*version);
                if versions.get(at + 1).is_some_and(|next| says(*next) == said) {
                    continue;
                }
                if !said.is_empty() {
                    writeln!(lines, "  {} {}..{version}: {said}", level.name(), versions[from]).unwrap();
                }
                from = at + 1;
            }
        }
    }
    golden.assert_eq(&lines);
}

#[test]
fn a_compliant_pod_is_allowed_at_every_level_and_version() {
    check(
        &[&[("/metadata/name", json!("q"))]],
        &expect![[r#"
        /metadata/name="q"
    "#]],
    );
}

#[test]
fn an_ordinary_pod_is_baseline_and_not_restricted() {
    let none = || Value::Null;
    check(
        &[&[
            ("/spec/securityContext", none()),
            ("/spec/initContainers", none()),
            ("/spec/ephemeralContainers", none()),
            ("/spec/containers", json!([{"name": "c", "image": "i"}])),
        ]],
        &expect![[r#"
            /spec/sc=null /spec/initContainers=null /spec/ephemeralContainers=null /spec/containers=[{"image":"i","name":"c"}]
              restricted v1.0..v1.7: runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)
              restricted v1.8..v1.18: allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)
              restricted v1.19..v1.21: allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
              restricted v1.22..latest: allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
        "#]],
    );
}

#[test]
fn app_armor_profiles() {
    let profile = |kind: &str| json!({"type": kind});
    check(
        &[
            &[("/spec/securityContext/appArmorProfile", profile("RuntimeDefault"))],
            &[("/spec/containers/0/securityContext/appArmorProfile", profile("Localhost"))],
            &[("/spec/securityContext/appArmorProfile", profile("Unconfined"))],
            &[("/spec/initContainers/0/securityContext/appArmorProfile", profile("Unconfined"))],
            &[
                ("/spec/securityContext/appArmorProfile", profile("Unconfined")),
                ("/spec/containers/0/securityContext/appArmorProfile", profile("Unconfined")),
                ("/spec/ephemeralContainers/0/securityContext/appArmorProfile", profile("other")),
                (
                    "/metadata/annotations",
                    json!({
                        "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
                        "container.apparmor.security.beta.kubernetes.io/b": "",
                        "container.apparmor.security.beta.kubernetes.io/e": "localhost/x",
                        "container.apparmor.security.beta.kubernetes.io/i": "a\"b",
                        "other": "unconfined",
                    }),
                ),
            ],
        ],
        &expect![[r#"
            /spec/sc/appArmorProfile={"type":"RuntimeDefault"}
            /spec/containers/0/sc/appArmorProfile={"type":"Localhost"}
            /spec/sc/appArmorProfile={"type":"Unconfined"}
              baseline v1.0..latest: forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")
              restricted v1.0..latest: forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")
            /spec/initContainers/0/sc/appArmorProfile={"type":"Unconfined"}
              baseline v1.0..latest: forbidden AppArmor profile (container "i" must not set AppArmor profile type to "Unconfined")
              restricted v1.0..latest: forbidden AppArmor profile (container "i" must not set AppArmor profile type to "Unconfined")
            /spec/sc/appArmorProfile={"type":"Unconfined"} /spec/containers/0/sc/appArmorProfile={"type":"Unconfined"} /spec/ephemeralContainers/0/sc/appArmorProfile={"type":"other"} /metadata/annotations={"container.apparmor.security.beta.kubernetes.io/a":"unconfined","container.apparmor.security.beta.kubernetes.io/b":"","container.apparmor.security.beta.kubernetes.io/e":"localhost/x","container.apparmor.security.beta.kubernetes.io/i":"a\"b","other":"unconfined"}
              baseline v1.0..latest: forbidden AppArmor profiles (pod and containers "a", "e" and annotations must not set AppArmor profile type to "Unconfined", "other", "container.apparmor.security.beta.kubernetes.io/a="unconfined"", "container.apparmor.security.beta.kubernetes.io/i="a\"b"")
              restricted v1.0..latest: forbidden AppArmor profiles (pod and containers "a", "e" and annotations must not set AppArmor profile type to "Unconfined", "other", "container.apparmor.security.beta.kubernetes.io/a="unconfined"", "container.apparmor.security.beta.kubernetes.io/i="a\"b"")
        "#]],
    );
}

#[test]
fn capabilities() {
    let add = |names: &[&str]| json!({"add": names, "drop": ["ALL"]});
    check(
        &[
            &[("/spec/containers/0/securityContext/capabilities", add(&["NET_BIND_SERVICE"]))],
            &[("/spec/containers/0/securityContext/capabilities", add(&["CHOWN", "KILL"]))],
            &[
                ("/spec/containers/0/securityContext/capabilities", add(&["SYS_ADMIN", "CHOWN"])),
                ("/spec/ephemeralContainers/0/securityContext/capabilities", add(&["NET_RAW"])),
            ],
            &[("/spec/containers/1/securityContext/capabilities", json!({"drop": ["all"]}))],
            &[
                ("/spec/containers/1/securityContext/capabilities", Value::Null),
                ("/spec/os", json!({"name": "linux"})),
            ],
            &[
                ("/spec/containers/1/securityContext/capabilities", Value::Null),
                ("/spec/os", json!({"name": "windows"})),
            ],
        ],
        &expect![[r#"
            /spec/containers/0/sc/capabilities={"add":["NET_BIND_SERVICE"],"drop":["ALL"]}
            /spec/containers/0/sc/capabilities={"add":["CHOWN","KILL"],"drop":["ALL"]}
              restricted v1.22..latest: unrestricted capabilities (container "a" must not include "CHOWN", "KILL" in securityContext.capabilities.add)
            /spec/containers/0/sc/capabilities={"add":["SYS_ADMIN","CHOWN"],"drop":["ALL"]} /spec/ephemeralContainers/0/sc/capabilities={"add":["NET_RAW"],"drop":["ALL"]}
              baseline v1.0..latest: non-default capabilities (containers "a", "e" must not include "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)
              restricted v1.0..v1.21: non-default capabilities (containers "a", "e" must not include "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)
              restricted v1.22..latest: unrestricted capabilities (containers "a", "e" must not include "CHOWN", "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)
            /spec/containers/1/sc/capabilities={"drop":["all"]}
              restricted v1.22..latest: unrestricted capabilities (container "b" must set securityContext.capabilities.drop=["ALL"])
            /spec/containers/1/sc/capabilities=null /spec/os={"name":"linux"}
              restricted v1.22..latest: unrestricted capabilities (container "b" must set securityContext.capabilities.drop=["ALL"])
            /spec/containers/1/sc/capabilities=null /spec/os={"name":"windows"}
              restricted v1.22..v1.24: unrestricted capabilities (container "b" must set securityContext.capabilities.drop=["ALL"])
        "#]],
    );
}

#[test]
fn host_namespaces() {
    check(
        &[
            &[("/spec/hostNetwork", json!(false)), ("/spec/hostPID", json!(false))],
            &[("/spec/hostPID", json!(true))],
            &[("/spec/hostIPC", json!(true)), ("/spec/hostNetwork", json!(true))],
        ],
        &expect![[r#"
            /spec/hostNetwork=false /spec/hostPID=false
            /spec/hostPID=true
              baseline v1.0..latest: host namespaces (hostPID=true)
              restricted v1.0..latest: host namespaces (hostPID=true)
            /spec/hostIPC=true /spec/hostNetwork=true
              baseline v1.0..latest: host namespaces (hostNetwork=true, hostIPC=true)
              restricted v1.0..latest: host namespaces (hostNetwork=true, hostIPC=true)
        "#]],
    );
}

#[test]
fn host_path_and_restricted_volumes() {
    check(
        &[
            &[(
                "/spec/volumes",
                json!([{"name": "e", "emptyDir": {}}, {"name": "c", "csi": {"driver": "d"}}]),
            )],
            &[("/spec/volumes", json!([{"name": "h", "hostPath": {"path": "/"}}]))],
            &[(
                "/spec/volumes",
                json!([
                    {"name": "n", "nfs": {}},
                    {"name": "h", "hostPath": {}},
                    {"name": "g", "hostPath": {}},
                    {"name": "s", "secret": {}},
                    {"name": "u"},
                ]),
            )],
        ],
        &expect![[r#"
            /spec/volumes=[{"emptyDir":{},"name":"e"},{"csi":{"driver":"d"},"name":"c"}]
            /spec/volumes=[{"hostPath":{"path":"/"},"name":"h"}]
              baseline v1.0..latest: hostPath volumes (volume "h")
              restricted v1.0..latest: restricted volume types (volume "h" uses restricted volume type "hostPath")
            /spec/volumes=[{"name":"n","nfs":{}},{"hostPath":{},"name":"h"},{"hostPath":{},"name":"g"},{"name":"s","secret":{}},{"name":"u"}]
              baseline v1.0..latest: hostPath volumes (volumes "h", "g")
              restricted v1.0..latest: restricted volume types (volumes "n", "h", "g", "u" use restricted volume types "hostPath", "nfs", "unknown")
        "#]],
    );
}

#[test]
fn host_ports() {
    check(
        &[
            &[(
                "/spec/containers/0/ports",
                json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 0}]),
            )],
            &[("/spec/containers/0/ports", json!([{"containerPort": 80, "hostPort": 80}]))],
            &[
                ("/spec/containers/0/ports", json!([{"hostPort": 80}, {"hostPort": 9}])),
                ("/spec/initContainers/0/ports", json!([{"hostPort": 443}, {"hostPort": 80}])),
            ],
        ],
        &expect![[r#"
            /spec/containers/0/ports=[{"containerPort":80},{"containerPort":81,"hostPort":0}]
            /spec/containers/0/ports=[{"containerPort":80,"hostPort":80}]
              baseline v1.0..latest: hostPort (container "a" uses hostPort 80)
              restricted v1.0..latest: hostPort (container "a" uses hostPort 80)
            /spec/containers/0/ports=[{"hostPort":80},{"hostPort":9}] /spec/initContainers/0/ports=[{"hostPort":443},{"hostPort":80}]
              baseline v1.0..latest: hostPort (containers "i", "a" use hostPorts 443, 80, 9)
              restricted v1.0..latest: hostPort (containers "i", "a" use hostPorts 443, 80, 9)
        "#]],
    );
}

#[test]
fn hosts_of_probes_and_lifecycle_hooks() {
    check(
        &[
            &[("/spec/containers/0/livenessProbe", json!({"httpGet": {"host": "", "port": 80}}))],
            &[("/spec/containers/0/startupProbe", json!({"tcpSocket": {"host": "127.0.0.1", "port": 80}}))],
            &[
                ("/spec/containers/1/lifecycle", json!({"preStop": {"httpGet": {"host": "z"}}})),
                ("/spec/containers/0/lifecycle", json!({"postStart": {"tcpSocket": {"host": "y"}}})),
                ("/spec/initContainers/0/readinessProbe", json!({"httpGet": {"host": "y"}})),
            ],
        ],
        &expect![[r#"
            /spec/containers/0/livenessProbe={"httpGet":{"host":"","port":80}}
            /spec/containers/0/startupProbe={"tcpSocket":{"host":"127.0.0.1","port":80}}
              baseline v1.34..latest: probe or lifecycle host (container "a" uses probe or lifecycle host "127.0.0.1")
              restricted v1.34..latest: probe or lifecycle host (container "a" uses probe or lifecycle host "127.0.0.1")
            /spec/containers/1/lifecycle={"preStop":{"httpGet":{"host":"z"}}} /spec/containers/0/lifecycle={"postStart":{"tcpSocket":{"host":"y"}}} /spec/initContainers/0/readinessProbe={"httpGet":{"host":"y"}}
              baseline v1.34..latest: probe or lifecycle host (containers "a", "b", "i" use probe or lifecycle hosts "y", "z")
              restricted v1.34..latest: probe or lifecycle host (containers "a", "b", "i" use probe or lifecycle hosts "y", "z")
        "#]],
    );
}

#[test]
fn privileged_containers() {
    check(
        &[
            &[("/spec/containers/0/securityContext/privileged", json!(false))],
            &[("/spec/ephemeralContainers/0/securityContext/privileged", json!(true))],
            &[
                ("/spec/containers/1/securityContext/privileged", json!(true)),
                ("/spec/initContainers/0/securityContext/privileged", json!(true)),
            ],
        ],
        &expect![[r#"
            /spec/containers/0/sc/privileged=false
            /spec/ephemeralContainers/0/sc/privileged=true
              baseline v1.0..latest: privileged (container "e" must not set securityContext.privileged=true)
              restricted v1.0..latest: privileged (container "e" must not set securityContext.privileged=true)
            /spec/containers/1/sc/privileged=true /spec/initContainers/0/sc/privileged=true
              baseline v1.0..latest: privileged (containers "i", "b" must not set securityContext.privileged=true)
              restricted v1.0..latest: privileged (containers "i", "b" must not set securityContext.privileged=true)
        "#]],
    );
}

#[test]
fn proc_mounts() {
    check(
        &[
            &[("/spec/containers/0/securityContext/procMount", json!("Default"))],
            &[("/spec/containers/0/securityContext/procMount", json!("Unmasked"))],
            &[
                ("/spec/containers/0/securityContext/procMount", json!("Unmasked")),
                ("/spec/hostUsers", json!(false)),
            ],
            &[
                ("/spec/containers/0/securityContext/procMount", json!("Unmasked")),
                ("/spec/hostUsers", json!(true)),
            ],
        ],
        &expect![[r#"
            /spec/containers/0/sc/procMount="Default"
            /spec/containers/0/sc/procMount="Unmasked"
              baseline v1.0..latest: procMount (container "a" must not set securityContext.procMount to "Unmasked")
              restricted v1.0..latest: procMount (container "a" must not set securityContext.procMount to "Unmasked")
            /spec/containers/0/sc/procMount="Unmasked" /spec/hostUsers=false
              baseline v1.0..v1.34: procMount (container "a" must not set securityContext.procMount to "Unmasked")
              restricted v1.0..latest: procMount (container "a" must not set securityContext.procMount to "Unmasked")
            /spec/containers/0/sc/procMount="Unmasked" /spec/hostUsers=true
              baseline v1.0..latest: procMount (container "a" must not set securityContext.procMount to "Unmasked")
              restricted v1.0..latest: procMount (container "a" must not set securityContext.procMount to "Unmasked")
        "#]],
    );
}

#[test]
fn se_linux_options() {
    check(
        &[
            &[("/spec/securityContext/seLinuxOptions", json!({"type": "container_kvm_t", "level": "s0"}))],
            &[("/spec/containers/0/securityContext/seLinuxOptions", json!({"type": "container_engine_t"}))],
            &[("/spec/securityContext/seLinuxOptions", json!({"user": "u", "role": ""}))],
            &[
                ("/spec/securityContext/seLinuxOptions", json!({"type": "b_t", "role": "r"})),
                ("/spec/initContainers/0/securityContext/seLinuxOptions", json!({"type": "a_t"})),
                ("/spec/containers/0/securityContext/seLinuxOptions", json!({"user": "u"})),
            ],
        ],
        &expect![[r#"
            /spec/sc/seLinuxOptions={"level":"s0","type":"container_kvm_t"}
            /spec/containers/0/sc/seLinuxOptions={"type":"container_engine_t"}
              baseline v1.0..v1.30: seLinuxOptions (container "a" set forbidden securityContext.seLinuxOptions: type "container_engine_t")
              restricted v1.0..v1.30: seLinuxOptions (container "a" set forbidden securityContext.seLinuxOptions: type "container_engine_t")
            /spec/sc/seLinuxOptions={"role":"","user":"u"}
              baseline v1.0..latest: seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)
              restricted v1.0..latest: seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)
            /spec/sc/seLinuxOptions={"role":"r","type":"b_t"} /spec/initContainers/0/sc/seLinuxOptions={"type":"a_t"} /spec/containers/0/sc/seLinuxOptions={"user":"u"}
              baseline v1.0..latest: seLinuxOptions (pod and containers "i", "a" set forbidden securityContext.seLinuxOptions: types "a_t", "b_t"; user may not be set; role may not be set)
              restricted v1.0..latest: seLinuxOptions (pod and containers "i", "a" set forbidden securityContext.seLinuxOptions: types "a_t", "b_t"; user may not be set; role may not be set)
        "#]],
    );
}

#[test]
fn seccomp_profiles() {
    let profile = |kind: &str| json!({"type": kind});
    check(
        &[
            &[("/spec/containers/0/securityContext/seccompProfile", profile("Localhost"))],
            &[("/spec/securityContext/seccompProfile", profile("Unconfined"))],
            &[("/spec/containers/0/securityContext/seccompProfile", profile("Unconfined"))],
            &[("/spec/securityContext/seccompProfile", Value::Null)],
            &[
                ("/spec/securityContext/seccompProfile", Value::Null),
                ("/spec/containers/0/securityContext/seccompProfile", profile("RuntimeDefault")),
                ("/spec/containers/1/securityContext/seccompProfile", profile("Localhost")),
                ("/spec/initContainers/0/securityContext/seccompProfile", profile("Localhost")),
            ],
            &[
                ("/spec/securityContext/seccompProfile", Value::Null),
                ("/spec/os", json!({"name": "windows"})),
            ],
            &[(
                "/metadata/annotations",
                json!({
                    "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
                    "container.seccomp.security.alpha.kubernetes.io/a": "x",
                    "container.seccomp.security.alpha.kubernetes.io/b": "localhost/x",
                    "container.seccomp.security.alpha.kubernetes.io/e": "docker/default",
                    "container.seccomp.security.alpha.kubernetes.io/other": "unconfined",
                }),
            )],
        ],
        &expect![[r#"
            /spec/containers/0/sc/seccompProfile={"type":"Localhost"}
            /spec/sc/seccompProfile={"type":"Unconfined"}
              baseline v1.19..latest: seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")
              restricted v1.19..latest: seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")
            /spec/containers/0/sc/seccompProfile={"type":"Unconfined"}
              baseline v1.19..latest: seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")
              restricted v1.19..latest: seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")
            /spec/sc/seccompProfile=null
              restricted v1.19..latest: seccompProfile (pod or containers "i", "a", "b", "e" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
            /spec/sc/seccompProfile=null /spec/containers/0/sc/seccompProfile={"type":"RuntimeDefault"} /spec/containers/1/sc/seccompProfile={"type":"Localhost"} /spec/initContainers/0/sc/seccompProfile={"type":"Localhost"}
              restricted v1.19..latest: seccompProfile (pod or container "e" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
            /spec/sc/seccompProfile=null /spec/os={"name":"windows"}
              restricted v1.19..v1.24: seccompProfile (pod or containers "i", "a", "b", "e" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")
            /metadata/annotations={"container.seccomp.security.alpha.kubernetes.io/a":"x","container.seccomp.security.alpha.kubernetes.io/b":"localhost/x","container.seccomp.security.alpha.kubernetes.io/e":"docker/default","container.seccomp.security.alpha.kubernetes.io/other":"unconfined","seccomp.security.alpha.kubernetes.io/pod":"unconfined"}
              baseline v1.0..v1.18: seccompProfile (forbidden annotations container.seccomp.security.alpha.kubernetes.io/a="x", seccomp.security.alpha.kubernetes.io/pod="unconfined")
              restricted v1.0..v1.18: seccompProfile (forbidden annotations container.seccomp.security.alpha.kubernetes.io/a="x", seccomp.security.alpha.kubernetes.io/pod="unconfined")
        "#]],
    );
}

#[test]
fn sysctls() {
    let sysctls =
        |names: &[&str]| names.iter().map(|it| json!({"name": it, "value": "1"})).collect::<Value>();
    check(
        &[
            &[("/spec/securityContext/sysctls", sysctls(&["kernel.shm_rmid_forced"]))],
            &[("/spec/securityContext/sysctls", sysctls(&["kernel.msgmax", "net.ipv4.tcp_syncookies"]))],
            &[(
                "/spec/securityContext/sysctls",
                sysctls(&[
                    "net.ipv4.tcp_wmem",
                    "net.ipv4.tcp_fin_timeout",
                    "net.ipv4.ip_local_reserved_ports",
                ]),
            )],
        ],
        &expect![[r#"
            /spec/sc/sysctls=[{"name":"kernel.shm_rmid_forced","value":"1"}]
            /spec/sc/sysctls=[{"name":"kernel.msgmax","value":"1"},{"name":"net.ipv4.tcp_syncookies","value":"1"}]
              baseline v1.0..latest: forbidden sysctls (kernel.msgmax)
              restricted v1.0..latest: forbidden sysctls (kernel.msgmax)
            /spec/sc/sysctls=[{"name":"net.ipv4.tcp_wmem","value":"1"},{"name":"net.ipv4.tcp_fin_timeout","value":"1"},{"name":"net.ipv4.ip_local_reserved_ports","value":"1"}]
              baseline v1.0..v1.26: forbidden sysctls (net.ipv4.tcp_wmem, net.ipv4.tcp_fin_timeout, net.ipv4.ip_local_reserved_ports)
              baseline v1.27..v1.28: forbidden sysctls (net.ipv4.tcp_wmem, net.ipv4.tcp_fin_timeout)
              baseline v1.29..v1.31: forbidden sysctls (net.ipv4.tcp_wmem)
              restricted v1.0..v1.26: forbidden sysctls (net.ipv4.tcp_wmem, net.ipv4.tcp_fin_timeout, net.ipv4.ip_local_reserved_ports)
              restricted v1.27..v1.28: forbidden sysctls (net.ipv4.tcp_wmem, net.ipv4.tcp_fin_timeout)
              restricted v1.29..v1.31: forbidden sysctls (net.ipv4.tcp_wmem)
        "#]],
    );
}

#[test]
fn windows_host_processes() {
    check(
        &[
            &[("/spec/securityContext/windowsOptions", json!({"hostProcess": false}))],
            &[("/spec/securityContext/windowsOptions", json!({"hostProcess": true}))],
            &[
                ("/spec/securityContext/windowsOptions", json!({"hostProcess": true})),
                ("/spec/containers/0/securityContext/windowsOptions", json!({"hostProcess": true})),
                ("/spec/containers/1/securityContext/windowsOptions", json!({"hostProcess": true})),
            ],
        ],
        &expect![[r#"
            /spec/sc/windowsOptions={"hostProcess":false}
            /spec/sc/windowsOptions={"hostProcess":true}
              baseline v1.0..latest: hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)
              restricted v1.0..latest: hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)
            /spec/sc/windowsOptions={"hostProcess":true} /spec/containers/0/sc/windowsOptions={"hostProcess":true} /spec/containers/1/sc/windowsOptions={"hostProcess":true}
              baseline v1.0..latest: hostProcess (pod and containers "a", "b" must not set securityContext.windowsOptions.hostProcess=true)
              restricted v1.0..latest: hostProcess (pod and containers "a", "b" must not set securityContext.windowsOptions.hostProcess=true)
        "#]],
    );
}

#[test]
fn privilege_escalation() {
    check(
        &[
            &[("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true))],
            &[
                ("/spec/containers/0/securityContext/allowPrivilegeEscalation", Value::Null),
                ("/spec/ephemeralContainers/0/securityContext/allowPrivilegeEscalation", Value::Null),
            ],
            &[
                ("/spec/containers/0/securityContext/allowPrivilegeEscalation", Value::Null),
                ("/spec/os", json!({"name": "windows"})),
            ],
        ],
        &expect![[r#"
            /spec/containers/0/sc/allowPrivilegeEscalation=true
              restricted v1.8..latest: allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false)
            /spec/containers/0/sc/allowPrivilegeEscalation=null /spec/ephemeralContainers/0/sc/allowPrivilegeEscalation=null
              restricted v1.8..latest: allowPrivilegeEscalation != false (containers "a", "e" must set securityContext.allowPrivilegeEscalation=false)
            /spec/containers/0/sc/allowPrivilegeEscalation=null /spec/os={"name":"windows"}
              restricted v1.8..v1.24: allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false)
        "#]],
    );
}

#[test]
fn root() {
    check(
        &[
            &[("/spec/securityContext/runAsNonRoot", Value::Null)],
            &[("/spec/securityContext/runAsNonRoot", json!(false))],
            &[("/spec/containers/0/securityContext/runAsNonRoot", json!(false))],
            &[
                ("/spec/securityContext/runAsNonRoot", Value::Null),
                ("/spec/containers/0/securityContext/runAsNonRoot", json!(true)),
                ("/spec/containers/1/securityContext/runAsNonRoot", json!(true)),
                ("/spec/initContainers/0/securityContext/runAsNonRoot", json!(true)),
            ],
            &[("/spec/securityContext/runAsNonRoot", json!(false)), ("/spec/hostUsers", json!(false))],
            &[("/spec/securityContext/runAsUser", json!(1000))],
            &[("/spec/securityContext/runAsUser", json!(0))],
            &[
                ("/spec/containers/0/securityContext/runAsUser", json!(0)),
                ("/spec/containers/1/securityContext/runAsUser", json!(0)),
            ],
            &[("/spec/securityContext/runAsUser", json!(0)), ("/spec/hostUsers", json!(false))],
        ],
        &expect![[r#"
            /spec/sc/runAsNonRoot=null
              restricted v1.0..latest: runAsNonRoot != true (pod or containers "i", "a", "b", "e" must set securityContext.runAsNonRoot=true)
            /spec/sc/runAsNonRoot=false
              restricted v1.0..latest: runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)
            /spec/containers/0/sc/runAsNonRoot=false
              restricted v1.0..latest: runAsNonRoot != true (container "a" must not set securityContext.runAsNonRoot=false)
            /spec/sc/runAsNonRoot=null /spec/containers/0/sc/runAsNonRoot=true /spec/containers/1/sc/runAsNonRoot=true /spec/initContainers/0/sc/runAsNonRoot=true
              restricted v1.0..latest: runAsNonRoot != true (pod or container "e" must set securityContext.runAsNonRoot=true)
            /spec/sc/runAsNonRoot=false /spec/hostUsers=false
              restricted v1.0..v1.34: runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)
            /spec/sc/runAsUser=1000
            /spec/sc/runAsUser=0
              restricted v1.23..latest: runAsUser=0 (pod must not set runAsUser=0)
            /spec/containers/0/sc/runAsUser=0 /spec/containers/1/sc/runAsUser=0
              restricted v1.23..latest: runAsUser=0 (containers "a", "b" must not set runAsUser=0)
            /spec/sc/runAsUser=0 /spec/hostUsers=false
              restricted v1.23..v1.34: runAsUser=0 (pod must not set runAsUser=0)
        "#]],
    );
}
