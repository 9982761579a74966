use expect_test::expect;
use serde_json::json;

use super::{check, check_change, check_status, kind, said};
use crate::subresource::Subresource;

#[test]
fn nodes() {
    let taints = json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "-", "effect": "NoSchedule"}, {"key": "", "effect": "x"}, {"key": "b"}]);
    check(
        "Node",
        &json!({"spec": {"taints": taints, "podCIDRs": ["10.0.0.1/24", "x", "10.1.0.0/16"]}, "status": {"capacity": {"pods": "1500m", "cpu": "-1"}}}),
        &expect![[r#"
            metadata.taints[1].value: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            metadata.taints[1]: Duplicate value: {"Key":"a","Value":"-","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair
            metadata.taints[2].key: Invalid value: "": name part must be non-empty
            metadata.taints[2].key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.taints[2].effect: Unsupported value: "x": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
            metadata.taints[3].effect: Required value
            status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0
            status.capacity.pods: Invalid value: "1500m": must be an integer
            status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0
            status.allocatable.pods: Invalid value: "1500m": must be an integer
            spec.podCIDRs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length
            spec.podCIDRs[1]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
            spec.podCIDRs: Invalid value: ["10.0.0.1/24","x","10.1.0.0/16"]: may specify no more than one CIDR for each IP family"#]],
    );
    let old = json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "providerID": "a"}});
    let new = json!({"spec": {"podCIDRs": ["10.0.1.0/24"]}, "status": {"addresses": [{"type": "InternalIP", "address": "1"}, {"type": "InternalIP", "address": "1"}]}});
    check_change(
        "Node",
        &old,
        &new,
        &expect![[r#"
        status.addresses[1]: Duplicate value: {"Type":"InternalIP","Address":"1"}
        spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid
        spec.providerID: Forbidden: node updates may not change providerID except from "" to valid"#]],
    );
}

#[test]
fn services() {
    check("Service", &json!({"spec": {}}), &expect!["spec.ports: Required value"]);
    check(
        "Service",
        &json!({"spec": {
            "type": "ExternalName", "externalName": "A", "sessionAffinity": "x", "loadBalancerClass": "c",
            "ports": [{"port": 0, "nodePort": 1}, {"name": "a", "port": 80, "protocol": "x", "targetPort": "A"}, {"name": "a", "port": 80, "protocol": "x"}],
            "externalIPs": ["127.0.0.1", "x"], "externalTrafficPolicy": "Local", "trafficDistribution": "x",
        }}),
        &expect![[r#"
            spec.externalName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.ports[0].name: Required value
            spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ports[1].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"
            spec.ports[1].targetPort: Invalid value: "A": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
            spec.ports[1].targetPort: Invalid value: "A": must contain at least one letter (a-z)
            spec.ports[2].name: Duplicate value: "a"
            spec.ports[2].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"
            spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None"
            spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            spec.externalIPs[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            spec.ports[2]: Duplicate value: {"Name":"","Protocol":"x","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}
            spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'
            spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services
            spec.trafficDistribution: Unsupported value: "x": supported values: "PreferClose", "PreferSameZone", "PreferSameNode""#]],
    );
    let old = json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]}});
    let new = json!({"spec": {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "ports": [{"port": 80, "nodePort": 30000}]}});
    check_change(
        "Service",
        &old,
        &new,
        &expect![[r#"
        spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set
        spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"#]],
    );
}

#[test]
fn endpoints_and_slices() {
    let subsets = json!([{}, {"addresses": [{"ip": "x", "hostname": "A", "nodeName": "N"}, {"ip": "127.0.0.1"}], "ports": [{"port": 0}, {"name": "A", "port": 1, "protocol": "x"}]}]);
    check(
        "Endpoints",
        &json!({"subsets": subsets}),
        &expect![[r#"
        subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`
        subsets[1].addresses[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        subsets[1].addresses[0].hostname: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        subsets[1].addresses[0].nodeName: Invalid value: "N": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        subsets[1].addresses[0].ip: Invalid value: "x": must be a valid IP address
        subsets[1].addresses[1].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
        subsets[1].ports[0].name: Required value
        subsets[1].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
        subsets[1].ports[1].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        subsets[1].ports[1].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP""#]],
    );
    check(
        "EndpointSlice",
        &json!({"addressType": "IPv4", "ports": [{"name": "A"}, {"name": "A", "protocol": "x"}], "endpoints": [{}, {"addresses": ["::1", "169.254.0.1", "1.1.1.1"], "hostname": "a.b", "hints": {"forZones": [{"name": "z"}, {"name": "z"}]}}]}),
        &expect![[r#"
            ports[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            ports[1].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            ports[1].name: Duplicate value: "A"
            ports[1].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"
            endpoints[0].addresses: Required value: must contain at least 1 address
            endpoints[1].addresses: Invalid value: "::1": must be an IPv4 address
            endpoints[1].addresses[0]: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            endpoints[1].addresses[1]: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)
            endpoints[1].hostname: Invalid value: "a.b": must not contain dots
            endpoints[1].hints.forZones[1].name: Duplicate value: "z""#]],
    );
    check(
        "EndpointSlice",
        &json!({"addressType": "x"}),
        &expect![[r#"addressType: Unsupported value: "x": supported values: "FQDN", "IPv4", "IPv6""#]],
    );
}

#[test]
fn maps_and_secrets() {
    check(
        "ConfigMap",
        &json!({"data": {"a b": "", "k": ""}, "binaryData": {"..": "", "k": ""}}),
        &expect![[r#"
            data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
            data[k]: Invalid value: "k": duplicate of key present in binaryData
            binaryData[..]: Invalid value: "..": must not be '..'"#]],
    );
    let old = json!({"immutable": true, "data": {"a": "1"}});
    check_change(
        "ConfigMap",
        &old,
        &json!({"data": {"a": "2"}}),
        &expect![[r#"
        immutable: Forbidden: field is immutable when `immutable` is set
        data: Forbidden: field is immutable when `immutable` is set"#]],
    );
    check(
        "ConfigMap",
        &json!({"data": {"a": "x".repeat((1 << 20) + 1)}}),
        &expect![": Too long: may not be more than 1048576 bytes"],
    );
    check(
        "Secret",
        &json!({"type": "kubernetes.io/tls", "data": {"a b": ""}}),
        &expect![[r#"
        data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
        data[tls.crt]: Required value
        data[tls.key]: Required value"#]],
    );
    check(
        "Secret",
        &json!({"type": "kubernetes.io/basic-auth"}),
        &expect![[r#"
        data[username]: Required value
        data[password]: Required value"#]],
    );
    check(
        "Secret",
        &json!({"type": "kubernetes.io/service-account-token"}),
        &expect!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    );
    check_change(
        "Secret",
        &json!({"type": "a"}),
        &json!({"type": "b"}),
        &expect![[r#"type: Invalid value: "b": field is immutable"#]],
    );
}

#[test]
fn the_docker_configuration_of_a_secret() {
    check(
        "Secret",
        &json!({"type": "kubernetes.io/dockercfg"}),
        &expect!["data[.dockercfg]: Required value"],
    );
    // Deeper than a `Value` may be nested: the content is not parsed into one.
    let deep = format!(r#"{{"auths": {}{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
    for valid in ["{}", " null", r#"{"auths": {"a": {"auth": "Yjpj"}}}"#, &deep] {
        let secret =
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": valid}});
        check("Secret", &secret, &expect![""]);
    }
    for (content, why) in [
        ("", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{x", "invalid character in JSON"),
        ("{} {}", "invalid character in JSON"),
        (r#""{}""#, "json: cannot unmarshal string into Go value of type map[string]interface {}"),
        ("-1", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        ("\n true", "json: cannot unmarshal bool into Go value of type map[string]interface {}"),
        ("[{}]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ] {
        let secret =
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": content}});
        let expected =
            format!(r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": {why}"#);
        assert_eq!(said(kind("Secret"), &secret, None, Subresource::Whole), expected, "{content}");
    }
}

#[test]
fn limits() {
    let limits = json!([
        {"type": "Pod", "default": {"cpu": "1"}, "max": {"cpu": "1"}, "min": {"cpu": "2"}},
        {"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m", "memory": "3"}, "min": {"memory": "1Gi"}, "max": {"memory": "2Gi"}},
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}, "max": {"gpu": "1"}},
        {"type": "PersistentVolumeClaim"},
        {"type": "Thing"},
    ]);
    check(
        "LimitRange",
        &json!({"spec": {"limits": limits}}),
        &expect![[r#"
        spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'
        spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1
        spec.limits[1].type: Duplicate value: "Pod"
        spec.limits[1].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1
        spec.limits[1].maxLimitRequestRatio[memory]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000
        spec.limits[2].max[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
        spec.limits[2].max[gpu]: Invalid value: "gpu": must be a standard resource for containers
        spec.limits[2].default[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
        spec.limits[2].default[gpu]: Invalid value: "gpu": must be a standard resource for containers
        spec.limits[2].defaultRequest[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
        spec.limits[2].defaultRequest[gpu]: Invalid value: "gpu": must be a standard resource for containers
        spec.limits[2].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than default limit value 1
        spec.limits[3].limits: Required value: either minimum or maximum storage value is required, but neither was provided
        spec.limits[4].type: Invalid value: "Thing": must be a standard limit type or fully qualified"#]],
    );
    check(
        "ResourceQuota",
        &json!({"spec": {"hard": {"pods": "1.5", "gpu": "1", "count/pods": "1", "cpu": "-1"}, "scopes": ["BestEffort", "NotBestEffort", "x"]}}),
        &expect![[r#"
            spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0
            spec.hard[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
            spec.hard[gpu]: Invalid value: "gpu": must be a standard resource for quota
            spec.hard[pods]: Invalid value: "1.5": must be an integer
            spec.scopes: Invalid value: ["BestEffort","NotBestEffort","x"]: unsupported scope applied to resource
            spec.scopes: Invalid value: ["BestEffort","NotBestEffort","x"]: unsupported scope
            spec.scopes: Invalid value: ["BestEffort","NotBestEffort","x"]: conflicting scopes"#]],
    );
    let selector = json!({"matchExpressions": [{"scopeName": "BestEffort", "operator": "In"}, {"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}]});
    check(
        "ResourceQuota",
        &json!({"spec": {"hard": {"cpu": "1"}, "scopeSelector": selector}}),
        &expect![[r#"
        spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"In","Values":null},{"ScopeName":"PriorityClass","Operator":"Exists","Values":["a"]}]}: unsupported scope applied to resource
        spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity
        spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
        spec.scopeSelector.matchExpressions.values: Invalid value: ["a"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"#]],
    );
    check_change(
        "ResourceQuota",
        &json!({"spec": {"scopes": ["Terminating"]}}),
        &json!({"spec": {}}),
        &expect!["spec.scopes: Invalid value: null: field is immutable"],
    );
}

#[test]
fn the_small_ones() {
    check(
        "Namespace",
        &json!({"metadata": {"name": "a.b"}, "spec": {"finalizers": ["x"]}}),
        &expect![[r#"
        metadata.name: Invalid value: "a.b": must not contain dots
        spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified"#]],
    );
    check_status(
        "Namespace",
        &json!({}),
        &json!({"status": {"phase": "Terminating"}}),
        &expect![[
            r#"status.Phase: Invalid value: "Terminating": may only be 'Active' if `deletionTimestamp` is empty"#
        ]],
    );
    check(
        "PriorityClass",
        &json!({"metadata": {"name": "system-x"}, "value": 1}),
        &expect![
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"
        ],
    );
    check(
        "PriorityClass",
        &json!({"value": 2_000_000_000, "preemptionPolicy": "x"}),
        &expect![[r#"
        value: Forbidden: maximum allowed value of a user defined priority is 1000000000
        preemptionPolicy: Unsupported value: "x": supported values: "PreemptLowerPriority", "Never""#]],
    );
    check_change(
        "PriorityClass",
        &json!({"value": 1}),
        &json!({"value": 2, "preemptionPolicy": "Never"}),
        &expect![[r#"
            value: Forbidden: may not be changed in an update.
            preemptionPolicy: Invalid value: "Never": field is immutable"#]],
    );
    check("RuntimeClass", &json!({"scheduling": {}}), &expect!["handler: Required value"]);
    let twice = json!([{"key": "k", "operator": "Exists"}, {"key": "k", "operator": "Exists", "tolerationSeconds": 5}]);
    check(
        "RuntimeClass",
        &json!({
            "handler": "a.b",
            "overhead": {"podFixed": {"gpu": "1"}},
            "scheduling": {"nodeSelector": {"a b": "c"}, "tolerations": twice},
        }),
        &expect![[r#"
            handler: Invalid value: "a.b": must not contain dots
            overhead.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
            overhead.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers
            scheduling.nodeSelector: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            scheduling.tolerations[1].effect: Invalid value: "": effect must be 'NoExecute' when `tolerationSeconds` is set
            scheduling.tolerations[1]: Duplicate value: {"Key":"k","Operator":"Exists","Value":"","Effect":"","TolerationSeconds":5}"#]],
    );
    check(
        "PodDisruptionBudget",
        &json!({"spec": {"minAvailable": "101%", "maxUnavailable": -1, "unhealthyPodEvictionPolicy": "x"}}),
        &expect![[r#"
            spec: Invalid value: {"MinAvailable":"101%","Selector":null,"MaxUnavailable":-1,"UnhealthyPodEvictionPolicy":"x"}: minAvailable and maxUnavailable cannot be both set
            spec.minAvailable: Invalid value: "101%": must not be greater than 100%
            spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0
            spec.unhealthyPodEvictionPolicy: Unsupported value: "x": supported values: "AlwaysAllow", "IfHealthyBudget""#]],
    );
    check(
        "Lease",
        &json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1, "preferredHolder": "h"}}),
        &expect![[r#"
            spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0
            spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"#]],
    );
    check(
        "Event",
        &json!({"involvedObject": {"namespace": "other"}}),
        &expect![[r#"involvedObject.namespace: Invalid value: "other": does not match event.namespace"#]],
    );
    check(
        "Event",
        &json!({"involvedObject": {}, "eventTime": "2026-01-01T00:00:00.000000Z"}),
        &expect![[r#"
        reportingComponent: Required value
        reportingComponent: Invalid value: "": name part must be non-empty
        reportingComponent: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        reportingInstance: Required value
        action: Required value
        reason: Required value"#]],
    );
}

#[test]
fn authority() {
    check(
        "Role",
        &json!({"metadata": {"name": "a:b/c"}, "rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/a"]}]}),
        &expect![[r#"
            metadata.name: Invalid value: "a:b/c": may not contain '/'
            rules[0].verbs: Required value: verbs must contain at least one value
            rules[0].apiGroups: Required value: resource rules must supply at least one api group
            rules[0].resources: Required value: resource rules must supply at least one resource
            rules[1].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs"#]],
    );
    check(
        "ClusterRole",
        &json!({"aggregationRule": {}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["x"]}]}),
        &expect![[r#"
            rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs
            aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"#]],
    );
    check(
        "ClusterRoleBinding",
        &json!({"roleRef": {"kind": "Role"}, "subjects": [{"kind": "ServiceAccount", "name": "A"}, {"kind": "x", "name": "u"}, {"kind": "User", "apiGroup": "x"}]}),
        &expect![[r#"
            roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"
            roleRef.name: Required value
            subjects[0].name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            subjects[0].namespace: Required value
            subjects[1].kind: Unsupported value: "x": supported values: "ServiceAccount", "User", "Group"
            subjects[2].name: Required value
            subjects[2].apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#]],
    );
    let old = json!({"roleRef": {"kind": "Role", "name": "a"}});
    check_change(
        "RoleBinding",
        &old,
        &json!({"roleRef": {"kind": "Role", "name": "b"}}),
        &expect![[
            r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}: cannot change roleRef"#
        ]],
    );
    check(
        "CertificateSigningRequest",
        &json!({"spec": {"request": "", "usages": ["x", "any", "any"], "signerName": "a/b", "expirationSeconds": 1}}),
        &expect![[r#"
            spec.request: Invalid value: "": PEM block type must be CERTIFICATE REQUEST
            spec.usages[0]: Unsupported value: "x": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"
            spec.usages[2]: Duplicate value: "any"
            spec.signerName: Invalid value: "a": should be a domain with at least two segments separated by dots
            spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 600 seconds (10 minutes)"#]],
    );
}
