"""What a user of Python's client does: create, read, patch, apply, watch, logs, exec, delete. Prints one line for each."""
import json
import os

import websocket
from kubernetes import client, config, dynamic, stream, watch

config.load_kube_config(os.environ["KUBECONFIG"])
core, apps = client.CoreV1Api(), client.AppsV1Api()


def say(what, *values):
    print(what + ":", *values)


def cause(error):
    return error.status, json.loads(error.body)["reason"]


template = {"metadata": {"labels": {"app": "py"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}
manifest = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "py"},
    "spec": {"selector": {"matchLabels": {"app": "py"}}, "template": template},
}

created = apps.create_namespaced_daemon_set("default", manifest)
say("created", created.metadata.name, created.spec.update_strategy.type, created.metadata.generation)
try:
    apps.create_namespaced_daemon_set("default", manifest)
except client.ApiException as error:
    say("created again", *cause(error))

rolled_out = watch.Watch()
for event in rolled_out.stream(apps.list_namespaced_daemon_set, "default", field_selector="metadata.name=py", timeout_seconds=60):
    if event["object"].status.number_available == 2:
        rolled_out.stop()
say("rolled out on", len(core.list_namespaced_pod("default", label_selector="app=py").items), "nodes")

patched = apps.patch_namespaced_daemon_set("py", "default", {"metadata": {"labels": {"patched": "merge"}}})
say("patched", patched.metadata.labels)
patched = apps.patch_namespaced_daemon_set("py", "default", [{"op": "add", "path": "/metadata/labels/also", "value": "json"}])
say("patched", patched.metadata.labels)

stale = apps.read_namespaced_daemon_set("py", "default")
fresh = apps.read_namespaced_daemon_set("py", "default")
fresh.spec.min_ready_seconds = 1
say("replaced", apps.replace_namespaced_daemon_set("py", "default", fresh).spec.min_ready_seconds)
stale.spec.min_ready_seconds = 2
try:
    apps.replace_namespaced_daemon_set("py", "default", stale)
except client.ApiException as error:
    say("replaced a stale one", *cause(error))

maps = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")


def apply(manager, force=False, **data):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "py"}, "data": data}
    applied = maps.server_side_apply(body, namespace="default", field_manager=manager, force_conflicts=force)
    managers = sorted(it.manager for it in applied.metadata.managedFields)
    say(manager, "applied", dict(applied.data), "managed by", managers)


apply("one", a="1", b="1")
apply("two", c="2")
try:
    apply("two", a="2")
except Exception as error:
    say("two applied what is one's", *cause(error))
apply("two", force=True, a="2")
apply("one", a="2")

begin = core.list_namespaced_config_map("default").metadata.resource_version
core.create_namespaced_config_map("default", {"metadata": {"name": "seen"}, "data": {"k": "1"}})
core.patch_namespaced_config_map("seen", "default", {"data": {"k": "2"}})
core.delete_namespaced_config_map("seen", "default")
seen = watch.Watch()
for event in seen.stream(core.list_namespaced_config_map, "default", resource_version=begin, timeout_seconds=60):
    say("seen", event["type"], event["object"].metadata.name, event["object"].data)
    if event["type"] == "DELETED":
        seen.stop()

# The package brings a WebSocket client, and other clients watch over one.
loaded = core.api_client.configuration
begun = websocket.create_connection(
    loaded.host.replace("https", "wss") + "/api/v1/watch/namespaces/default/configmaps/py?timeoutSeconds=60",
    sslopt={"ca_certs": loaded.ssl_ca_cert, "certfile": loaded.cert_file, "keyfile": loaded.key_file},
)
event = json.loads(begun.recv())
say("over a WebSocket", event["type"], event["object"]["kind"], event["object"]["metadata"]["name"])
begun.close()

pod = core.list_namespaced_pod("default", label_selector="app=py").items[0].metadata.name
try:
    core.read_namespaced_pod_log(pod, "default", follow=True, timestamps=True)
except client.ApiException as error:
    say("logs of a simulated pod", error.status)
try:
    stream.stream(core.connect_get_namespaced_pod_exec, pod, "default", command=["true"], stdout=True, stderr=True)
except Exception as error:
    say("exec in a simulated pod", type(error).__name__, "503" in str(error) or getattr(error, "status", ""))

pages, token = [], None
while token != "":
    page = core.list_namespace(limit=3, _continue=token) if token else core.list_namespace(limit=3)
    pages.append(len(page.items))
    token = page.metadata._continue or ""
say("namespaces in pages of", *pages)

core.delete_namespaced_config_map("py", "default")
deleted = apps.delete_namespaced_daemon_set("py", "default")
say("deleted", core.api_client.sanitize_for_serialization(deleted)["status"])
