//! Reads a [`Snapshot`] from bytes.

mod charged;
#[cfg(test)]
mod charged_tests;
mod containers;
mod convert;
mod cursor;
mod damage;
mod document;
mod error;
mod fields;
mod json;
mod limits;
mod nonfinite;
mod opcode;
mod pickle;
mod surrogates;
mod unpack;
mod values;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use document::Document;
use limits::in_map;
use values::Converter;

use crate::ids::TextId;
use crate::tables::Tables;
use crate::types::Snapshot;

pub use damage::Damage;
pub use error::{Bound, PickleError, ReadError};
pub use limits::Limits;
pub use opcode::Opcode;

impl Snapshot {
    /// Reads a file: a pickle of protocol 2 to 5 or JSON, plain or gzipped, recognised by its content. No code in it is
    /// run.
    pub fn read(path: &Path) -> Result<Snapshot, ReadError> {
        Snapshot::read_within(path, &Limits::default())
    }

    /// Reads a file like [`Snapshot::read`], with other limits.
    pub fn read_within(path: &Path, limits: &Limits) -> Result<Snapshot, ReadError> {
        let bytes = unpack::file(path, limits)?;
        Snapshot::from_bytes_within(&bytes, limits)
    }

    /// Reads the same formats as [`Snapshot::read`], from memory.
    ///
    /// In texts, such as file names, bytes that are not UTF-8 become U+FFFD.
    pub fn from_bytes(bytes: &[u8]) -> Result<Snapshot, ReadError> {
        Snapshot::from_bytes_within(bytes, &Limits::default())
    }

    /// Reads bytes like [`Snapshot::from_bytes`], with other limits.
    pub fn from_bytes_within(bytes: &[u8], limits: &Limits) -> Result<Snapshot, ReadError> {
        read(bytes, limits, None).map(|(snapshot, _)| snapshot)
    }

    /// Reads what it can of a file that [`Snapshot::from_bytes`] may refuse, and reports what is missing. Of a
    /// truncated file it reads the entries before the end, and it leaves out malformed entries.
    ///
    /// The segments of a truncated file are left out, because they have blocks that were allocated in the missing part.
    pub fn from_damaged(bytes: &[u8]) -> Result<(Snapshot, Damage), ReadError> {
        read(bytes, &Limits::default(), Some(Damage::default()))
    }
}

/// Reads bytes; strictly if `damage` is `None`.
fn read(bytes: &[u8], limits: &Limits, damage: Option<Damage>) -> Result<(Snapshot, Damage), ReadError> {
    let file = bytes.len();
    let (mut bytes, cut) = unpack::bytes(bytes, limits)?;
    let damage = match (damage, cut) {
        (None, Some(error)) => return Err(error),
        (Some(damage), Some(error)) => Some(Damage {
            cut: Some(error.to_string()),
            ..damage
        }),
        (damage, None) => damage,
    };
    let mut meter = limits.meter(file as u64, bytes.len() as u64);
    meter.charge(file)?;
    if let Cow::Owned(unpacked) = &bytes {
        meter.charge(unpacked.len())?;
    }
    let mut tables = Tables::default();
    // Editors on Windows put a byte order mark before JSON.
    let mark = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let first = bytes[mark..].iter().copied().find(|byte| !byte.is_ascii_whitespace());
    let (mut snapshot, damage) = match first {
        Some(0x80) => {
            let (mut document, mut damage) = (Document::default(), damage);
            let root = pickle::load(&bytes, &mut document, &mut tables, &mut meter, damage.as_mut())?;
            let mut converter = Converter::new(&mut tables, &mut meter, damage);
            let snapshot = converter.snapshot(&document, root)?;
            (snapshot, converter.damage)
        }
        Some(b'{' | b'[') => {
            surrogates::replace_lone(&mut bytes, &mut meter)?;
            nonfinite::replace(&mut bytes, &mut meter)?;
            json::load(&bytes[mark..], Converter::new(&mut tables, &mut meter, damage))?
        }
        None => return Err(ReadError::Format("the file is empty")),
        Some(_) if bytes.starts_with(b"PK\x03\x04") => {
            return Err(ReadError::Format("a zip archive, as torch.save makes them"));
        }
        Some(_) if bytes.starts_with(b"(d") || bytes.starts_with(b"}q") => {
            return Err(ReadError::Format("a pickle of protocol 0 or 1"));
        }
        Some(_) => return Err(ReadError::Format("unknown content")),
    };
    // The last of equal keys counts.
    meter.charge(snapshot.extra.len() * in_map::<TextId>())?;
    let mut met = HashSet::with_capacity(snapshot.extra.len());
    snapshot.extra.reverse();
    snapshot.extra.retain(|(key, _)| met.insert(*key));
    snapshot.extra.reverse();
    snapshot.tables = tables;
    let damage = damage.unwrap_or_default();
    if damage.cut.is_some() {
        snapshot.segments.clear();
    }
    Ok((snapshot, damage))
}
