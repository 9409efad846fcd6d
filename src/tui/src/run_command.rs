//! `gpumem-tui run`: replaces this process by a command whose Python processes publish, or use the allocator.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpumem_demo::bench::CacheError;
use gpumem_demo::wrong_environment;
use gpumem_text::clean;

use crate::library::{self, Unusable};
use crate::python;

/// The variable that has the allocator's options.
const OPTIONS: &str = "GPUMEM_ALLOC_CONF";

/// Why Python processes of the command cannot publish, or use the allocator.
#[derive(Debug)]
pub(crate) enum Unprepared {
    /// The Python files cannot be written.
    Files(CacheError),
    /// Folders in PYTHONPATH are separated by colons.
    Colon(PathBuf),
    /// The path of this program is unknown.
    Program(io::Error),
    /// The allocator's library cannot be used.
    Library(Unusable),
    /// The allocator's options are wrong.
    Options(String),
}

impl std::fmt::Display for Unprepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unprepared::Files(error) => write!(f, "{error}"),
            Unprepared::Colon(path) => {
                let path = clean(&path.display().to_string());
                write!(
                    f,
                    "{path} has a colon, which PYTHONPATH cannot have: set XDG_CACHE_HOME to another folder"
                )
            }
            Unprepared::Program(error) => write!(f, "the path of this program is unknown: {error}"),
            Unprepared::Library(error) => write!(f, "{error}"),
            Unprepared::Options(error) => write!(f, "{error}"),
        }
    }
}

/// Why a command was not run.
#[derive(Debug)]
pub(crate) struct NotRun {
    command: OsString,
    error: io::Error,
}

impl NotRun {
    /// Returns the exit code that shells give it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.error.kind() {
            io::ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}

impl std::fmt::Display for NotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let command = clean(&self.command.to_string_lossy());
        match self.error.kind() {
            io::ErrorKind::NotFound => write!(f, "run: {command}: command not found"),
            _ => write!(f, "run: cannot run {command}: {}", self.error),
        }
    }
}

/// Returns the variables that put PyTorch and CuPy on the allocator in every Python, after a look at its library and options. Says on
/// stderr what is used.
pub(crate) fn with_allocator(named: Option<&Path>) -> Result<Vec<(&'static str, OsString)>, Unprepared> {
    let path = library::find(named).map_err(Unprepared::Library)?;
    if let Some(error) = wrong_environment() {
        return Err(Unprepared::Options(clean(&error.to_string())));
    }
    let mut environment = environment("allocator")?;
    if !is_set("GPUMEM_QUIET") {
        let told = std::env::var(OPTIONS).unwrap_or_default();
        let options = match told.split_whitespace().collect::<Vec<_>>().join(" ") {
            told if told.is_empty() => "default options".to_owned(),
            told => format!("{OPTIONS}={}", clean(&told)),
        };
        let path = clean(&path.display().to_string());
        // The command runs even if stderr is closed.
        let _ = writeln!(io::stderr(), "gpumem: on for PyTorch and CuPy: {path}, {options}");
    }
    environment.push((library::VARIABLE, path.into()));
    Ok(environment)
}

/// Checks whether an environment variable is set, to something else than 0.
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Writes the Python files, and returns the variables that have a Python run them. `what` tells them what to do.
pub(crate) fn environment(what: &str) -> Result<Vec<(&'static str, OsString)>, Unprepared> {
    let program = std::env::current_exe().map_err(Unprepared::Program)?;
    let folder = python::install().map_err(Unprepared::Files)?;
    let before = std::env::var_os("PYTHONPATH");
    let path = python_path(&folder, before.as_deref()).ok_or(Unprepared::Colon(folder))?;
    Ok(vec![
        ("PYTHONPATH", path),
        ("GPUMEM_TUI", program.into()),
        ("GPUMEM_RUN", what.into()),
    ])
}

/// Puts a folder in front of PYTHONPATH. `None` if its path has a colon.
fn python_path(folder: &Path, before: Option<&OsStr>) -> Option<OsString> {
    let mut path = std::env::join_paths([folder]).ok()?;
    // Python takes an empty entry for the working directory.
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    Some(path)
}

/// Replaces this process by a command. Returns only if that fails.
pub(crate) fn run(command: &[OsString], environment: Vec<(&str, OsString)>) -> NotRun {
    let (name, arguments) = command
        .split_first()
        .map_or_else(Default::default, |(name, rest)| (name.clone(), rest));
    let error = Command::new(&name).args(arguments).envs(environment).exec();
    NotRun { command: name, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_path_keeps_what_was_there() {
        let put = |before: Option<&str>| python_path(Path::new("/cache/boot"), before.map(OsStr::new));
        assert_eq!(put(None), Some("/cache/boot".into()));
        assert_eq!(put(Some("")), Some("/cache/boot".into()));
        assert_eq!(put(Some("/a::b")), Some("/cache/boot:/a::b".into()));
        assert_eq!(python_path(Path::new("/a:b"), None), None);
    }
}
