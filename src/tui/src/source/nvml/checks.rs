//! The checks of `doctor` for the driver and its libraries.

use std::path::PathBuf;

use gpumem_probe::{Facts, Gpu, GpuState, Memory, NvmlSample, NvmlState, Reading};

use super::named;
use crate::check::{Check, Verdict, good, not};
use crate::model::DeviceState;

/// Returns the checks for the driver. Each needs those before it.
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
    // Without a driver the files do not exist, which is not a fault of its own.
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
                // The driver's own library was not tried.
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
        _ => gpus(sample),
    }
}

/// Lists the GPUs, each with its faults in the words of the reports.
fn gpus(sample: &NvmlSample) -> Check {
    let say = |gpu: &Gpu| {
        let name = format!("GPU {} {}", gpu.index, gpu.name).trim_end().to_owned();
        let memory = |memory: &Reading<Memory>| memory.reason().map(|why| format!("memory: {why}"));
        let parts = gpu.mig.iter().filter_map(|part| {
            let why = memory(&part.memory)?;
            Some(format!("GPU {}:{} {why}", gpu.index, part.index))
        });
        let wrong = DeviceState::from(&gpu.state)
            .said()
            .into_iter()
            .chain(memory(&gpu.memory));
        match wrong.chain(parts).collect::<Vec<_>>() {
            none if none.is_empty() => name,
            wrong => format!("{name} ({})", wrong.join("; ")),
        }
    };
    let driver = sample
        .driver
        .as_ref()
        .map_or_else(String::new, |v| format!("driver {v}: "));
    let seen = driver + &sample.gpus.iter().map(say).collect::<Vec<_>>().join(", ");
    let is_lost = |gpu: &Gpu| matches!(gpu.state, GpuState::Lost(_));
    let memories = |gpu: &Gpu| {
        let parts = gpu.mig.iter().all(|part| part.memory.value().is_some());
        gpu.memory.value().is_some() && parts
    };
    if sample.gpus.iter().any(is_lost) {
        let todo = "look for Xid errors (dmesg | grep -i xid), end the programs on it and reset it (nvidia-smi --gpu-reset), \
                    or reboot";
        not("NVML", Verdict::Bad, seen, todo)
    } else if sample.gpus.iter().all(memories) {
        good("NVML", seen)
    } else {
        let todo = "what the driver does not report is known only from programs that publish; without permission, run it as \
                    root or ask for access to the device files";
        not("NVML", Verdict::Note, seen, todo)
    }
}

/// Looks for the CUDA library without loading it. Programs that allocate need it; the dashboard does not.
fn cuda() -> Check {
    const NAME: &str = "libcuda.so.1";
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
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
