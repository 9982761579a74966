//! Fault injection. Each seed draws its own fault rates (swarm testing), so that different seeds test different
//! combinations of faults.

use crate::rng::Rng;

/// A fault of a controller's request. A read of the DaemonSet controller gets none of the faults that need a write:
/// `Conflict`, `Invalid`, `ServerApplied` and `LostApplied`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RequestFault {
    /// The request is rejected with status 409.
    Conflict,
    /// The request is rejected with status 429.
    TooManyRequests,
    /// The request is not applied, and the response is a server error.
    Server,
    /// The request is applied, but the response is a server error.
    ServerApplied,
    /// The request is rejected with status 403.
    Forbidden,
    /// The request is rejected with status 422.
    Invalid,
    /// The request is applied, but the response is lost.
    LostApplied,
    /// The request is not applied, and there is no response.
    LostNotApplied,
    /// The request is applied, and the controller crashes before it receives the response.
    CrashAfter,
    /// The controller crashes, and the request is not applied.
    CrashBefore,
}

impl RequestFault {
    /// All request faults. [`FaultRates`] has their rates in this order.
    pub const ALL: [Self; 10] = [
        Self::Conflict,
        Self::TooManyRequests,
        Self::Server,
        Self::ServerApplied,
        Self::Forbidden,
        Self::Invalid,
        Self::LostApplied,
        Self::LostNotApplied,
        Self::CrashAfter,
        Self::CrashBefore,
    ];
}

/// A fault in the delivery of a watch event to a controller's cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WatchFault {
    /// The event is delivered twice.
    Duplicate,
    /// The event is replaced by a later change of the same object.
    Coalesce,
    /// The watch breaks, and the controller lists the kind again.
    Relist,
    /// The watch breaks, and the controller lists the kind from an API server that lags behind.
    StaleRelist,
    /// The watch of one kind stalls for some time. The watches of other kinds continue.
    Freeze,
}

impl WatchFault {
    /// All watch faults. [`FaultRates`] has their rates in this order.
    pub const ALL: [Self; 5] =
        [Self::Duplicate, Self::Coalesce, Self::Relist, Self::StaleRelist, Self::Freeze];
}

/// An injected fault, at the n-th controller write or at the n-th delivered watch event. The default is no fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InjectedFault {
    /// The number of a controller write, counted from 1, and the fault that it gets.
    pub write: Option<(usize, RequestFault)>,
    /// The number of a delivered watch event, counted from 1, and the fault that it gets.
    pub watch: Option<(usize, WatchFault)>,
}

/// The probability of each fault and of user actions, per thousand opportunities, and the limits of clock skew and
/// network latency.
#[derive(Clone, Debug, Default)]
pub struct FaultRates {
    /// Rate of each fault of a request, in the order of [`RequestFault::ALL`].
    requests: [u64; 10],
    /// Rate of each fault of a watch event, in the order of [`WatchFault::ALL`].
    watches: [u64; 5],
    /// Rate at which a replica of the DaemonSet controller crashes.
    pub crash: u64,
    /// Rate at which the process of a replica freezes for some time.
    pub freeze_process: u64,
    /// Rate at which a replica loses its network for some time.
    pub cut_off: u64,
    /// Rate at which a replica's clock is stepped.
    pub clock_step: u64,
    /// Maximum clock skew of replicas and kubelets, in seconds.
    pub skew_s: u64,
    /// Maximum network latency, in milliseconds.
    pub lag_ms: u64,
    /// Rate at which a running node crashes, or a crashed node reboots.
    pub node_fault: u64,
    /// Rate of random user actions.
    pub user: u64,
    /// Rate of restarts of a kubelet.
    pub kubelet_crash: u64,
    /// Rate of crashes of a container or its sandbox.
    pub container_crash: u64,
    /// Rate at which a write of a kubelet, or the response to it, is lost.
    pub kubelet_write: u64,
}

impl FaultRates {
    /// Returns fault rates of zero with a network latency of at most 5 ms, for a run without faults.
    pub fn without_faults() -> Self {
        Self { lag_ms: 5, ..Self::default() }
    }

    /// Draws random rates. Each fault is off, rare or frequent, independently of other faults.
    pub fn random(rng: &mut Rng) -> Self {
        let mut level = |rare: u64, often: u64| match rng.below(4) {
            0 | 1 => 0,
            2 => rare,
            _ => often,
        };
        let mut rates = Self {
            crash: level(3, 15),
            freeze_process: level(2, 8),
            cut_off: level(2, 8),
            clock_step: level(2, 8),
            skew_s: level(1, 5),
            lag_ms: 0,
            node_fault: level(10, 60),
            user: level(30, 120),
            ..Self::default()
        };
        for it in &mut rates.requests {
            *it = level(5, 40);
        }
        for it in &mut rates.watches {
            *it = level(5, 40);
        }
        for it in [&mut rates.kubelet_crash, &mut rates.container_crash] {
            *it = level(4, 20);
        }
        rates.kubelet_write = level(5, 40);
        rates.lag_ms = [2, 20, 200, 2000][usize::try_from(rng.below(4)).unwrap_or(0)];
        rates
    }

    /// Turns off all faults and the random user actions. Clock skew and a network latency of at most 50 ms remain.
    pub fn turn_off_faults(&mut self) {
        *self = Self { skew_s: self.skew_s, lag_ms: self.lag_ms.min(50), ..Self::default() };
    }

    /// Draws the fault of the next request. Returns `None` if it has no fault.
    pub fn random_request_fault(&self, rng: &mut Rng) -> Option<RequestFault> {
        random_fault(&RequestFault::ALL, &self.requests, rng)
    }

    /// Draws the fault of the next watch event. Returns `None` if it has no fault.
    pub fn random_watch_fault(&self, rng: &mut Rng) -> Option<WatchFault> {
        random_fault(&WatchFault::ALL, &self.watches, rng)
    }
}

/// Draws at most one of the faults in `of`, each with its own probability. `per_mille` has the probabilities in the
/// same order. Returns `None` if no fault is drawn.
fn random_fault<T: Copy>(of: &[T], per_mille: &[u64], rng: &mut Rng) -> Option<T> {
    let at = rng.below(1000);
    let mut sum = 0;
    for (fault, rate) in of.iter().zip(per_mille) {
        sum += rate;
        if at < sum {
            return Some(*fault);
        }
    }
    None
}
