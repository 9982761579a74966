"""Lists, watches, creates, patches, applies and deletes with lightkube. Prints one line for each."""
import os

from lightkube import ApiError, Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import ConfigMap, Node


def say(what, *values):
    print(what + ":", *values)


client = Client(KubeConfig.from_file(os.environ["KUBECONFIG"]), namespace="default")
say("nodes", len(list(client.list(Node))))
manifest = {
    "metadata": {"name": "lk"},
    "spec": {
        "selector": {"matchLabels": {"app": "lk"}},
        "template": {"metadata": {"labels": {"app": "lk"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}},
    },
}
created = client.create(DaemonSet.from_dict(manifest))
say("created", created.metadata.name)
for event, it in client.watch(DaemonSet, server_timeout=60):
    if it.metadata.name == "lk" and it.status.numberAvailable == 2:
        say("rolled out on", it.status.numberAvailable)
        break
patched = client.patch(DaemonSet, "lk", {"metadata": {"labels": {"patched": "yes"}}})
say("patched", patched.metadata.labels)
for manager, force in [("one", False), ("two", False), ("two", True)]:
    body = ConfigMap(metadata=ObjectMeta(name="lk"), data={"a": manager})
    body.apiVersion, body.kind = "v1", "ConfigMap"
    try:
        say(manager, "applied", client.apply(body, field_manager=manager, force=force).data)
    except ApiError as error:
        say(manager, error.status.code, error.status.reason)
client.delete(ConfigMap, "lk")
client.delete(DaemonSet, "lk")
try:
    client.get(DaemonSet, "lk")
except ApiError as error:
    say("deleted", error.status.code)
