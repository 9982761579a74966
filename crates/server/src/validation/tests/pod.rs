use expect_test::expect;
use serde_json::{Value, json};

use super::{check, check_change, check_status, container_with, pod_with};

#[test]
fn metadata() {
    let mut pod = pod_with(json!({}));
    pod["metadata"] = json!({
        "name": "a_b",
        "generateName": "X-",
        "labels": {"a b": "-"},
        "annotations": {"/": "", "seccomp.security.alpha.kubernetes.io/pod": "none"},
        "finalizers": ["a b", "orphan", "foregroundDeletion"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": true},
            {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": true},
            {"apiVersion": "", "kind": "", "name": ""},
        ],
    });
    check(
        "Pod",
        &pod,
        &expect![[r#"
            metadata.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.labels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            metadata.annotations: Invalid value: "/": prefix part must be non-empty
            metadata.annotations: Invalid value: "/": name part must be non-empty
            metadata.annotations: Invalid value: "/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"A","name":"a","uid":"1","controller":true},{"apiVersion":"v1","kind":"B","name":"b","uid":"2","controller":true},{"apiVersion":"","kind":"","name":"","uid":""}]: Only one reference can have Controller set to true. Found "true" in references for A/a and B/b
            metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty
            metadata.ownerReferences.kind: Invalid value: "": must not be empty
            metadata.ownerReferences.name: Invalid value: "": must not be empty
            metadata.ownerReferences.uid: Invalid value: "": must not be empty
            metadata.finalizers: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.finalizers: Invalid value: ["a b","orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set
            metadata.finalizers[0]: Invalid value: "a b": name is neither a standard finalizer name nor is it fully qualified
            metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "none": must be a valid seccomp profile"#]],
    );
}

#[test]
fn containers() {
    check("Pod", &json!({}), &expect!["spec.containers: Required value"]);
    let containers = json!([
        {"name": "C", "image": "i", "terminationMessagePolicy": "x", "imagePullPolicy": "Sometimes"},
        {"image": " i", "ports": [
            {"containerPort": 0, "name": "a_b"},
            {"containerPort": 70000, "hostPort": -1, "name": "web", "protocol": "ICMP"},
            {"containerPort": 1, "hostPort": 1, "name": "web"},
        ]},
        {"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]},
        {"name": "c", "image": "i"},
    ]);
    check(
        "Pod",
        &pod_with(json!({"containers": containers})),
        &expect![[r#"
        spec.containers[0].name: Invalid value: "C": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.containers[0].terminationMessagePolicy: Unsupported value: "x": supported values: "File", "FallbackToLogsOnError"
        spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"
        spec.containers[1].name: Required value
        spec.containers[1].ports[0].name: Invalid value: "a_b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
        spec.containers[1].ports[0].containerPort: Required value
        spec.containers[1].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive
        spec.containers[1].ports[1].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive
        spec.containers[1].ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
        spec.containers[1].ports[2].name: Duplicate value: "web"
        spec.containers[2].image: Required value
        spec.containers[3].name: Duplicate value: "c"
        spec.containers[2].ports[0].hostPort: Duplicate value: "TCP//1"
        spec.containers[1].image: Invalid value: " i": must not have leading or trailing whitespace"#]],
    );
    let init = json!([
        {"name": "c", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}},
        {"name": "s", "image": "i", "restartPolicy": "Always", "livenessProbe": {"exec": {}}},
        {"name": "t", "image": "i", "restartPolicy": "Sometimes"},
    ]);
    check(
        "Pod",
        &pod_with(json!({"initContainers": init})),
        &expect![[r#"
        spec.initContainers[0].name: Duplicate value: "c"
        spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always
        spec.initContainers[1].livenessProbe.exec.command: Required value
        spec.initContainers[2].restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure""#]],
    );
    check(
        "Pod",
        &pod_with(json!({
            "hostNetwork": true,
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 2}]}],
        })),
        &expect![
            "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true"
        ],
    );
}

#[test]
fn environment() {
    let env = json!([
        {"name": ""},
        {"name": "a=b"},
        {"name": "ok", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "none", "valueFrom": {}},
        {"name": "two", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}, "configMapKeyRef": {"name": "", "key": ".."}}},
        {"name": "field", "valueFrom": {"fieldRef": {"fieldPath": "spec.what"}}},
        {"name": "labels", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}},
        {"name": "label", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}},
        {"name": "cpu", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1M"}}},
        {"name": "gpu", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}},
    ]);
    check(
        "Pod",
        &container_with(json!({"env": env})),
        &expect![[r#"
        spec.containers[0].env[0].name: Required value
        spec.containers[0].env[1].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='
        spec.containers[0].env[2].valueFrom: Invalid value: "": may not be specified when `value` is not empty
        spec.containers[0].env[3].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`
        spec.containers[0].env[4].valueFrom.configMapKeyRef.name: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.containers[0].env[4].valueFrom.configMapKeyRef.key: Invalid value: "..": must not be '..'
        spec.containers[0].env[4].valueFrom: Invalid value: "": may not have more than one field specified at a time
        spec.containers[0].env[5].valueFrom.fieldRef.fieldPath: Invalid value: "spec.what": error converting fieldPath: field label not supported: spec.what
        spec.containers[0].env[6].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"
        spec.containers[0].env[7].valueFrom.fieldRef: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.containers[0].env[8].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource
        spec.containers[0].env[9].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory""#]],
    );
    let from = json!([{}, {"prefix": "a=", "configMapRef": {"name": ""}, "secretRef": {"name": "A"}}]);
    check(
        "Pod",
        &container_with(json!({"envFrom": from})),
        &expect![[r#"
        spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`
        spec.containers[0].envFrom[1].prefix: Invalid value: "a=": a valid environment variable name must consist only of printable ASCII characters other than '='
        spec.containers[0].envFrom[1].configMapRef.name: Required value
        spec.containers[0].envFrom[1].secretRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.containers[0].envFrom: Invalid value: "": may not have more than one field specified at a time"#]],
    );
}

#[test]
fn volumes_and_mounts() {
    let volumes = json!([
        {"name": "two", "emptyDir": {}, "hostPath": {"path": "/a"}},
        {"name": "host", "hostPath": {"path": "/a/../b", "type": "Dir"}},
        {"name": "Bad", "secret": {"secretName": "", "defaultMode": 512, "items": [{"key": "", "path": "/a"}, {"key": "k", "path": "..a", "mode": -1}]}},
        {"name": "map", "configMap": {}},
        {"name": "nfs", "nfs": {"server": "s", "path": "a"}},
        {"name": "iscsi", "iscsi": {"targetPortal": "p", "iqn": "x", "lun": 300}},
        {"name": "pvc", "persistentVolumeClaim": {}},
        {"name": "projected", "projected": {"sources": [
            {"serviceAccountToken": {"expirationSeconds": 1, "path": "../a"}},
            {"secret": {"name": "s", "items": [{"key": "a", "path": "p"}]}, "configMap": {"items": [{"key": "a", "path": "p"}]}},
            {"downwardAPI": {"items": [{"path": "p"}]}},
        ]}},
        {"name": "csi", "csi": {"driver": "a b"}},
        {"name": "azure", "azureDisk": {"kind": "Managed", "cachingMode": "x", "diskName": "d", "diskURI": "u"}},
        {"name": "claim", "ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "n"}, "spec": {"accessModes": ["x"]}}}},
        {"name": "size", "emptyDir": {"sizeLimit": "-1"}},
    ]);
    check(
        "Pod",
        &pod_with(json!({"volumes": volumes})),
        &expect![[r#"
        spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type
        spec.volumes[1].hostPath.path: Invalid value: "/a/../b": must not contain '..'
        spec.volumes[1].hostPath.type: Unsupported value: "Dir": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"
        spec.volumes[2].secret.secretName: Required value
        spec.volumes[2].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive
        spec.volumes[2].secret.items[0].key: Required value
        spec.volumes[2].secret.items[0].path: Invalid value: "/a": must be a relative path
        spec.volumes[2].secret.items[1].path: Invalid value: "..a": must not start with '..'
        spec.volumes[2].secret.items[1].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive
        spec.volumes[2].name: Invalid value: "Bad": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.volumes[3].configMap.name: Required value
        spec.volumes[4].nfs.path: Invalid value: "a": must be an absolute path
        spec.volumes[5].iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa
        spec.volumes[5].iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive
        spec.volumes[6].persistentVolumeClaim.claimName: Required value
        spec.volumes[7].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes
        spec.volumes[7].projected.path: Invalid value: "../a": must not contain '..'
        spec.volumes[7].projected.sources[1].configMap.name: Required value
        spec.volumes[7].projected: Invalid value: "": conflicting duplicate paths
        spec.volumes[7].projected.sources[1]: Forbidden: may not specify more than 1 volume type per source
        spec.volumes[7].projected.sources[2].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required
        spec.volumes[7].projected: Invalid value: "p": conflicting duplicate paths
        spec.volumes[8].csi.driver: Invalid value: "a b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.volumes[9].azureDisk.cachingMode: Unsupported value: "x": supported values: "None", "ReadOnly", "ReadWrite"
        spec.volumes[9].azureDisk.diskURI: Unsupported value: "u": supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        spec.volumes[10].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set
        spec.volumes[10].ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: "x": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"
        spec.volumes[10].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value
        spec.volumes[11].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity
        spec.volumes[7].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set"#]],
    );
    check(
        "Pod",
        &pod_with(json!({"volumes": [{"name": "a"}, {"name": "a"}, {}]})),
        &expect![[r#"
        spec.volumes[1].name: Duplicate value: "a"
        spec.volumes[2].name: Required value"#]],
    );
    let mounts = json!([
        {"name": "v", "mountPath": "/a"},
        {"name": "v", "mountPath": "/a", "subPath": "../x"},
        {"name": "w", "mountPath": "", "subPath": "/x", "subPathExpr": "y"},
        {"name": "v", "mountPath": "/b", "mountPropagation": "Bidirectional"},
        {"name": "v", "mountPath": "/c", "mountPropagation": "Up", "recursiveReadOnly": "Enabled"},
    ]);
    let mut pod =
        container_with(json!({"volumeMounts": mounts, "volumeDevices": [{"name": "v", "devicePath": "/a"}]}));
    pod["spec"]["volumes"] = json!([{"name": "v"}]);
    check(
        "Pod",
        &pod,
        &expect![[r#"
        spec.containers[0].volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices
        spec.containers[0].volumeMounts[0].mountPath: Invalid value: "/a": must not already exist as a path in volumeDevices
        spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique
        spec.containers[0].volumeMounts[1].name: Invalid value: "v": must not already exist in volumeDevices
        spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must not already exist as a path in volumeDevices
        spec.containers[0].volumeMounts.subPath: Invalid value: "../x": must not contain '..'
        spec.containers[0].volumeMounts[2].name: Not found: "w"
        spec.containers[0].volumeMounts[2].mountPath: Required value
        spec.containers[0].volumeMounts.subPath: Invalid value: "/x": must be a relative path
        spec.containers[0].volumeMounts[2].subPathExpr: Invalid value: "y": subPathExpr and subPath are mutually exclusive
        spec.containers[0].volumeMounts[3].name: Invalid value: "v": must not already exist in volumeDevices
        spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers
        spec.containers[0].volumeMounts[4].name: Invalid value: "v": must not already exist in volumeDevices
        spec.containers[0].volumeMounts.mountPropagation: Unsupported value: "Up": supported values: "Bidirectional", "HostToContainer", "None"
        spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true
        spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified
        spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode
        spec.containers[0].volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts
        spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/a": must not already exist as a path in volumeMounts"#]],
    );
}

#[test]
fn amounts() {
    let resources = json!({
        "limits": {"cpu": "1", "gpu": "1", "example.com/gpu": "1500m", "memory": "-1", "hugepages-2Mi": "1Mi"},
        "requests": {"cpu": "2", "example.com/gpu": "2", "example.com/tpu": "1", "kubernetes.io/x": "1"},
    });
    check(
        "Pod",
        &container_with(json!({"resources": resources})),
        &expect![[r#"
        spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer
        spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
        spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers
        spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi
        spec.containers[0].resources.limits[memory]: Invalid value: "-1": must be greater than or equal to 0
        spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1
        spec.containers[0].resources.requests: Invalid value: "2": must be equal to example.com/gpu limit of 1500m
        spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources
        spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
        spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers
        spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi
        spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0"#]],
    );
    check(
        "Pod",
        &container_with(json!({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}})),
        &expect!["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
    );
    check(
        "Pod",
        &pod_with(json!({
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}],
            "resources": {"limits": {"cpu": "1", "storage": "1"}, "requests": {"cpu": "1"}},
        })),
        &expect![[r#"
            spec.resources.limits[storage]: Unsupported value: "storage": supported values: "cpu", "hugepages-", "memory"
            spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2
            spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1"#]],
    );
}

#[test]
fn probes_and_hooks() {
    check(
        "Pod",
        &container_with(json!({
            "livenessProbe": {"successThreshold": 2, "terminationGracePeriodSeconds": 0},
            "readinessProbe": {"httpGet": {"port": 0, "scheme": "FTP", "httpHeaders": [{"name": "a b"}]}, "tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 1},
            "startupProbe": {"tcpSocket": {"port": "Web"}, "periodSeconds": -1},
            "lifecycle": {"preStop": {"sleep": {"seconds": 31}}, "postStart": {}, "stopSignal": "SIGTERM"},
        })),
        &expect![[r#"
            spec.containers[0].lifecycle.postStart: Required value: must specify a handler type
            spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)
            spec.containers[0].livenessProbe: Required value: must specify a handler type
            spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0
            spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
            spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS"
            spec.containers[0].readinessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')
            spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type
            spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes
            spec.containers[0].startupProbe.tcpSocket.port: Invalid value: "Web": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
            spec.containers[0].startupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0"#]],
    );
}

#[test]
fn security() {
    check(
        "Pod",
        &container_with(json!({"securityContext": {
            "runAsUser": -1,
            "privileged": true,
            "allowPrivilegeEscalation": false,
            "procMount": "Unmasked",
            "seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a"},
            "appArmorProfile": {"type": "Localhost"},
            "windowsOptions": {"runAsUserName": "a\\b\\c"},
        }})),
        &expect![[r#"
            spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive
            spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`
            spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"RuntimeDefault","LocalhostProfile":"a"}: can only be set when seccomp type is Localhost
            spec.containers[0].securityContext: Invalid value: {"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":{"runAsUserName":"a\\b\\c"},"RunAsUser":-1,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":"Unmasked","SeccompProfile":{"localhostProfile":"a","type":"RuntimeDefault"},"AppArmorProfile":{"type":"Localhost"}}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true
            spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: "a\\b\\c": runAsUserName cannot contain more than one backslash
            spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"#]],
    );
    check(
        "Pod",
        &pod_with(json!({
            "hostPID": true,
            "hostNetwork": true,
            "shareProcessNamespace": true,
            "hostUsers": false,
            "os": {"name": "windows"},
            "securityContext": {
                "fsGroup": -1,
                "supplementalGroups": [1, -1],
                "fsGroupChangePolicy": "x",
                "sysctls": [{"name": "net.ipv4.a"}, {"name": "A"}, {"name": ""}],
                "seccompProfile": {"type": "Localhost", "localhostProfile": "/a"},
            },
        })),
        &expect![[r#"
            spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive
            spec.securityContext.supplementalGroups[1]: Invalid value: -1: must be between 0 and 2147483647, inclusive
            spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled
            spec.securityContext.sysctls[0].name: Invalid value: "net.ipv4.a": may not be specified when 'hostNetwork' is true
            spec.securityContext.sysctls[1].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$
            spec.securityContext.sysctls[2].name: Required value
            spec.securityContext.fsGroupChangePolicy: Unsupported value: "x": supported values: "Always", "OnRootMismatch"
            spec.securityContext.seccompProfile.localhostProfile: Invalid value: "/a": must be a relative path
            spec.hostNetwork: Forbidden: when `hostUsers` is false
            spec.HostPID: Forbidden: when `hostUsers` is false
            spec.hostUsers: Forbidden: cannot be set for a windows pod
            spec.hostPID: Forbidden: cannot be set for a windows pod
            spec.securityContext.seccompProfile: Forbidden: cannot be set for a windows pod
            spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod
            spec.securityContext.fsGroupChangePolicy: Forbidden: cannot be set for a windows pod
            spec.securityContext.sysctls: Forbidden: cannot be set for a windows pod
            spec.shareProcessNamespace: Forbidden: cannot be set for a windows pod
            spec.securityContext.supplementalGroups: Forbidden: cannot be set for a windows pod"#]],
    );
}

#[test]
fn where_it_may_run() {
    let tolerations = json!([
        {},
        {"operator": "Exists", "value": "x"},
        {"key": "a b", "operator": "Equal", "value": "-", "effect": "x"},
        {"key": "a", "operator": "Gt", "value": "1", "tolerationSeconds": 1},
    ]);
    check(
        "Pod",
        &pod_with(json!({"tolerations": tolerations, "nodeSelector": {"a b": "-"}})),
        &expect![[r#"
        spec.nodeSelector: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.nodeSelector: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
        spec.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys"
        spec.tolerations[1].operator: Invalid value: "x": value must be empty when `operator` is 'Exists'
        spec.tolerations[2].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.tolerations[2].operator: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
        spec.tolerations[2].effect: Unsupported value: "x": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
        spec.tolerations[3].effect: Invalid value: "": effect must be 'NoExecute' when `tolerationSeconds` is set
        spec.tolerations[3].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt""#]],
    );
    let affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "", "operator": "Gt", "values": ["-", "2"]}]},
                {"matchFields": [{"key": "metadata.uid", "operator": "Exists"}, {"key": "metadata.name", "operator": "In", "values": ["A"]}]},
            ]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "x"}]}}],
        },
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "", "namespaces": ["A"]}]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": {"topologyKey": "a", "matchLabelKeys": ["k"]}}]},
    });
    check(
        "Pod",
        &pod_with(json!({"affinity": affinity})),
        &expect![[r#"
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].key: Invalid value: "": name part must be non-empty
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values[0]: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchFields[0].operator: Invalid value: "Exists": not a valid selector operator
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchFields[0].key: Invalid value: "metadata.uid": not a valid field selector key
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchFields[1].values[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100
        spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].operator: Invalid value: "x": not a valid selector operator
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespace: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must be non-empty
        spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100
        spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"#]],
    );
    let spread = json!([
        {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "x", "minDomains": 1},
        {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "x"},
        {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"},
    ]);
    check(
        "Pod",
        &pod_with(json!({"topologySpreadConstraints": spread})),
        &expect![[r#"
        spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero
        spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty
        spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "x": supported values: "DoNotSchedule", "ScheduleAnyway"
        spec.topologySpreadConstraints[0].minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not x
        spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: "{z, DoNotSchedule}"
        spec.topologySpreadConstraints[1].nodeTaintsPolicy: Unsupported value: "x": supported values: "Honor", "Ignore""#]],
    );
}

#[test]
fn the_rest_of_a_spec() {
    check(
        "Pod",
        &pod_with(json!({
            "restartPolicy": "Sometimes",
            "dnsPolicy": "None",
            "hostname": "a.b",
            "subdomain": "A",
            "nodeName": "N",
            "serviceAccountName": "S",
            "priorityClassName": "P",
            "runtimeClassName": "R",
            "preemptionPolicy": "x",
            "activeDeadlineSeconds": 0,
            "readinessGates": [{"conditionType": "a b"}],
            "schedulingGates": [{"name": "g"}, {"name": "g"}],
            "hostAliases": [{"ip": "010.0.0.1", "hostnames": ["H"]}],
            "overhead": {"gpu": "1"},
            "os": {"name": "plan9"},
            "ephemeralContainers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}], "targetContainerName": "x"}],
        })),
        &expect![[r#"
            spec.ephemeralContainers[0].name: Duplicate value: "c"
            spec.ephemeralContainers[0].targetContainerName: Not found: "x"
            spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container
            spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"
            spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None
            spec.readinessGates[0].conditionType: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec.schedulingGates[1]: Duplicate value: "g"
            spec.serviceAccountName: Invalid value: "S": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.nodeName: Invalid value: "N": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive
            spec.hostname: Invalid value: "a.b": must not contain dots
            spec.subdomain: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.hostAliases[0].ip: Invalid value: "010.0.0.1": must not have leading 0s
            spec.hostAliases[0].hostnames[0]: Invalid value: "H": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.priorityClassName: Invalid value: "P": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.runtimeClassName: Invalid value: "R": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.preemptionPolicy: Unsupported value: "x": supported values: "PreemptLowerPriority", "Never"
            spec.overhead.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
            spec.overhead.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers
            spec.os: Unsupported value: "plan9": supported values: "linux", "windows"
            spec.ephemeralContainers: Forbidden: cannot be set on create
            spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"#]],
    );
    check(
        "Pod",
        &pod_with(json!({
            "dnsConfig": {"nameservers": ["1.1.1.1", "x", "::ffff:1.2.3.4", "::1"], "searches": ["_a.b", "A", "."], "options": [{}]},
        })),
        &expect![[r#"
            spec.dnsConfig.nameservers: Invalid value: ["1.1.1.1","x","::ffff:1.2.3.4","::1"]: must not have more than 3 nameservers
            spec.dnsConfig.nameservers[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            spec.dnsConfig.nameservers[2]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address
            spec.dnsConfig.searches[1]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')
            spec.dnsConfig.options[0]: Required value: must not be empty"#]],
    );
}

#[test]
fn mutable_fields_of_a_pod() {
    let old =
        pod_with(json!({"tolerations": [{"key": "a", "operator": "Exists"}], "activeDeadlineSeconds": 10}));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new["spec"]);
        new
    };
    let fine = with(&|it| {
        it["containers"][0]["image"] = json!("j");
        it["tolerations"] =
            json!([{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists", "effect": null}]);
        it["activeDeadlineSeconds"] = json!(5);
    });
    check_change("Pod", &old, &with(&|it| it["containers"][0]["image"] = json!("j")), &expect![""]);
    check_change(
        "Pod",
        &old,
        &with(&|it| it["containers"][0]["image"] = json!("")),
        &expect![[r#"
        spec.containers[0].image: Required value
        spec.containers[0].image: Required value
        spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"#]],
    );
    check_change(
        "Pod",
        &old,
        &with(&|it| it["containers"][0]["name"] = json!("d")),
        &expect![
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        ],
    );
    check_change(
        "Pod",
        &old,
        &with(&|it| it["nodeName"] = json!("n")),
        &expect![
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        ],
    );
    check_change(
        "Pod",
        &old,
        &with(&|it| it["tolerations"] = json!([])),
        &expect![
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
        ],
    );
    check_change(
        "Pod",
        &old,
        &with(&|it| it["activeDeadlineSeconds"] = json!(11)),
        &expect![
            "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"
        ],
    );
    check_change(
        "Pod",
        &old,
        &with(&|it| it["activeDeadlineSeconds"] = json!(null)),
        &expect![
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"
        ],
    );
    check_change(
        "Pod",
        &old,
        &with(&|it| it["schedulingGates"] = json!([{"name": "g"}])),
        &expect![
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"
        ],
    );
    check_change(
        "Pod",
        &old,
        &with(&|it| it["containers"] = json!([])),
        &expect![[r#"
        spec.containers: Required value
        spec.containers: Forbidden: pod updates may not add or remove containers"#]],
    );
    drop(fine);
    let gated = pod_with(json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}}));
    check_change("Pod", &gated, &pod_with(json!({"nodeSelector": {"a": "b", "c": "d"}})), &expect![""]);
    check_change(
        "Pod",
        &gated,
        &pod_with(json!({"nodeSelector": {"c": "d"}})),
        &expect![[
            r#"spec.nodeSelector: Invalid value: {"c":"d"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"#
        ]],
    );
}

#[test]
fn a_status_of_a_pod() {
    let mut old = pod_with(json!({"restartPolicy": "Never", "nodeName": "n"}));
    old["status"] = json!({"qosClass": "BestEffort", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]});
    let mut new = old.clone();
    new["status"] = json!({
        "qosClass": "Burstable",
        "nominatedNodeName": "m",
        "conditions": [{"type": "a b"}],
        "containerStatuses": [{"name": "c", "state": {"running": {}}}],
        "podIPs": [{"ip": "1.1.1.1"}, {"ip": "x"}],
        "hostIP": "1.1.1.2",
        "hostIPs": [{"ip": "1.1.1.1"}],
    });
    check_status(
        "Pod",
        &old,
        &new,
        &expect![[r#"
        status.conditions[0].Type: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node
        status.qosClass: Invalid value: "Burstable": field is immutable
        status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state
        status.podIPs[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        status.podIPs: Invalid value: [{"IP":"1.1.1.1"},{"IP":"x"}]: may specify no more than one IP for each IP family
        status.hostIPs[0].ip: Invalid value: "1.1.1.1": must be equal to `hostIP`"#]],
    );
}
