//! Parses scenario text into a [`World`]. The crate's documentation describes the format.

use nvml_wrapper_sys::bindings as nvml;

use crate::world::{Answer, Gpu, Process, World};

/// The most GPUs of a scenario, so that a typo does not ask for a billion.
const MAX_GPUS: usize = 64;

/// Returns the text of a named scenario.
fn named(text: &str) -> Option<&'static str> {
    match text.trim() {
        "h100" => Some(""),
        "h100x2" => Some("gpus=2"),
        "gb10" => Some("gpu0.name=NVIDIA GB10;gpu0.memory=not_supported"),
        "mig" => Some("gpu0.mig=2"),
        _ => None,
    }
}

pub(crate) fn world(text: &str) -> Result<World, String> {
    let text = named(text).unwrap_or(text);
    let lines = || {
        text.split(['\n', ';'])
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
    };
    let mut world = World::new();
    // The number of GPUs comes first, because their keys may be before it in the text.
    for line in lines() {
        if let Some(count) = line.strip_prefix("gpus=") {
            let count = number(count).map_err(|why| format!("{line}: {why}"))? as usize;
            world.gpus = (0..count.min(MAX_GPUS)).map(Gpu::h100).collect();
        }
    }
    for line in lines() {
        let (key, value) = line.split_once('=').ok_or_else(|| format!("{line}: no '='"))?;
        set(&mut world, key, value).map_err(|why| format!("{line}: {why}"))?;
    }
    Ok(world)
}

fn set(world: &mut World, key: &str, value: &str) -> Result<(), String> {
    match key {
        "gpus" => {}
        "load_delay_ms" => world.load_delay_ms = number(value)?,
        "load_exit" => world.load_exit = Some(small(value)? as i32),
        "says" => world.says = value.into(),
        "init" => world.init = answer(value)?,
        "init_delay_ms" => world.init_delay_ms = number(value)?,
        "calls" => world.calls = answer(value)?,
        "driver" => world.driver = value.into(),
        "cuda" => world.cuda = small(value)? as i32,
        "process_bytes" => world.process_bytes = if number(value)? == 32 { 32 } else { 24 },
        _ => {
            let (gpu, key) = key
                .strip_prefix("gpu")
                .and_then(|k| k.split_once('.'))
                .ok_or("unknown key")?;
            let gpu = gpu
                .parse()
                .ok()
                .and_then(|i: usize| world.gpus.get_mut(i))
                .ok_or("no such GPU")?;
            set_gpu(gpu, key, value)?;
        }
    }
    Ok(())
}

fn set_gpu(gpu: &mut Gpu, key: &str, value: &str) -> Result<(), String> {
    match key {
        "name" => gpu.name = bytes(value)?,
        "uuid" => gpu.uuid = bytes(value)?,
        "pci" => gpu.pci = bytes(value)?,
        "total" => gpu.total = number(value)?,
        "used" => gpu.used = number(value)?,
        "reserved" => gpu.reserved = number(value)?,
        "free" => gpu.free = Some(number(value)?),
        "memory" => gpu.memory = answer(value)?,
        "memory_delay_ms" => gpu.memory_delay_ms = number(value)?,
        "sensors" => gpu.sensors = answer(value)?,
        "utilization" => gpu.utilization = small(value)?,
        "memory_utilization" => gpu.memory_utilization = small(value)?,
        "temperature" => gpu.temperature = small(value)?,
        "power" => gpu.power = small(value)?,
        "power_limit" => gpu.power_limit = small(value)?,
        "pcie_rx" => gpu.pcie_rx = small(value)?,
        "pcie_tx" => gpu.pcie_tx = small(value)?,
        "pcie_delay_ms" => gpu.pcie_delay_ms = number(value)?,
        "process" => gpu.process.push(process(value)?),
        "processes" => gpu.processes = answer(value)?,
        "whole_list" => gpu.whole_list = answer(value)?,
        "state" => gpu.state = answer(value)?,
        "answers" => gpu.answers = answer(value)?,
        "mig" => gpu.mig = small(value)?.min(16),
        _ => return Err("unknown key of a GPU".into()),
    }
    Ok(())
}

fn process(value: &str) -> Result<Process, String> {
    let mut parts = value.split(':');
    let mut part = |what: &str| parts.next().ok_or_else(|| format!("no {what}"));
    let pid = match part("pid")? {
        "self" => std::process::id(),
        pid => small(pid)?,
    };
    let bytes = match part("bytes")? {
        "-" => u64::MAX,
        bytes => number(bytes)?,
    };
    let (compute, graphics, mps) = match part("kind")? {
        "compute" => (true, false, false),
        "graphics" => (false, true, false),
        "both" => (true, true, false),
        "mps" => (false, false, true),
        "compute+mps" => (true, false, true),
        other => return Err(format!("{other} is no kind of process")),
    };
    let instance = parts.next().map_or(Ok(u32::MAX), small)?;
    Ok(Process {
        pid,
        bytes,
        compute,
        graphics,
        mps,
        instance,
    })
}

fn answer(value: &str) -> Result<Answer, String> {
    Ok(match value {
        "ok" => Ok(()),
        "driver_not_loaded" => Err(nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED),
        "version_mismatch" => Err(nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH),
        "no_permission" => Err(nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION),
        "not_supported" => Err(nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
        "lost" => Err(nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST),
        "reset_required" => Err(nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED),
        "unknown" => Err(nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN),
        code => Err(small(code)?),
    })
}

/// Parses a number with an optional binary suffix.
fn number(value: &str) -> Result<u64, String> {
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'K') => (&value[..value.len() - 1], 10),
        Some(b'M') => (&value[..value.len() - 1], 20),
        Some(b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{value} is no number"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{value} is too large"))
}

fn small(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("{value} is no number of 32 bits"))
}

/// Parses text with `\xNN` for any byte, so that names can contain what a real driver would never send.
fn bytes(value: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("\\x") {
        out.extend_from_slice(before.as_bytes());
        let digits = after.get(..2).ok_or("\\x needs two digits")?;
        out.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x needs two hexadecimal digits")?);
        rest = &after[2..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_empty_scenario_is_one_idle_h100() {
        let world = world("\n# a comment\n").unwrap();
        assert_eq!(world.gpus.len(), 1);
        assert_eq!(world.gpus[0].total >> 20, 81559);
        assert_eq!(world.gpus[0].reserved >> 20, 480);
    }

    #[test]
    fn keys_reach_their_gpu_before_and_after_the_count() {
        let world = world("gpu1.used=2G;gpu1.name=a\\x1bb;gpu1.process=7:-:both:3;gpus=2;gpu0.state=lost").unwrap();
        assert_eq!(world.gpus[1].used, 2 << 30);
        assert_eq!(world.gpus[1].name, b"a\x1bb");
        assert_eq!(
            world.gpus[1].process,
            [Process {
                pid: 7,
                bytes: u64::MAX,
                compute: true,
                graphics: true,
                mps: false,
                instance: 3
            }]
        );
        assert_eq!(world.gpus[0].state, Err(nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST));
        assert_eq!(world.gpus[1].state, Ok(()));
    }

    #[test]
    fn a_typo_is_an_error_that_names_the_line() {
        for text in [
            "gpu0.usd=1",
            "gpus=two",
            "gpu7.used=1",
            "used",
            "gpu0.process=1:2",
            "gpu0.name=\\xzz",
            "init=fine",
            "gpu0.used=20000000000G",
        ] {
            let why = world(text).unwrap_err();
            assert!(why.starts_with(text), "{text}: {why}");
        }
    }

    #[test]
    fn the_named_scenarios_parse() {
        for name in ["h100", "h100x2", "gb10", "mig"] {
            assert!(named(name).is_some() && world(name).is_ok(), "{name}");
        }
    }
}
