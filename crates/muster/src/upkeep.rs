//! How nodes look after themselves, as flags: of `muster agent`, and of `muster up` for all its nodes.

use std::time::Duration;

use anyhow::Error;
use muster_agent::node::Upkeep;
use muster_agent::node::host::Grace;

use crate::span;

/// Each is as with a kubelet if it is not said.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "How nodes look after themselves")]
pub(crate) struct UpkeepFlags {
    /// What must be left, or pods are sent off: memory.available, nodefs.available, nodefs.inodesFree, imagefs.available,
    /// imagefs.inodesFree, pid.available; 0% turns one off
    #[arg(long, value_name = "SIGNAL<AMOUNT,…", value_parser = thresholds)]
    eviction_hard: Option<String>,
    /// How long a shortage is not seen before it is over [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    eviction_pressure_transition_period: Option<String>,
    /// What pods do not get, as cpu=100m,memory=500Mi
    #[arg(long, value_name = "NAME=AMOUNT,…", value_parser = amounts)]
    system_reserved: Option<String>,
    /// How full the disk is, in percent, when unused images go; 100: they never do [default: 85]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    image_gc_high_threshold: Option<u8>,
    /// … and when no more of them go [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    image_gc_low_threshold: Option<u8>,
    /// How large a container's log gets before the next one is begun [default: 10Mi]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    container_log_max_size: Option<String>,
    /// How many logs of a container are kept [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    container_log_max_files: Option<u16>,
    /// How often it is measured what is left [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    housekeeping_interval: Option<String>,
    /// How long pods get when the node shuts down [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    shutdown_grace_period: Option<String>,
    /// … and then those that the node itself needs [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    shutdown_grace_period_critical_pods: Option<String>,
}

impl UpkeepFlags {
    pub(crate) fn upkeep(&self) -> anyhow::Result<Upkeep> {
        let mut upkeep = Upkeep::default();
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        upkeep.set_thresholds(&text(&self.eviction_hard)).map_err(Error::msg)?;
        upkeep.set_reserved(&text(&self.system_reserved)).map_err(Error::msg)?;
        if let Some(size) = &self.container_log_max_size {
            upkeep.set_log_bytes_max(size).map_err(Error::msg)?;
        }
        upkeep.pressure_min = read_time(&self.eviction_pressure_transition_period, upkeep.pressure_min)?;
        upkeep.images_high = self.image_gc_high_threshold.unwrap_or(upkeep.images_high);
        upkeep.images_low = self.image_gc_low_threshold.unwrap_or(upkeep.images_low);
        upkeep.logs_max = self.container_log_max_files.unwrap_or(upkeep.logs_max);
        upkeep.look_every = read_time(&self.housekeeping_interval, upkeep.look_every)?;
        Ok(upkeep)
    }

    pub(crate) fn shutdown(&self) -> anyhow::Result<Grace> {
        let plain = Grace::default();
        Ok(Grace {
            of_pods: read_time(&self.shutdown_grace_period, plain.of_pods)?,
            of_critical_pods: read_time(&self.shutdown_grace_period_critical_pods, plain.of_critical_pods)?,
        })
    }

    /// The same, for another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let number = |it: Option<u16>| it.map(|it| it.to_string());
        let flags = [
            ("eviction-hard", self.eviction_hard.clone()),
            ("eviction-pressure-transition-period", self.eviction_pressure_transition_period.clone()),
            ("system-reserved", self.system_reserved.clone()),
            ("image-gc-high-threshold", number(self.image_gc_high_threshold.map(u16::from))),
            ("image-gc-low-threshold", number(self.image_gc_low_threshold.map(u16::from))),
            ("container-log-max-size", self.container_log_max_size.clone()),
            ("container-log-max-files", number(self.container_log_max_files)),
            ("housekeeping-interval", self.housekeeping_interval.clone()),
            ("shutdown-grace-period", self.shutdown_grace_period.clone()),
            ("shutdown-grace-period-critical-pods", self.shutdown_grace_period_critical_pods.clone()),
        ];
        flags.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))).collect()
    }
}

/// What was written is kept, so that it can be said again; here it is only tried.
fn thresholds(text: &str) -> Result<String, String> {
    Upkeep::default().set_thresholds(text).map(|()| text.to_owned())
}

fn amounts(text: &str) -> Result<String, String> {
    Upkeep::default().set_reserved(text).map(|()| text.to_owned())
}

fn bytes(text: &str) -> Result<String, String> {
    Upkeep::default().set_log_bytes_max(text).map(|()| text.to_owned())
}

fn time(text: &str) -> anyhow::Result<String> {
    span::parse(text).map(|_| text.to_owned())
}

fn read_time(text: &Option<String>, otherwise: Duration) -> anyhow::Result<Duration> {
    text.as_deref().map_or(Ok(otherwise), span::parse)
}
