"""Writes to the standard input of commands in the pod `stays`, and follows its log and that of the pod `ends`. Prints one line for
each."""
import os
import threading

from kubernetes import client, config, stream, watch

config.load_kube_config(os.environ["KUBECONFIG"])
core = client.CoreV1Api()


def say(what, *values):
    print(what + ":", *values, flush=True)


def execute(pod, *command, **options):
    return stream.stream(
        client.CoreV1Api().connect_get_namespaced_pod_exec,
        pod,
        "default",
        command=list(command),
        stdin=True,
        stdout=True,
        stderr=True,
        _preload_content=False,
        **options,
    )


# Text is sent in messages of text, and bytes in messages of bytes. In v5.channel.k8s.io standard input can be closed.
cat = execute("stays", "cat")
cat.write_stdin("text: \u00e4\u20ac\U0001f600\n")
say("cat", ascii(cat.readline_stdout(timeout=60)))
cat.close_channel(0)
cat.run_forever(timeout=60)
say("cat ended with", cat.returncode)

cat = execute("stays", "cat", binary=True)
cat.write_stdin(b"bytes: \xff\n")
say("cat", cat.readline_stdout(timeout=60))
cat.close()

# Messages that come at the same time are read one by one.
shell = execute("stays", "sh")
for number in range(10):
    shell.write_stdin(f"echo out {number}; echo err {number} >&2\n")
    answers = [shell.readline_stdout(timeout=60), shell.readline_stderr(timeout=60)]
    if answers != [f"out {number}", f"err {number}"]:
        say("the shell says", answers)
say("the shell answered", number + 1, "times")

followed = watch.Watch()
for line in followed.stream(core.read_namespaced_pod_log, "stays", "default"):
    say("followed", line)
    if line == "begun":
        shell.write_stdin("echo from the shell >/proc/1/fd/1\n")
    else:
        followed.stop()
shell.write_stdin("exit 3\n")
shell.run_forever(timeout=60)
say("the shell ended with", shell.returncode)

ending = threading.Timer(1, lambda: execute("ends", "touch", "/end").run_forever(timeout=60))
ending.start()
log = core.read_namespaced_pod_log("ends", "default", follow=True, _preload_content=False)
say("the whole log", repr(log.data.decode()))
ending.join()
