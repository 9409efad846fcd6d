//! Finds and loads NVML, and describes what is wrong when it does not work.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::calls::{Calls, Code, Library};
use super::stub;
use crate::{NvmlState, Root, facts};

/// File names of the library. The first is in the driver's own packages, the second often in development packages only.
const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Folders that have the library although the loader may not search them: the Windows driver in WSL, and NixOS.
const FOLDERS: [&str; 2] = ["usr/lib/wsl/lib", "run/opengl-driver/lib"];

pub(super) fn load(lib: Option<&Path>, root: &Root) -> Result<Calls, NvmlState> {
    if let Some(path) = lib {
        return open(path.as_os_str(), root);
    }
    if let Some(path) = std::env::var_os("GPUMEM_NVML").filter(|p| !p.is_empty()) {
        return open(&path, root);
    }
    let folders = FOLDERS.map(|folder| root.path(folder).join(NAMES[0]).into_os_string());
    search(NAMES.map(OsString::from).into_iter().chain(folders), root)
}

/// Returns the first library that works, or what is wrong with the first one that exists.
fn search(names: impl Iterator<Item = OsString>, root: &Root) -> Result<Calls, NvmlState> {
    let mut wrong = NvmlState::Missing;
    for name in names {
        match open(&name, root) {
            Ok(calls) => return Ok(calls),
            Err(state) if wrong == NvmlState::Missing => wrong = state,
            Err(_) => {}
        }
    }
    Err(wrong)
}

fn open(name: &OsStr, root: &Root) -> Result<Calls, NvmlState> {
    match Library::load(name) {
        Ok(library) => match stub::find(name, root) {
            Some(file) => Err(stub::refused(&file)),
            None => Calls::init(&library, name).map_err(|code| failed(code, root)),
        },
        Err(loader) if is_absent(name, &loader) => Err(NvmlState::Missing),
        Err(loader) => Err(NvmlState::Failed {
            error: loader,
            hint: LOADER_HINT.into(),
        }),
    }
}

/// The hint for a library that cannot be loaded. Container runtimes leave empty files in place of the driver's
/// libraries when no GPU was requested.
const LOADER_HINT: &str = "the library is there and cannot be loaded: reinstall the driver's user-space packages, or \
                           in a container start it with the GPU passed through (--gpus all)";

/// Whether this very file is absent, rather than damaged, unreadable or missing a dependency. For a bare name only the
/// loader knows: its message begins with the name of the missing library.
fn is_absent(name: &OsStr, message: &str) -> bool {
    let name = name.to_string_lossy();
    if name.contains('/') {
        return Path::new(&*name).try_exists().is_ok_and(|there| !there);
    }
    message
        .strip_prefix(&*name)
        .is_some_and(|rest| rest.ends_with("No such file or directory"))
}

/// Returns the state for a driver that answers with an error.
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
    fn missing_dependency_is_not_a_missing_library() {
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

    /// The library used to be searched in the loader's folders only.
    #[test]
    fn library_is_found_in_the_folders_of_wsl_and_nixos() -> std::io::Result<()> {
        for folder in FOLDERS {
            let dir = tempfile::tempdir()?;
            let root = Root::at(dir.path());
            let names = || {
                FOLDERS
                    .map(|folder| root.path(folder).join(NAMES[0]).into_os_string())
                    .into_iter()
            };
            assert!(matches!(search(names(), &root), Err(NvmlState::Missing)));
            std::fs::create_dir_all(root.path(folder))?;
            let _fake = gpumem_fake_nvml::FakeNvml::install(&root.path(folder), "driver=1.2.3")?;
            let found = search(names(), &root).ok();
            let driver = found.and_then(|calls| calls.driver_version().ok());
            assert_eq!(driver.as_deref(), Some("1.2.3"), "{folder}");
        }
        Ok(())
    }

    /// The error is that of the first library that exists, unless a later one works.
    #[test]
    fn working_library_is_found_after_a_broken_one() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let root = Root::at(dir.path());
        let [stub, broken, works] = ["stubs", "broken", "works"].map(|name| dir.path().join(name));
        for (folder, scenario) in [(&stub, ""), (&broken, "init=driver_not_loaded"), (&works, "")] {
            std::fs::create_dir(folder)?;
            gpumem_fake_nvml::FakeNvml::install(folder, scenario)?;
        }
        let name = |folder: &std::path::PathBuf| folder.join(NAMES[0]).into_os_string();
        let wrong = search([name(&stub), name(&broken)].into_iter(), &root).err();
        assert!(matches!(wrong, Some(NvmlState::Failed { error, .. }) if error.contains("stubs/libnvidia-ml.so.1")));
        assert!(search([name(&stub), name(&broken), name(&works)].into_iter(), &root).is_ok());
        Ok(())
    }

    #[test]
    fn version_mismatch_names_the_loaded_module() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir_all(dir.path().join("proc/driver/nvidia"))?;
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.10.02  Release Build  (x@y)\n";
        std::fs::write(dir.path().join("proc/driver/nvidia/version"), text)?;
        assert!(hint(Code::VERSION_MISMATCH, &Root::at(dir.path())).contains("570.10.02"));
        Ok(())
    }
}
