//! The delays between the attempts of a loop that retries a failed operation.

use std::time::Duration;

use muster_api::backoff::BackoffPolicy;

/// The delay before the next attempt of an operation. It doubles with each failure.
#[derive(Debug)]
pub(crate) struct RetryDelay {
    policy: BackoffPolicy,
    /// The delay before the last attempt. `None` before the first failure, and after [`Self::reset`].
    last: Option<Duration>,
}

impl RetryDelay {
    pub(crate) fn new(policy: BackoffPolicy) -> Self {
        Self { policy, last: None }
    }

    /// Returns the delay before the next attempt, after a failed one.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.policy.next_delay(self.last);
        self.last = Some(delay);
        delay
    }

    /// Waits for [`Self::next_delay`].
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next_delay()).await;
    }

    /// Makes the next delay the minimum again, after a success.
    pub(crate) fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_delay_doubles_until_a_success() {
        let mut retry =
            RetryDelay::new(BackoffPolicy { min: Duration::from_secs(2), max: Duration::from_secs(7) });
        let mut waited = Vec::new();
        for is_after_success in [false, false, false, false, true, false] {
            if is_after_success {
                retry.reset();
            }
            let began = tokio::time::Instant::now();
            retry.wait().await;
            waited.push(began.elapsed().as_secs());
        }
        assert_eq!(waited, [2, 4, 7, 7, 2, 4]);
    }
}
