//! Prints docs/rollout.svg: `cargo run --package muster-sim --example rollout_svg > docs/rollout.svg`.

#![allow(clippy::print_stdout)]

mod picture;

fn main() {
    print!("{}", picture::rollout());
}
