//! Finding the shared object that cargo built beside this crate, and installing copies of it.

use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "libgpumem_fake_nvml.so";

/// Returns the path of the shared object. A test's executable is in `<target>/<profile>/deps`, and so is every library that was built as
/// its dependency. A program in `<target>/<profile>` finds it one folder down.
///
/// # Errors
/// If neither folder has it: the calling crate does not have this one as a (dev-)dependency.
fn path() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    [
        folder.join(FILE),
        folder.join("deps").join(FILE),
        folder.join("..").join("deps").join(FILE),
    ]
    .into_iter()
    .find(|candidate| candidate.is_file())
    .ok_or_else(|| {
        let why = format!(
            "{FILE} is not beside {}; depend on gpumem-fake-nvml to have it built",
            program.display()
        );
        io::Error::new(io::ErrorKind::NotFound, why)
    })
}

/// Returns the path of a library's scenario.
pub(crate) fn scenario(library: &Path) -> PathBuf {
    let mut name = library.as_os_str().to_owned();
    name.push(".scenario");
    name.into()
}

/// A copy of the library with a scenario of its own. It is a copy because the dynamic loader loads the same file only once in a process.
#[derive(Clone, Debug)]
pub struct FakeNvml {
    library: PathBuf,
}

impl FakeNvml {
    /// Puts a copy into `folder`, as `libnvidia-ml.so.1`, with its first scenario.
    ///
    /// # Errors
    /// If the library is not found or the folder cannot be written.
    pub fn install(folder: &Path, text: &str) -> io::Result<Self> {
        let fake = FakeNvml {
            library: folder.join("libnvidia-ml.so.1"),
        };
        std::fs::copy(path()?, &fake.library)?;
        fake.play(text)?;
        Ok(fake)
    }

    /// Returns the path of the library to load.
    pub fn path(&self) -> &Path {
        &self.library
    }

    /// Changes the scenario atomically: a call at the same time sees the old or the new one.
    ///
    /// # Errors
    /// Those of writing a file and renaming it.
    pub fn play(&self, text: &str) -> io::Result<()> {
        let fresh = self.library.with_extension("new");
        std::fs::write(&fresh, text)?;
        std::fs::rename(&fresh, scenario(&self.library))
    }

    /// Removes a function, as in an older driver: the dynamic loader no longer finds it. Call this before the library is loaded.
    ///
    /// The name is changed among the library's symbol names; its hash table then leads to a name that does not match.
    ///
    /// # Errors
    /// If the library cannot be read or written, or has no such function.
    pub fn remove(&self, function: &str) -> io::Result<()> {
        let mut bytes = std::fs::read(&self.library)?;
        let name = [b"\0", function.as_bytes(), b"\0"].concat();
        let mut at = 0;
        while let Some(offset) = bytes[at..].windows(name.len()).position(|w| w == name) {
            at += offset + 1;
            bytes[at] = b'!';
        }
        if at == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{FILE} has no function {function}"),
            ));
        }
        std::fs::write(&self.library, bytes)
    }
}
