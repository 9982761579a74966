//! The seeded random number generator, the simulator's only source of randomness.

/// SplitMix64 random number generator. It generates the same sequence on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns the next random number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next_u64() % end }
    }

    /// Returns a random number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns `true` with a probability of `per_mille` in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        0 < per_mille && self.below(1000) < per_mille
    }

    /// Returns a random element, or `None` if the slice is empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let len = u64::try_from(of.len()).unwrap_or(0);
        of.get(usize::try_from(self.below(len)).unwrap_or(0))
    }
}
