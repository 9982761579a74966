//! What differs from run to run, as a word in capitals.

use regex::Regex;

pub(crate) struct Redactions(Vec<(Regex, &'static str)>);

impl Redactions {
    pub(crate) fn new() -> Self {
        let table = [
            // What a version of kubectl says about itself.
            (r"Client Version: .*", "Client Version: CLIENT"),
            (r"Kustomize Version: .*", "Kustomize Version: CLIENT"),
            (r#"Platform:"[^"]*""#, "Platform:PLATFORM"),
            // The two parts of a warning come in either order.
            (r"(?i)warning: (deleting Pods .*); (ignoring DaemonSet-managed Pods: .*)", "Warning: $2; $1"),
            (r"(?i)warning: (ignoring DaemonSet-managed)", "Warning: $1"),
            (r"client \(1\.\d+\)", "client (CLIENT)"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "TIME"),
            (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}", "TIME"),
            (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
            (r#"(resourceVersion"?: ")\d+"#, "${1}RV"),
            (r"(Resource Version: +)\d+", "${1}RV"),
            (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=DIGEST"),
            (r"eyJ[\w.-]+", "TOKEN"),
            (r"(https?://127\.0\.0\.1):\d+", "${1}:PORT"),
            (r"\b10\.\d+\.\d+\.\d+", "IP"),
            (r"(LIVE|MERGED)-\d+", "${1}-N"),
            // `muster up` and `muster sim-nodes` call their simulated nodes by different names.
            (r"sim\.muster\.dev/fleet=\w+", "sim.muster.dev/fleet=FLEET"),
            (r"(kubectl-\S*edit-)\d+", "${1}N"),
            // The end of a generated name: five of the consonants and digits that no word is made of.
            (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-RANDOM"),
            // What is left of how long ago something was, but not of how long a taint is tolerated.
            (r"(^|[ (])(\d+[smhd])+($|[ ):])", "${1}AGE${3}"),
        ];
        Self(table.into_iter().map(|(pattern, name)| (Regex::new(pattern).unwrap(), name)).collect())
    }

    pub(crate) fn text(&self, text: &str, home: &str) -> String {
        let text = text.replace(home, "HOME");
        let mut lines: Vec<String> = text.lines().map(|it| self.line(it)).collect();
        // How often a rollout says what it waits for is a matter of time.
        lines.retain(|it| !it.contains("Waiting for daemon set") && !it.trim().is_empty());
        // Events of one second are in no order.
        for together in lines.chunk_by_mut(|a, b| is_event(a) && is_event(b)) {
            together.sort();
        }
        lines.iter().map(|it| format!("{it}\n")).collect()
    }

    fn line(&self, line: &str) -> String {
        let (mark, rest) = line.split_at_checked(4).unwrap_or((line, ""));
        let mut rest = rest.to_owned();
        for (pattern, name) in &self.0 {
            if !(*name == "${1}AGE${3}" && rest.contains(" for 300s")) {
                rest = pattern.replace_all(&rest, *name).into_owned();
            }
        }
        format!("{mark}{}", narrowed(rest.trim_end()))
    }
}

fn is_event(line: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("AGE  ").unwrap_or(line);
    line.starts_with("Normal  ") || line.starts_with("Warning  ")
}

/// A column is as wide as its widest cell, which may have been a time: two spaces are between any two.
fn narrowed(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    if line.starts_with("- ") || line.starts_with("+ ") {
        // Of a diff, where spaces are indentation.
        return line.to_owned();
    }
    let cells: Vec<&str> = line[indent..].split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
    format!("{}{}", &line[..indent], cells.join("  "))
}
