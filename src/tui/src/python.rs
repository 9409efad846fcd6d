//! The Python side of `run`, carried in this program: the package `gpumem`, and the `sitecustomize` that starts it.
//!
//! The files are written to a folder of the user's cache, whose name has a hash of their content, so that programs of several versions
//! may run side by side. Python runs what is there: whatever differs is written anew before a command starts.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use gpumem_demo::bench::{CacheError, CacheFolder, cache_folder};

macro_rules! files {
    ($($folder:literal: $($name:literal),*;)*) => {
        [$($((
            $folder,
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../python/", $folder, "/", $name)),
        ),)*)*]
    };
}

/// Folder, name and content of each file.
const FILES: &[(&str, &str, &str)] = &files! {
    "bootstrap": "sitecustomize.py";
    "gpumem": "__init__.py", "_allocator.py", "_binary.py", "_c_abi.py", "_cupy.py", "_history.py", "_hook.py", "_names.py", "_oom.py",
        "_pace.py", "_pipe.py", "_publisher.py", "_reader.py", "_rmm.py", "_say.py", "_torch.py", "_torch_figures.py",
        "_torch_pluggable.py", "_torch_pools.py", "_users.py", "_uuid.py";
};

/// What runs in a process that is attached to.
const ATTACH: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../python/attach/start.py"));

/// Returns the two parts of a statement of Python that publishes the process that executes it, over the descriptor whose number stands
/// between them. It leaves no name behind. `pid` is the process's number in its own pid namespace.
pub(crate) fn attach(pid: u32) -> [String; 2] {
    // A text or an object of texts in JSON is one in Python, too.
    let package = FILES.iter().filter(|(folder, ..)| *folder == "gpumem");
    let files: BTreeMap<&str, &str> = package.map(|(_, name, content)| (*name, *content)).collect();
    let [source, files] = [serde_json::to_string(ATTACH), serde_json::to_string(&files)].map(Result::unwrap_or_default);
    let before = format!("exec({source}, {{'__name__': '_gpumem_attach', 'PID': {pid}, 'FILES': {files}, 'FD': ");
    [before, "})\n".to_owned()]
}

/// The folder of FILES that goes on PYTHONPATH.
const ON_PATH: &str = "bootstrap";

/// Writes the files, as far as they are not there. Returns the folder that goes on PYTHONPATH.
pub(crate) fn install() -> Result<PathBuf, CacheError> {
    let cache = cache_folder()?;
    CacheFolder::create(&cache)?;
    let root = cache.join(name());
    CacheFolder::create(&root)?;
    for (folder, name, content) in FILES {
        let folder = CacheFolder::create(&root.join(folder))?;
        if folder.read(name).is_ok_and(|found| found == content.as_bytes()) {
            continue;
        }
        folder.write(name, content.as_bytes())?;
    }
    Ok(root.join(ON_PATH))
}

/// Returns the name of the folder for these files.
fn name() -> String {
    let mut hasher = DefaultHasher::new();
    FILES.hash(&mut hasher);
    format!("python-{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;

    /// A file that is missing here is missing in every process that `run` starts.
    #[test]
    fn every_python_file_is_carried() {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
        // For `python -m gpumem`, which needs the package installed.
        let only_in_the_wheel = ["__main__.py", "py.typed"];
        for folder in ["bootstrap", "gpumem"] {
            let mut there: Vec<String> = std::fs::read_dir(python.join(folder))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.contains('.') && !only_in_the_wheel.contains(&name.as_str()))
                .collect();
            there.sort();
            let mut carried: Vec<_> = FILES
                .iter()
                .filter(|file| file.0 == folder)
                .map(|file| file.1)
                .collect();
            carried.sort();
            assert_eq!(there, carried, "{folder}");
        }
    }
}
