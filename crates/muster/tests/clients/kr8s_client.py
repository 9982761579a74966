"""Lists, watches, creates, patches and deletes with kr8s. Prints one line for each."""
import os
import warnings

warnings.simplefilter("ignore")

import kr8s
from kr8s.objects import ConfigMap, DaemonSet


def say(what, *values):
    print(what + ":", *values)


api = kr8s.api(kubeconfig=os.environ["KUBECONFIG"])
say("nodes", len(list(api.get("nodes"))))
template = {"metadata": {"labels": {"app": "kr"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}
manifest = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "kr", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "kr"}}, "template": template},
}
created = DaemonSet(manifest, api=api)
created.create()
say("created", created.name)
for event, it in api.watch("daemonsets", namespace="default"):
    if it.name == "kr" and it.raw.get("status", {}).get("numberAvailable") == 2:
        say("rolled out, by", event)
        break
created.patch({"metadata": {"labels": {"patched": "yes"}}})
say("patched", dict(created.labels))
made = ConfigMap({"metadata": {"name": "kr", "namespace": "default"}, "data": {"a": "1"}}, api=api)
made.create()
made.delete()
say("config map is there", made.exists())
created.delete()
say("deleted, is there", created.exists())
