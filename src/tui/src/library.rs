//! The allocator's library, `libgpumem_alloc.so`, which is not in this program: where it is, and whether it can be used.
//!
//! A command is to fail before it begins if its Pythons could not load the library, so the file is looked at first. It is not loaded
//! here: loading a file runs what is in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gpumem_text::clean;

/// The environment variable that names the library. The Python package reads it, too.
pub(crate) const VARIABLE: &str = "GPUMEM_LIBRARY";
const NAME: &str = "libgpumem_alloc.so";

/// Where it can be, from this program's folder: in the same one, as in the wheel, and as cargo builds it. The Python package has the
/// same list.
const NEAR: [&str; 3] = [".", "../lib", "../embed"];

/// Functions that Pythons call, or give to PyTorch.
const FUNCTIONS: [&str; 4] = [
    "gpumem_alloc",
    "gpumem_torch_alloc",
    "gpumem_adopt_torch",
    "gpumem_conf_error",
];

/// Offsets in an ELF file (elf.h): its word size and byte order, its type, and its machine.
const CLASS: std::ops::Range<usize> = 4..6;
const TYPE: std::ops::Range<usize> = 16..18;
const MACHINE: std::ops::Range<usize> = 18..20;
/// Of 64-bit files: where the table of sections begins, and its number of entries of 64 bytes.
const SECTIONS: std::ops::Range<usize> = 40..48;
const SECTION_COUNT: std::ops::Range<usize> = 60..62;
const SECTION_BYTES: u64 = 64;
const HEADER: usize = 64;
const SHARED_OBJECT: u64 = 3;

/// Why the library cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It is nowhere near this program.
    Missing,
    /// A file that was named, or found, and what is wrong with it.
    File(PathBuf, Wrong),
}

/// What is wrong with a file.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// It cannot be read.
    Unread(io::Error),
    /// It is a folder.
    Folder,
    /// It is a pipe or a device.
    NoFile,
    /// It is a program, a text, or anything else.
    NotShared,
    /// It ends too early.
    Cut,
    /// It is for another processor.
    Foreign,
    /// It does not have this function.
    Lacks(&'static str),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unusable::File(path, wrong) = self else {
            return write!(
                f,
                "{NAME} is not beside this program: build it with `cargo build --profile embed -p gpumem-alloc-c`, \
                 or name it with --library or {VARIABLE}"
            );
        };
        let path = clean(&path.display().to_string());
        match wrong {
            Wrong::Unread(error) => write!(f, "{path}: cannot open it: {error}"),
            Wrong::Folder => write!(f, "{path} is a folder: name the library in it, {NAME}"),
            Wrong::NoFile => write!(f, "{path} is not a file"),
            Wrong::NotShared => write!(f, "{path} is not a shared library"),
            Wrong::Cut => write!(f, "{path} is cut off: copy or build it again"),
            Wrong::Foreign => write!(f, "{path} is a library for another processor than this one"),
            Wrong::Lacks(function) => {
                write!(f, "{path} is not gpumem's library, or an old one: it lacks {function}")
            }
        }
    }
}

/// Returns the absolute path of the library: of the one that is named, else that of `GPUMEM_LIBRARY`, else of one near this program.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, Unusable> {
    let variable = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let path = named
        .map(Path::to_owned)
        .or(variable.map(PathBuf::from))
        .or_else(near)
        .ok_or(Unusable::Missing)?;
    let path = std::path::absolute(&path).unwrap_or(path);
    match check(&path) {
        Ok(()) => Ok(path),
        Err(wrong) => Err(Unusable::File(path, wrong)),
    }
}

fn near() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    NEAR.iter()
        .filter_map(|near| folder.join(near).canonicalize().ok())
        .map(|folder| folder.join(NAME))
        .find(|path| path.is_file())
}

/// Looks at a file.
fn check(path: &Path) -> Result<(), Wrong> {
    let kind = std::fs::metadata(path).map_err(Wrong::Unread)?;
    if kind.is_dir() {
        return Err(Wrong::Folder);
    }
    // Opening a pipe would block.
    if !kind.is_file() {
        return Err(Wrong::NoFile);
    }
    let mut file = File::open(path).map_err(Wrong::Unread)?;
    let mut library = Vec::new();
    // Any file may be named, of any size.
    file.by_ref()
        .take(HEADER as u64)
        .read_to_end(&mut library)
        .map_err(Wrong::Unread)?;
    let header = library.first_chunk::<HEADER>().ok_or(Wrong::NotShared)?;
    let end = check_header(header)?;
    file.read_to_end(&mut library).map_err(Wrong::Unread)?;
    if end > library.len() as u64 {
        return Err(Wrong::Cut);
    }
    check_functions(&library)
}

/// Looks at the first bytes of a file, beside those of this program. Returns the least size of the file.
fn check_header(header: &[u8; HEADER]) -> Result<u64, Wrong> {
    if !header.starts_with(b"\x7fELF") {
        return Err(Wrong::NotShared);
    }
    let mut ours = [0; HEADER];
    let known = File::open("/proc/self/exe").and_then(|mut file| file.read_exact(&mut ours));
    let platform = |header: &[u8; HEADER]| [&header[CLASS], &header[MACHINE]].concat();
    if known.is_ok() && platform(&ours) != platform(header) {
        return Err(Wrong::Foreign);
    }
    let number = |at: std::ops::Range<usize>| {
        header[at]
            .iter()
            .rev()
            .fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    if number(TYPE) != SHARED_OBJECT {
        return Err(Wrong::NotShared);
    }
    Ok(number(SECTIONS).saturating_add(number(SECTION_COUNT) * SECTION_BYTES))
}

fn check_functions(library: &[u8]) -> Result<(), Wrong> {
    // Names in its table of symbols end with a zero byte, and may be the end of longer ones.
    let mut lacks = FUNCTIONS.to_vec();
    for name in library.split(|byte| *byte == 0) {
        lacks.retain(|function| !name.ends_with(function.as_bytes()));
    }
    lacks.first().map_or(Ok(()), |function| Err(Wrong::Lacks(function)))
}
