//! What a process uses on a device besides the memory of its allocator.

use std::sync::Arc;

use gpumem_text::units;

/// What a process uses on a device besides the memory that its allocator took from the driver: its context, loaded kernels, and what
/// libraries take for themselves. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    /// What NVML counts, less what is reserved.
    pub bytes: u64,
    /// How much that was when the process began to use the device: the context and the first kernels. `None` if that was not measured.
    pub at_start: Option<u64>,
    /// Libraries and features in use that take such memory; empty if none is known.
    pub users: Arc<str>,
}

impl Outside {
    /// Describes what it consists of, as far as is known.
    pub(crate) fn parts(&self) -> String {
        let users = match self.users.is_empty() {
            true => String::new(),
            false => format!(", {}", self.users),
        };
        match self.at_start {
            // What is loaded later belongs to it: kernels are loaded when they are first used.
            Some(start) if self.bytes > start => format!(
                "{} at the start (context), {} since (kernels, libraries{users})",
                units::bytes(start),
                units::bytes(self.bytes - start)
            ),
            _ => format!("context, kernels, libraries{users}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_as_far_as_known() {
        let text = |bytes: u64, at_start: Option<u64>, users: &str| {
            let outside = Outside {
                bytes: bytes << 20,
                at_start: at_start.map(|start| start << 20),
                users: users.into(),
            };
            outside.parts()
        };
        assert_eq!(
            text(1708, Some(518), "NCCL (2 groups)"),
            "518 MiB at the start (context), 1.2 GiB since (kernels, libraries, NCCL (2 groups))"
        );
        assert_eq!(text(518, Some(518), ""), "context, kernels, libraries");
        assert_eq!(text(518, None, "CuPy"), "context, kernels, libraries, CuPy");
    }
}
