//! Variables of a process's environment that change how it uses a GPU's memory.
//!
//! An environment has secrets. Only the values of [`NAMES`] are ever kept.

use std::io;

use gpumem_text::clean_line;

use crate::Root;

/// The variables that are kept.
const NAMES: [&str; 14] = [
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "ENABLE_KVCACHED",
    KVCACHED_IPC_NAME,
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_FORCE_UNIFIED_MEMORY",
    "TF_GPU_ALLOCATOR",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
];
/// The variable that names kvcached's record.
pub(super) const KVCACHED_IPC_NAME: &str = "KVCACHED_IPC_NAME";

/// Bytes read of an environment; most have less than 10 KiB.
const LIMIT: u64 = 256 << 10;
/// Longest value that is kept, in characters.
const LONGEST: usize = 120;

/// The variables of [`NAMES`] with which a process was started. What it changed later is not known.
#[derive(Debug, Default)]
pub(super) struct Variables {
    values: Vec<(&'static str, String)>,
    /// Whether a variable that is missing here was not set.
    pub(super) complete: bool,
}

impl Variables {
    /// Reads the variables of a process.
    ///
    /// # Errors
    /// `PermissionDenied` for a process of another user, unless the reader is root.
    pub(super) fn read(root: &Root, pid: u32) -> io::Result<Self> {
        let bytes = root.read(format!("proc/{pid}/environ"), LIMIT)?;
        let whole = (bytes.len() as u64) < LIMIT;
        Ok(Self::parse(&bytes, whole))
    }

    /// Parses an environment; `whole` says that nothing was cut off its end.
    pub(super) fn parse(bytes: &[u8], whole: bool) -> Self {
        let mut values: Vec<(&'static str, String)> = Vec::new();
        // The last entry of a part may be cut, and is left out.
        let end = if whole {
            bytes.len()
        } else {
            bytes.iter().rposition(|&b| b == 0).unwrap_or(0)
        };
        for entry in bytes[..end].split(|&b| b == 0) {
            let Some(equals) = entry.iter().position(|&b| b == b'=') else {
                continue;
            };
            let name = NAMES.iter().find(|name| name.as_bytes() == &entry[..equals]);
            // `getenv` returns the first of two entries with one name.
            if let Some(&name) = name.filter(|name| values.iter().all(|(known, _)| known != *name)) {
                values.push((name, clean_line(&entry[equals + 1..], LONGEST)));
            }
        }
        Variables {
            values,
            // A title that was written over it leaves zeros. Every real environment has a variable.
            complete: whole && bytes.contains(&b'='),
        }
    }

    /// Returns the value of a variable that is set and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.values.iter().find(|(known, _)| *known == name);
        value.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns these variables of those that are set.
    pub(super) fn of<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = (&'static str, &'a str)> {
        let wanted = self
            .values
            .iter()
            .filter(|(name, value)| names.contains(name) && !value.is_empty());
        wanted.map(|(name, value)| (*name, value.as_str()))
    }
}
