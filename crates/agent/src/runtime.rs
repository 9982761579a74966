//! What a node asks of a container runtime, and CRI as one that answers.
