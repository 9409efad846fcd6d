//! What `doctor` says of the driver and its libraries.

use std::path::PathBuf;

use gpumem_probe::{Facts, NvmlSample, NvmlState};

use super::named;
use crate::check::{Check, Verdict, good, not};

/// The checks of the driver, in the order in which one needs the other.
pub(super) fn all(facts: &Facts, sample: &NvmlSample) -> Vec<Check> {
    vec![driver(facts), device_files(facts), nvml(sample), cuda()]
}

fn driver(facts: &Facts) -> Check {
    match &facts.driver_module {
        Ok(version) => good("driver", format!("NVIDIA kernel module {version}")),
        Err(why) => {
            let todo = match &facts.container {
                Some(_) => "in a container: start it with the NVIDIA container runtime (--gpus all)",
                None => "install the NVIDIA driver, or load it (modprobe nvidia); without a GPU use --device sim",
            };
            not("driver", Verdict::NoGpu, why, todo)
        }
    }
}

fn device_files(facts: &Facts) -> Check {
    let refused: Vec<String> = facts
        .device_nodes
        .iter()
        .filter_map(|node| node.access.as_ref().err().map(|why| format!("{} {why}", node.path)))
        .collect();
    if refused.is_empty() {
        return good("device files", format!("{} can be opened", facts.device_nodes.len()));
    }
    // Without a driver there are none, which is no fault of theirs.
    let verdict = if facts.driver_module.is_ok() {
        Verdict::Note
    } else {
        Verdict::NoGpu
    };
    let todo = match verdict {
        Verdict::Note => "join the group that owns them (often video or render), or run nvidia-modprobe -u -c=0",
        _ => "they appear with the driver",
    };
    not("device files", verdict, refused.join("; "), todo)
}

fn nvml(sample: &NvmlSample) -> Check {
    match &sample.state {
        NvmlState::Failed { error, hint } => not("NVML", Verdict::Bad, error.clone(), hint.clone()),
        NvmlState::Missing => {
            let (file, todo) = match named() {
                // The driver's own was not looked for.
                Some(file) => (
                    file,
                    "GPUMEM_NVML names it: correct that, or leave it out for the driver's own",
                ),
                None => (
                    "libnvidia-ml.so.1".to_owned(),
                    "it comes with the driver (libnvidia-compute, nvidia-utils); GPUMEM_NVML names another file",
                ),
            };
            not("NVML", Verdict::NoGpu, format!("{file} is not on this machine"), todo)
        }
        _ if sample.gpus.is_empty() => not(
            "NVML",
            Verdict::NoGpu,
            "works and lists no GPU",
            "check CUDA device rules of the container, or lspci",
        ),
        _ => {
            let names: Vec<String> = sample
                .gpus
                .iter()
                .map(|g| format!("GPU {} {}", g.index, g.name))
                .collect();
            let driver = sample
                .driver
                .as_ref()
                .map_or_else(String::new, |v| format!("driver {v}: "));
            good("NVML", format!("{driver}{}", names.join(", ")))
        }
    }
}

/// The dashboard needs no CUDA; programs that allocate do. The library is looked for, not loaded.
fn cuda() -> Check {
    const NAME: &str = "libcuda.so.1";
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
    ];
    let dirs = std::env::split_paths(&listed).chain(usual.iter().map(PathBuf::from));
    if let Some(path) = dirs.map(|dir| dir.join(NAME)).find(|path| path.exists()) {
        return good("CUDA", path.display().to_string());
    }
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    if cache.windows(NAME.len()).any(|window| window == NAME.as_bytes()) {
        return good("CUDA", format!("{NAME} is known to the loader"));
    }
    let todo = "only programs and demos on a GPU need it; it comes with the driver (libnvidia-compute)";
    not("CUDA", Verdict::NoGpu, format!("{NAME} is not on this machine"), todo)
}
