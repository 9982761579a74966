//! A real node with thirty pods: how long the agent takes of its own from a pod that is bound to one that runs, and what the
//! agent costs when nothing happens. It needs root and containerd.
//!
//! `cargo bench -p muster --bench node` prints a table; with `-- --check` it fails where a promise is broken.

mod bed;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bed::{Table, clients, send};
use serde_json::{Value, json};

const PODS: usize = 30;

/// From bound to running, without the time within the runtime's calls. The median: one of thirty may meet a busy disk.
const OWN_MAX: Duration = Duration::from_millis(100);

/// What the agent has for itself, and with the pages of its program, which all agents of a machine share.
const OWN_MIB_MAX: f64 = 10.0;
const RESIDENT_MIB_MAX: f64 = 25.0;

/// Of a core, with all pods running and nobody asking.
const IDLE_PERCENT_MAX: f64 = 1.0;
const IDLE_FOR: Duration = Duration::from_secs(60);

const PHASE_MAX: Duration = Duration::from_secs(300);

const PODS_PATH: &str = "/api/v1/namespaces/default/pods";

#[tokio::main]
async fn main() -> ExitCode {
    let mut table = Table::new();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-node");
    let _ = fs::remove_dir_all(&dir);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/busybox-image");
    let made =
        Command::new("bash").arg(script).arg(dir.join("images").join("busybox.tar")).arg("busybox").status();
    assert!(made.expect("run bash").success(), "no image of busybox");
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(["up", "--listen", "127.0.0.1:0", "--nodes", "1", "--data-dir"]).arg(&dir);
    let mut up = bed::started(command.env("RUST_LOG", "warn,muster_agent::node::executor=debug"));
    let client = clients(&dir.join("kubeconfig")).await.remove(0);

    for nth in 0..PODS {
        send(&client, "POST", PODS_PATH, pod(nth).to_string().into_bytes()).await.expect("a pod");
        let began = Instant::now();
        while !is_running(&client, nth).await {
            assert!(began.elapsed() < PHASE_MAX, "pod {nth} does not run");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut starts = starts(&dir.join("nodes").join("node-1").join("agent.log"));
    starts.sort_unstable();
    let (own, all) = starts[starts.len() / 2];
    let note = format!("{} ms with the runtime's, of {} pods", all.as_millis(), starts.len());
    table.at_most("from bound to running, our own time, half of all within", own, OWN_MAX);
    table.row("… at most", &format!("{:.1?}", starts[starts.len() - 1].0), &note);

    let agent = agent_of(&dir);
    let (before, began) = (bed::cpu_s(agent), Instant::now());
    tokio::time::sleep(IDLE_FOR).await;
    let idle = (bed::cpu_s(agent) - before) / began.elapsed().as_secs_f64() * 100.0;
    let at_most = format!("of a core, at most {IDLE_PERCENT_MAX}");
    table.row(&format!("the agent at rest, with {PODS} pods"), &format!("{idle:.2} %"), &at_most);
    if IDLE_PERCENT_MAX < idle {
        table.broken.push(format!("the agent takes {idle:.2} % of a core at rest"));
    }
    table.memory("… its own memory", bed::mib(agent, "RssAnon:"), OWN_MIB_MAX);
    table.memory("… with the pages of its program", bed::mib(agent, "VmRSS:"), RESIDENT_MIB_MAX);
    bed::stop(&mut up);
    let _ = fs::remove_dir_all(&dir);
    table.end()
}

async fn is_running(client: &kube::Client, nth: usize) -> bool {
    let request = http::Request::get(format!("{PODS_PATH}/pod-{nth}")).body(Vec::new()).expect("a request");
    let pod: Value = client.request(request).await.expect("the pod");
    pod["status"]["phase"] == "Running"
}

fn pod(nth: usize) -> Value {
    json!({
        "metadata": {"name": format!("pod-{nth}")},
        "spec": {
            "nodeName": "node-1",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c",
                "image": "busybox",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "1000000"],
            }],
        },
    })
}

/// What the agent says of each start: its own time, and all of it.
fn starts(log: &Path) -> Vec<(Duration, Duration)> {
    let log = fs::read_to_string(log).expect("the agent's log");
    let field = |line: &str, name: &str| {
        let value = line.split(name).nth(1)?.split_whitespace().next()?;
        Some(Duration::from_millis(value.parse().ok()?))
    };
    let starts: Vec<_> =
        log.lines().filter_map(|it| Some((field(it, "own_ms=")?, field(it, "all_ms=")?))).collect();
    assert_eq!(starts.len(), PODS, "not every start was told of");
    starts
}

/// The process of the node's agent.
fn agent_of(dir: &Path) -> u32 {
    let is_it = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = command.split(|it| *it == 0).map(String::from_utf8_lossy).collect();
        words.get(1).is_some_and(|it| it == "agent")
            && words.iter().any(|it| Path::new(&**it).starts_with(dir))
    };
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.find(is_it).expect("an agent")
}
