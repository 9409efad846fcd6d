//! A snapshot becomes a file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gpumem_snapshot::{Snapshot, WriteError};

use super::ExportError;
use crate::process::Unraised;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Whoever the process's mask lets.
    AsUsual,
    /// Its owner: it has call stacks and names of a program whose user may not know that it is written.
    Owner,
}

/// Writes a snapshot into a file: JSON if it is named `.json`, else a pickle. The file is there when it is whole.
pub(crate) fn write(snapshot: &Snapshot, path: &Path, readers: Readers) -> Result<(), ExportError> {
    let failed = |source| ExportError::File {
        path: path.to_owned(),
        source,
    };
    let name = path
        .file_name()
        .ok_or_else(|| failed(ErrorKind::InvalidFilename.into()))?;
    // The new file would be there instead, for everybody: root's programs could replace /dev/null, or /dev/stderr, which is a link. A folder
    // refuses that itself.
    if let Ok(there) = std::fs::symlink_metadata(path).map(|there| there.file_type()) {
        if there.is_symlink() {
            return Err(failed(io::Error::other(
                "there is a symbolic link, and what it leads to would not be written",
            )));
        }
        if !there.is_file() && !there.is_dir() {
            return Err(failed(io::Error::other("there is something that is no file")));
        }
    }
    // A program that may not make large files is not ended for one of ours.
    let _undisturbed = Unraised::begin();
    let (draft, file) = draft(path, name, readers).map_err(failed)?;
    let written = fill(snapshot, &file, path).and_then(|()| std::fs::rename(&draft, path));
    written.map_err(|error| {
        // What cannot be removed either is named like a part.
        let _ = std::fs::remove_file(&draft);
        failed(error)
    })
}

/// A new file beside the one that is to be written: other threads may be writing it too, and others may have put something in its place.
fn draft(path: &Path, name: &OsStr, readers: Readers) -> io::Result<(PathBuf, File)> {
    /// Drafts of this process so far.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    // What a process of this number left, before it was killed, is in the way of few of them.
    const TRIES: usize = 16;
    // Of a long name, so that there is room for what comes behind it: names have at most 255 bytes.
    const STEM: usize = 200;
    let stem = name.as_bytes();
    let stem = OsStr::from_bytes(&stem[..stem.len().min(STEM)]);
    let mut last = ErrorKind::AlreadyExists.into();
    for _ in 0..TRIES {
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let mut draft = stem.to_owned();
        draft.push(format!(".{}-{number}.part", std::process::id()));
        let draft = path.with_file_name(draft);
        let mode = if readers == Readers::Owner { 0o600 } else { 0o666 };
        match File::options().write(true).create_new(true).mode(mode).open(&draft) {
            Ok(file) => return Ok((draft, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn fill(snapshot: &Snapshot, file: &File, path: &Path) -> io::Result<()> {
    let json = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let written = match json {
        true => snapshot.write_json(file),
        false => snapshot.write_pickle(file),
    };
    written.map_err(|error| match error {
        WriteError::Io(error) => error,
        other => io::Error::other(other),
    })
}
