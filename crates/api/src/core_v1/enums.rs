//! Enumerated values of status fields: condition statuses and pod phases.

/// Status of a condition. Upstream: `v1.ConditionStatus`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// Parses the status of a condition. Returns `Unknown` for an invalid text.
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Phase of a pod, without the deprecated `Unknown`. Upstream: `v1.PodPhase`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl PodPhase {
    /// All phases. A pod passes through them in this order, and ends in one of the last two.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed];

    /// Parses the phase of a pod. Returns `Pending` for an invalid text, and for `Unknown`.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|it| it.as_str() == text).unwrap_or_default()
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether the phase is Succeeded or Failed. Upstream: `IsPodPhaseTerminal`.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_parsed_from_its_name() {
        assert!(PodPhase::ALL.into_iter().all(|it| PodPhase::parse(it.as_str()) == it));
        assert_eq!(["Unknown", "", "failed"].map(PodPhase::parse), [PodPhase::Pending; 3]);
        assert!(PodPhase::ALL.is_sorted());
    }
}
