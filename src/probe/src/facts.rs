//! Facts about this machine and this process that decide what can be seen, for `doctor`. Each is a plain value, or the
//! reason why it is not known.

mod places;
mod rights;

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use places::Place;
pub use rights::{Capabilities, PtraceScope};

use gpumem_text::clean_line;

use crate::Root;

/// A fact, or a text that says why it is not known or not usable.
pub type Fact<T> = Result<T, String>;

/// Everything that `doctor` asks the kernel. Gathering takes well under a millisecond and does not touch a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Version of the NVIDIA kernel module that is loaded.
    pub driver_module: Fact<String>,
    /// The device files that NVML and CUDA open.
    pub device_nodes: Vec<DeviceNode>,
    /// Which processes Yama lets inspect each other's memory.
    pub ptrace_scope: Fact<PtraceScope>,
    /// The capabilities that this process has beyond its user's rights.
    pub capabilities: Fact<Capabilities>,
    /// The evidence that this is a container; `None` if there is none.
    pub container: Option<String>,
    /// Whether this process is in the initial pid namespace, whose pids NVML reports.
    pub host_pids: Fact<bool>,
    /// `/dev/shm`, which holds the channels when there is no runtime directory.
    pub shm: Fact<Place>,
    /// `XDG_RUNTIME_DIR`, which holds the channels.
    pub runtime_dir: Fact<Place>,
}

/// A device file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// The path, such as `/dev/nvidia0`.
    pub path: String,
    /// Whether this user may read and write it. A container's device rules may still forbid it; that shows only when it
    /// is opened.
    pub access: Fact<()>,
}

impl Facts {
    /// Gathers the facts, with files read below `root`; `runtime_dir` is the value of `XDG_RUNTIME_DIR`.
    pub fn gather(root: &Root, runtime_dir: Option<&Path>) -> Self {
        Facts {
            driver_module: driver_module(root),
            device_nodes: device_nodes(root),
            ptrace_scope: rights::ptrace_scope(root),
            capabilities: rights::capabilities(root),
            container: container(root),
            host_pids: host_pids(root),
            shm: places::shm(root),
            runtime_dir: places::runtime_dir(runtime_dir),
        }
    }
}

/// Reads the version of the loaded kernel module from `/proc/driver/nvidia/version`: `NVRM version: NVIDIA UNIX x86_64
/// Kernel Module 580.159.04 Tue ...`.
pub(crate) fn driver_module(root: &Root) -> Fact<String> {
    let bytes = root.read("proc/driver/nvidia/version", 4096).map_err(|e| {
        format!("/proc/driver/nvidia/version: {e}; the NVIDIA kernel module is not loaded or not visible here")
    })?;
    let text = clean_line(&bytes, 4096);
    let version = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        (2..=3).contains(&parts.len())
            && parts
                .iter()
                .all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    };
    let found = text.split_whitespace().find(version).map(str::to_owned);
    found.ok_or_else(|| "/proc/driver/nvidia/version names no version".into())
}

/// What the kernel module reports about a card, even one that NVML has lost.
pub(crate) struct Card {
    pub(crate) name: String,
    /// As text, `GPU-...`.
    pub(crate) uuid: String,
    /// As NVML writes it: `00000000:01:00.0`.
    pub(crate) pci: String,
}

/// Lists the cards that the kernel module drives, by bus id, which is NVML's order. Reads
/// `/proc/driver/nvidia/gpus/BUS/information`, whose lines look like `GPU UUID: \t GPU-...`. NVML does not list cards
/// with `GPU Excluded: Yes`.
pub(crate) fn cards(root: &Root) -> Vec<Card> {
    /// More cards than any machine has.
    const MAX: usize = 256;
    let place = Path::new("proc/driver/nvidia/gpus");
    let entries = std::fs::read_dir(root.path(place)).into_iter().flatten();
    let mut buses: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .take(MAX)
        .collect();
    buses.sort();
    let card = |bus: String| {
        let bytes = root.read(place.join(&bus).join("information"), 4096).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| clean_line(value.trim().as_bytes(), 96))
                .unwrap_or_default()
        };
        (field("GPU Excluded:") != "Yes").then(|| Card {
            name: field("Model:"),
            uuid: field("GPU UUID:"),
            pci: format!("0000{}", clean_line(bus.to_uppercase().as_bytes(), 28)),
        })
    };
    buses.into_iter().filter_map(card).collect()
}

fn device_nodes(root: &Root) -> Vec<DeviceNode> {
    /// More cards than any machine has.
    const MAX: usize = 256;
    let is_gpu = |name: &String| {
        name.strip_prefix("nvidia")
            .is_some_and(|n| !n.is_empty() && n.len() <= 3 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let entries = std::fs::read_dir(root.path("dev")).into_iter().flatten();
    let mut gpus: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(is_gpu)
        .take(MAX)
        .collect();
    gpus.sort_by_key(|name| (name.len(), name.clone()));
    if gpus.is_empty() {
        gpus.push("nvidia0".into());
    }
    let names = ["nvidiactl".to_owned(), "nvidia-uvm".to_owned()]
        .into_iter()
        .chain(gpus);
    names
        .map(|name| DeviceNode {
            access: node_access(&root.path(format!("dev/{name}"))),
            path: format!("/dev/{name}"),
        })
        .collect()
}

fn node_access(path: &PathBuf) -> Fact<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => e.to_string(),
    })?;
    if !meta.file_type().is_char_device() {
        return Err("is not a device".into());
    }
    accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS).map_err(|e| {
        format!(
            "{e}: mode {:03o}, owner {}, group {}",
            meta.mode() & 0o777,
            meta.uid(),
            meta.gid()
        )
    })
}

fn container(root: &Root) -> Option<String> {
    for file in [".dockerenv", "run/.containerenv"] {
        if root.path(file).exists() {
            return Some(format!("/{file} exists"));
        }
    }
    let groups = root.read("proc/1/cgroup", 64 << 10).unwrap_or_default();
    let groups = clean_line(&groups, 64 << 10);
    let names = ["docker", "kubepods", "containerd", "libpod", "lxc", "crio"];
    names
        .iter()
        .find(|name| groups.contains(**name))
        .map(|name| format!("process 1 is in a control group of {name}"))
}

fn host_pids(root: &Root) -> Fact<bool> {
    /// Inode of the initial pid namespace (`PROC_PID_INIT_INO`).
    const INITIAL: u64 = 0xEFFF_FFFC;
    root.namespace("proc/self/ns/pid")
        .map(|n| n == INITIAL)
        .map_err(|e| format!("/proc/self/ns/pid: {e}"))
}

#[cfg(test)]
mod tests;
