//! W28: without a policy, DaemonRollout and verdict, the DaemonSet controller writes what it wrote before progressive
//! rollouts existed.

use muster_sim::run::run_seed;

/// Number of random clusters whose writes are compared.
const SEEDS: u64 = 300;

/// Digest of all writes of the DaemonSet controller in these clusters. It was recorded with the last engine that had no
/// progressive rollouts, and again when the messages of conditions were reworded. A change to a rule of plain DaemonSets
/// or to a message changes the digest: record the new one in the same commit. `cargo sim --seeds 300` prints it.
const CONTROLLER_WRITES: u64 = 0x95e5_21d0_f628_b6c8;

#[test]
fn sets_without_policies_are_written_as_before_progressive_rollouts() {
    let digest = (1..=SEEDS).fold(0_u64, |digest, seed| {
        let result = run_seed(seed, false);
        assert_eq!(result.violation, None, "seed {seed}");
        digest.wrapping_add(result.controller_writes_hash.rotate_left((seed % 64) as u32))
    });
    assert_eq!(digest, CONTROLLER_WRITES, "the digest is {digest:#018x}");
}
