//! Keeps the work on large request bodies off the threads that serve all other requests.

use std::future::poll_fn;
use std::pin::Pin;
use std::thread;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::request::{TrustLevel, User};

/// Size above which a body is large, as in the limit on buffered bodies. Decoding, patching and validating a body of 3
/// MiB can take a second.
const LARGE_BODY_BYTES: usize = 64 << 10;

/// Runs the handlers of requests with large bodies.
///
/// Rule: the handler of a request with a body of more than 64 KiB runs on a thread of its own, so that timeouts and
/// other requests go on. Only as many such handlers as the machine has processors run at a time, apart from those of
/// Muster's own components and members of `system:masters`.
#[derive(Debug)]
pub(crate) struct LargeBodyExecutor {
    /// Permits for the handlers that are limited.
    permits: Semaphore,
}

impl Default for LargeBodyExecutor {
    fn default() -> Self {
        Self { permits: Semaphore::new(thread::available_parallelism().map_or(1, usize::from)) }
    }
}

impl LargeBodyExecutor {
    /// Waits for `handling`, the handler of a request of `user` with a body of `bytes` bytes. In a runtime with a
    /// single thread, runs the handler on it.
    pub(crate) async fn run<F: Future>(
        &self,
        mut handling: Pin<Box<F>>,
        bytes: usize,
        user: &User,
    ) -> F::Output {
        let has_threads =
            || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
        if bytes <= LARGE_BODY_BYTES || !has_threads() {
            return handling.await;
        }
        let _permit = match user.trust_level() {
            TrustLevel::Ordinary | TrustLevel::Node => self.permits.acquire().await.ok(),
            TrustLevel::Trusted => None,
        };
        poll_fn(|context| tokio::task::block_in_place(|| handling.as_mut().poll(context))).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    /// Runs a handler that occupies its thread until another task has made progress. Returns whether one did in time.
    async fn is_progress_made_beside(bytes: usize) -> bool {
        let (progress, made) = std::sync::mpsc::channel();
        let executor = Arc::new(LargeBodyExecutor::default());
        let busy = tokio::spawn(async move {
            let other = tokio::spawn(async move { progress.send(()).unwrap() });
            let work = Box::pin(async move { made.recv_timeout(Duration::from_secs(2)).is_ok() });
            let user = User::new("someone", ["system:authenticated"]);
            let is_made = executor.run(work, bytes, &user).await;
            other.await.unwrap();
            is_made
        });
        busy.await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_while_a_large_body_is_handled() {
        assert!(is_progress_made_beside(LARGE_BODY_BYTES + 1).await);
    }

    #[tokio::test]
    async fn a_runtime_with_one_thread_handles_large_bodies_on_it() {
        let executor = LargeBodyExecutor::default();
        let user = User::new("someone", ["system:authenticated"]);
        assert_eq!(executor.run(Box::pin(async { 1 }), LARGE_BODY_BYTES + 1, &user).await, 1);
    }
}
