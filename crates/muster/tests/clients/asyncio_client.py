"""Lists, watches, creates, patches, applies and deletes with kubernetes_asyncio. Prints one line for each."""
import asyncio
import json
import os

from kubernetes_asyncio import client, config, watch

MANIFEST = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "aio"},
    "spec": {
        "selector": {"matchLabels": {"app": "aio"}},
        "template": {"metadata": {"labels": {"app": "aio"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}},
    },
}


def say(what, *values):
    print(what + ":", *values)


async def main():
    await config.load_kube_config(os.environ["KUBECONFIG"])
    async with client.ApiClient() as api:
        core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
        say("nodes", len((await core.list_node()).items))
        created = await apps.create_namespaced_daemon_set("default", MANIFEST)
        say("created", created.metadata.name, created.metadata.generation)
        async with watch.Watch().stream(apps.list_namespaced_daemon_set, "default", timeout_seconds=60) as events:
            async for event in events:
                if event["object"].metadata.name == "aio" and event["object"].status.number_available == 2:
                    say("rolled out on", event["object"].status.number_available)
                    break
        patched = await apps.patch_namespaced_daemon_set("aio", "default", {"metadata": {"labels": {"patched": "yes"}}})
        say("patched", patched.metadata.labels)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "aio"}, "data": {"a": "1"}}
        for manager, force in [("one", None), ("two", None), ("two", True)]:
            body["data"]["a"] = manager
            try:
                applied = await core.patch_namespaced_config_map(
                    "aio", "default", body, field_manager=manager, force=force, _content_type="application/apply-patch+yaml"
                )
                say(manager, "applied", applied.data)
            except client.ApiException as error:
                say(manager, error.status, json.loads(error.body)["reason"])
        await core.delete_namespaced_config_map("aio", "default")
        deleted = await apps.delete_namespaced_daemon_set("aio", "default")
        say("deleted", deleted.status)


asyncio.run(main())
