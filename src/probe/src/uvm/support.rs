//! What of managed memory can be seen on this machine.

use std::fs::File;
use std::io;

use gpumem_text::clean_line;

use super::TOOLS;
use super::abi::Layout;
use crate::Root;

/// What can be seen of managed memory here, for `doctor` and the dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UvmSupport {
    /// The driver's version, if its tools interface is known; else a sentence.
    pub interface: Result<String, String>,
    /// Whether the node on which trackers are made can be opened; else a sentence with what grants it.
    pub tools: Result<(), String>,
    /// Why presence in the CPU's page table does not tell where a page is here, if it does not.
    pub coherent: Option<String>,
}

impl UvmSupport {
    /// Looks, in well under a millisecond.
    pub fn look(root: &Root) -> UvmSupport {
        UvmSupport {
            interface: crate::facts::driver_module(root)
                .and_then(|version| Layout::of_driver(&version).map(|_| version)),
            tools: tools(root),
            coherent: coherent(root),
        }
    }
}

fn tools(root: &Root) -> Result<(), String> {
    open_tools(root).map(drop)
}

/// Opens the node on which trackers are made.
///
/// # Errors
/// A sentence with what grants it.
pub(super) fn open_tools(root: &Root) -> Result<File, String> {
    let path = root.path(TOOLS);
    let open = File::options().read(true).write(true).open(&path);
    open.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => format!(
            "{} is missing: nvidia-modprobe -u -c=0 makes it; a container needs --device /{TOOLS}",
            path.display()
        ),
        io::ErrorKind::PermissionDenied => format!("{} is closed to this user: {AS_ROOT}", path.display()),
        _ => format!("{}: {e}", path.display()),
    })
}

/// What lets a user look into other processes.
pub(super) const AS_ROOT: &str = "run gpumem-tui as root (sudo), or in a container with --cap-add SYS_PTRACE";

/// Whether the memory of a GPU is a NUMA node, as on GH200 and GB200: the CPU reaches it where it is. From
/// `/proc/driver/nvidia/gpus/BUS/numa_status`, lines of `Node: 1` and `Status: online`.
fn coherent(root: &Root) -> Option<String> {
    /// More than any machine has.
    const MAX: usize = 256;
    let folder = "proc/driver/nvidia/gpus";
    let entries = std::fs::read_dir(root.path(folder)).ok()?;
    entries.flatten().take(MAX).find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let bytes = root.read(format!("{folder}/{name}/numa_status"), 4096).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let field = |wanted: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(wanted))?;
            Some(clean_line(line.trim().as_bytes(), 32))
        };
        let online = field("Status:").is_some_and(|status| status.eq_ignore_ascii_case("online"));
        let node = field("Node:").unwrap_or_default();
        online.then(|| {
            format!(
                "the memory of GPU {} is NUMA node {node} of this machine, and the CPU reaches it where it is: a page that is present \
                 may be on the GPU (numastat -p PID tells by node)",
                clean_line(name.as_bytes(), 32)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn gpu_memory_that_is_a_numa_node_is_described() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let card = dir.path().join("proc/driver/nvidia/gpus/0009:01:00.0");
        std::fs::create_dir_all(&card).unwrap();
        assert_eq!(UvmSupport::look(&root).coherent, None);
        std::fs::write(card.join("numa_status"), "Node:   -1\nStatus: disabled\n").unwrap();
        assert_eq!(UvmSupport::look(&root).coherent, None);
        std::fs::write(card.join("numa_status"), "Node:   1\nStatus: online\n").unwrap();
        let text = UvmSupport::look(&root).coherent.unwrap();
        assert!(
            text.starts_with("the memory of GPU 0009:01:00.0 is NUMA node 1"),
            "{text}"
        );
    }

    #[test]
    fn missing_node_names_the_command_that_makes_it() {
        let dir = tempfile::tempdir().unwrap();
        let support = UvmSupport::look(&Root::at(dir.path()));
        assert!(support.tools.unwrap_err().contains("nvidia-modprobe -u -c=0"));
        assert!(support.interface.unwrap_err().contains("not loaded"));
    }
}
