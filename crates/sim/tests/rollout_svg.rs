//! The picture in README.md is what the simulator does today.

#[path = "../examples/rollout_svg/picture.rs"]
mod picture;

use expect_test::expect_file;

#[test]
fn the_committed_picture_is_the_generated_one() {
    expect_file!["../../../docs/rollout.svg"].assert_eq(&picture::rollout());
}
