//! CUDA's stub of the library: a file for linking on machines without a driver, which the loader finds if its folder is
//! in `LD_LIBRARY_PATH`. Every function of the stub prints a warning on standard output, which would end up in a report
//! or on the screen. So the stub is recognised before any function is called.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use gpumem_text::clean_line;

use crate::{NvmlState, Root};

/// The folder of the stub in CUDA's packages.
const FOLDER: &str = "stubs";
/// A part of the warning, to recognise copies in other folders. It is in CUDA 13.0's stub, and not in the library of
/// driver 580.
const WARNING: &[u8] = b"stub library";
/// Larger files are not stubs, in bytes. The stub of CUDA 13.0 has 71,600 bytes, the library of driver 580 has 2.3 MB.
const LARGEST: u64 = 1 << 20;

/// Returns the file of the library just loaded by this name, if it is the stub.
pub(super) fn find(name: &OsStr, root: &Root) -> Option<PathBuf> {
    let path = Path::new(name);
    let file = match name.as_encoded_bytes().contains(&b'/') {
        true => path.to_owned(),
        false => mapped(path, root)?,
    };
    is_stub(&file).then_some(file)
}

/// Returns the file that the loader found for a name: the mapped file of that name, with or without a version suffix.
/// Links in its path are already resolved.
fn mapped(name: &Path, root: &Root) -> Option<PathBuf> {
    /// Longer than any process's maps, in bytes.
    const MAPS: u64 = 16 << 20;
    let maps = root.read("proc/self/maps", MAPS).ok()?;
    let text = String::from_utf8_lossy(&maps);
    let name = name.to_str()?;
    let is_it = |path: &&Path| {
        let file = path.file_name().and_then(OsStr::to_str);
        file.is_some_and(|file| file.starts_with(name))
    };
    let mut paths = text
        .lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    paths.rfind(is_it).map(Path::to_owned)
}

fn is_stub(file: &Path) -> bool {
    // The name may be a link into the folder of stubs.
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if real.components().any(|part| part.as_os_str() == FOLDER) {
        return true;
    }
    let small = std::fs::metadata(&real).is_ok_and(|meta| meta.len() < LARGEST);
    small && std::fs::read(&real).is_ok_and(|bytes| bytes.windows(WARNING.len()).any(|piece| piece == WARNING))
}

/// Returns the state of a machine where only the stub is found.
pub(super) fn refused(file: &Path) -> NvmlState {
    let name = clean_line(file.as_os_str().as_encoded_bytes(), 300);
    NvmlState::Failed {
        error: format!("{name} is CUDA's stub, which is for linking programs only"),
        hint:
            "the driver's own libnvidia-ml.so.1 was not found: install the driver, or remove the folder of stubs from \
               LD_LIBRARY_PATH or GPUMEM_NVML"
                .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_is_recognised_by_folder_link_or_warning() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at(FOLDER))?;
        std::fs::write(at("stubs/libnvidia-ml.so"), "")?;
        std::os::unix::fs::symlink(at("stubs/libnvidia-ml.so"), at("linked.so"))?;
        std::fs::write(
            at("copied.so"),
            "\x7fELF ... in GDK package is a stub library that is attached ...",
        )?;
        std::fs::write(at("driver.so"), "\x7fELF")?;
        for (file, expected) in [
            ("stubs/libnvidia-ml.so", true),
            ("linked.so", true),
            ("copied.so", true),
            ("driver.so", false),
            ("absent.so", false),
        ] {
            assert_eq!(is_stub(&at(file)), expected, "{file}");
        }
        Ok(())
    }

    #[test]
    fn loaded_file_is_found_in_the_maps() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir_all(dir.path().join("proc/self"))?;
        let maps = "7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/libc.so.6\n\
                    7f02-7f03 r-xp 00000000 fe:00 13                         /opt/a folder/stubs/libnvidia-ml.so\n\
                    7f04-7f05 rw-p 00000000 00:00 0\n";
        std::fs::write(dir.path().join("proc/self/maps"), maps)?;
        let root = Root::at(dir.path());
        let found = mapped(Path::new("libnvidia-ml.so"), &root);
        assert_eq!(found.as_deref(), Some(Path::new("/opt/a folder/stubs/libnvidia-ml.so")));
        assert_eq!(mapped(Path::new("libcuda.so.1"), &root), None);
        Ok(())
    }
}
