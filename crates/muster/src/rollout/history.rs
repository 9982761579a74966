//! The output of `muster rollout history`.

use super::snapshot::RolloutSnapshot;
use crate::logging::aligned_table;

/// Returns a table of the revisions of the DaemonSet with their verdicts, the newest last. Returns a message instead if
/// the DaemonSet has no revisions.
pub(super) fn table(snapshot: &RolloutSnapshot) -> String {
    if snapshot.revisions.is_empty() {
        return format!("{} has no revisions yet: is a DaemonSet controller running?", snapshot.set);
    }
    let status = snapshot.rollout.as_ref().map(|it| &it.status);
    let stable = status.and_then(|it| it.stable.as_ref()).map(|it| it.revision.as_str());
    let current = snapshot.newest_revision().map(|it| it.hash.as_str());
    let or_dash = |it: &str| if it.is_empty() { "-".to_owned() } else { it.to_owned() };
    let header = ["REVISION", "HASH", "VERDICT", "REASON", "TIME", "IMAGES", ""].map(str::to_owned);
    let rows = snapshot.revisions.iter().map(|it| {
        let marks = [("current", current), ("stable", stable)];
        let marks = marks.iter().filter(|(_, hash)| *hash == Some(it.hash.as_str()));
        let marks: Vec<&str> = marks.map(|(mark, _)| *mark).collect();
        [
            it.number.to_string(),
            or_dash(&it.hash),
            or_dash(&it.verdict),
            or_dash(&it.reason),
            or_dash(&it.time),
            it.images.join(","),
            marks.join(", "),
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(header).chain(rows).collect();
    aligned_table(&rows)
}
