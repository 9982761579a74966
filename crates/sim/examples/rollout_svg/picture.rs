//! A simulated rollout as SVG: one row per node, time to the right, colour by the state of the node's daemon pod.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use muster_sim::faults::FaultRates;
use muster_sim::user_action::UserAction;
use muster_sim::world::World;

const SEED: u64 = 7;
const NODES: usize = 24;
const SET: &str = "set web max-unavailable=4 min-ready=5 history=5";
/// The node that fails. The rollout must not wait for it.
const LOST: &str = "n17";

/// What the user and the machines do, at which second, and its label in the picture.
const SCRIPT: &[(u64, &[&str], &str)] = &[
    (10, &["kill n17"], "n17 fails"),
    (70, &["template web 2"], "set image web:2"),
    (150, &["image web:3 never-ready", "template web 3"], "set image web:3 (never ready)"),
    (195, &["template web 2"], "rollout undo"),
    (225, &["revive n17"], "n17 is back"),
];
const END_S: u64 = 255;

/// What a node's pod is at one second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    Ready1,
    Ready2,
    Starting,
    Bad,
    Empty,
    Unreachable,
}

impl Cell {
    const LEGEND: [(Self, &'static str); 6] = [
        (Self::Ready1, "web:1 ready"),
        (Self::Ready2, "web:2 ready"),
        (Self::Starting, "starting"),
        (Self::Bad, "web:3 not ready"),
        (Self::Empty, "no pod"),
        (Self::Unreachable, "node unreachable"),
    ];

    fn colour(self) -> &'static str {
        match self {
            Self::Ready1 => "#7c93b8",
            Self::Ready2 => "#3fa66b",
            Self::Starting => "#f0c04c",
            Self::Bad => "#d9534f",
            Self::Empty => "#ececec",
            Self::Unreachable => "#3a3a3a",
        }
    }

    /// Of `web@2 ready, web@1 leaving`, which is how the simulator prints the pods of a node.
    fn of(pods: &str) -> Self {
        let states: Vec<&str> = pods.split(", ").collect();
        let any = |it: &str| states.contains(&it);
        if any("web@1 ready") {
            Self::Ready1
        } else if any("web@2 ready") {
            Self::Ready2
        } else if states.iter().any(|it| it.starts_with("web@3") && !it.ends_with("leaving")) {
            Self::Bad
        } else if states.iter().any(|it| it.ends_with("starting") || it.ends_with("pending")) {
            Self::Starting
        } else {
            Self::Empty
        }
    }
}

/// The whole picture, from the fixed seed.
pub(crate) fn rollout() -> String {
    draw(&simulate())
}

/// Each node's state, second by second.
fn simulate() -> BTreeMap<String, Vec<Cell>> {
    let mut world = World::new(SEED, 1, FaultRates::without_faults());
    let nodes: String = (1..=NODES).map(|it| format!("node n{it:02}\n")).collect();
    world.add_scenario_objects(&format!("{nodes}{SET}\n"));
    world.start_processes();
    act(&mut world, "settle");
    let mut rows: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
    for second in 0..END_S {
        for (_, lines, _) in SCRIPT.iter().filter(|(at, ..)| *at == second) {
            lines.iter().for_each(|line| act(&mut world, line));
        }
        world.run_for(Duration::from_secs(1));
        let is_down = |node: &str| world.kubelets.iter().any(|(name, it)| **name == *node && !it.alive);
        for line in world.format_pods_by_node().lines() {
            let (node, pods) = line.split_once("  ").unwrap_or((line, ""));
            let cell = if is_down(node) { Cell::Unreachable } else { Cell::of(pods) };
            rows.entry(node.to_owned()).or_default().push(cell);
        }
    }
    assert!(world.violation().is_none(), "the simulated rollout broke {:?}", world.violation());
    rows
}

fn act(world: &mut World, line: &str) {
    let action = UserAction::parse(line).unwrap_or_else(|problem| panic!("{line}: {problem}"));
    world.execute_user_action(&action);
}

const ROW: usize = 11;
const SECOND: usize = 3;
const LEFT: usize = 46;
const TOP: usize = 62;
const RIGHT: usize = 20;
const BELOW: usize = 56;

fn draw(rows: &BTreeMap<String, Vec<Cell>>) -> String {
    let chart_width = usize::try_from(END_S).expect("a few minutes") * SECOND;
    let (width, bottom) = (LEFT + chart_width + RIGHT, TOP + rows.len() * ROW);
    let x = |second: u64| LEFT + usize::try_from(second).expect("a few minutes") * SECOND;
    let mut svg = String::new();
    let mut line = |text: String| writeln!(svg, "{text}").expect("a string takes all that is written");
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"11\" fill=\"#222\">",
        height = bottom + BELOW
    ));
    line(format!(
        "<title>A simulated rollout over {NODES} nodes with maxUnavailable 4: one failed node does not hold it up, a bad \
         revision stops after four nodes, and the undo touches only these four</title>"
    ));
    line("<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#fff\"/>".to_owned());
    for (index, (node, cells)) in rows.iter().enumerate() {
        let y = TOP + index * ROW;
        if node == LOST || index == 0 || index + 1 == rows.len() {
            line(format!("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{node}</text>", LEFT - 6, y + ROW - 2));
        }
        let mut begin = 0;
        for end in 1..=cells.len() {
            if cells.get(end) != Some(&cells[begin]) {
                line(format!(
                    "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                    LEFT + begin * SECOND,
                    (end - begin) * SECOND,
                    ROW - 1,
                    cells[begin].colour()
                ));
                begin = end;
            }
        }
    }
    for (index, (at, _, label)) in SCRIPT.iter().enumerate() {
        let label_y = if index % 2 == 0 { TOP - 34 } else { TOP - 16 };
        line(format!(
            "<path d=\"M{x} {}V{bottom}\" stroke=\"#222\" stroke-dasharray=\"2 3\"/><text x=\"{}\" y=\"{label_y}\">{label}</text>",
            label_y - 9,
            x(*at) + 4,
            x = x(*at)
        ));
    }
    for second in (0..END_S).step_by(30) {
        line(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{second} s</text>",
            x(second),
            bottom + 16
        ));
    }
    let mut legend_x = LEFT;
    for (cell, label) in Cell::LEGEND {
        line(format!(
            "<rect x=\"{legend_x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{label}</text>",
            bottom + 30,
            cell.colour(),
            legend_x + 17,
            bottom + 40
        ));
        legend_x += 30 + label.len() * 7;
    }
    line("</svg>".to_owned());
    svg
}
