//! Finding NVML, and saying what is wrong when it does not work.

use std::ffi::OsStr;
use std::path::Path;

use super::calls::{Calls, Code, Library};
use crate::{NvmlState, Root, facts};

/// The first is in the driver's own packages, the second often in development packages only.
const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

pub(super) fn load(lib: Option<&Path>, root: &Root) -> Result<Calls, NvmlState> {
    if let Some(path) = lib {
        return open(path.as_os_str(), root);
    }
    if let Some(path) = std::env::var_os("GPUMEM_NVML").filter(|p| !p.is_empty()) {
        return open(&path, root);
    }
    match open(OsStr::new(NAMES[0]), root) {
        Err(NvmlState::Missing) => open(OsStr::new(NAMES[1]), root),
        answer => answer,
    }
}

fn open(name: &OsStr, root: &Root) -> Result<Calls, NvmlState> {
    match Library::load(name) {
        Ok(library) => Calls::init(&library, name).map_err(|code| failed(code, root)),
        Err(loader) if is_absent(name, &loader) => Err(NvmlState::Missing),
        Err(loader) => Err(NvmlState::Failed {
            error: loader,
            hint: LOADER_HINT.into(),
        }),
    }
}

/// Container runtimes leave empty files in place of the driver's libraries when no GPU was asked for.
const LOADER_HINT: &str = "the library is there and cannot be loaded: reinstall the driver's user-space packages, or \
                           in a container start it with the GPU passed through (--gpus all)";

/// Whether this very file is absent, rather than damaged, unreadable or in want of another library. For a bare name
/// only the loader knows, which begins its message with the name of the library that it misses.
fn is_absent(name: &OsStr, message: &str) -> bool {
    let name = name.to_string_lossy();
    if name.contains('/') {
        return Path::new(&*name).try_exists().is_ok_and(|there| !there);
    }
    message
        .strip_prefix(&*name)
        .is_some_and(|rest| rest.ends_with("No such file or directory"))
}

/// The state for a driver that answers with an error.
pub(super) fn failed(code: Code, root: &Root) -> NvmlState {
    NvmlState::Failed {
        error: code.text(),
        hint: hint(code, root),
    }
}

fn hint(code: Code, root: &Root) -> String {
    match code {
        Code::DRIVER_NOT_LOADED => "the kernel module is not loaded: try `sudo modprobe nvidia`, see \
                                    `dmesg | grep -i nvrm`; in a container pass the GPU through (--gpus all)"
            .into(),
        Code::VERSION_MISMATCH => {
            let module = facts::driver_module(root).map(|v| format!(" (it is {v})"));
            format!(
                "the driver was updated while its old kernel module{} is still loaded: reboot, or stop every program \
                 on the GPU and reload the module; in a container, restart the container",
                module.unwrap_or_default()
            )
        }
        Code::NO_PERMISSION => "this user may not open the GPU's device files: see `ls -l /dev/nvidia*` and which \
                                group owns them (often `video` or `render`); in a container, which devices it was given"
            .into(),
        _ => "see whether `nvidia-smi` works here, and `dmesg | grep -i nvrm` for the driver's own words".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_librarys_own_absence_counts() {
        let name = OsStr::new("libnvidia-ml.so.1");
        let absent = |message| is_absent(name, message);
        assert!(absent(
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
        ));
        assert!(!absent(
            "libcuda-other.so: cannot open shared object file: No such file or directory"
        ));
        assert!(!absent(
            "libnvidia-ml.so.1: cannot open shared object file: Permission denied"
        ));
        assert!(!absent("libnvidia-ml.so.1: file too short"));
    }

    #[test]
    fn a_mismatch_names_the_module_that_is_loaded() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir_all(dir.path().join("proc/driver/nvidia"))?;
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.10.02  Release Build  (x@y)\n";
        std::fs::write(dir.path().join("proc/driver/nvidia/version"), text)?;
        assert!(hint(Code::VERSION_MISMATCH, &Root::at(dir.path())).contains("570.10.02"));
        Ok(())
    }
}
