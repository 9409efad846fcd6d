//! Finding the shared object that cargo built beside this crate, and making variants of it.

use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "libgpumem_fake_nvml.so";

/// The shared object. A test's own executable lies in `<target>/<profile>/deps`, and so does every library that was built as its
/// dependency; a program that cargo put into `<target>/<profile>` finds it one folder down.
///
/// # Errors
/// When neither place has it: the calling crate does not have this one as a (dev-)dependency.
pub fn path() -> io::Result<PathBuf> {
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

/// A copy of the library in `folder` that lacks the function `symbol`, as a driver does that is older than the function: a loader does
/// not find it. The name is changed in the copy's symbol names, which leaves the hash table pointing at a name that no longer matches.
///
/// # Errors
/// When the library cannot be found, read or written, or has no such function.
pub fn without(symbol: &str, folder: &Path) -> io::Result<PathBuf> {
    let mut bytes = std::fs::read(path()?)?;
    let name = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let mut found = false;
    let mut at = 0;
    while let Some(offset) = bytes[at..].windows(name.len()).position(|w| w == name) {
        // The last character before the closing zero.
        bytes[at + offset + name.len() - 2] = b'!';
        found = true;
        at += offset + 1;
    }
    if !found {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{FILE} has no function {symbol}"),
        ));
    }
    let copy = folder.join(format!("without-{symbol}.so"));
    std::fs::write(&copy, bytes)?;
    Ok(copy)
}

/// Puts a scenario in place at `file`, whole or not at all: a program that reads it meanwhile sees the old or the new one.
///
/// # Errors
/// Those of writing a file beside it and renaming it.
pub fn write_scenario(file: &Path, text: &str) -> io::Result<()> {
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(".new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, file)
}
