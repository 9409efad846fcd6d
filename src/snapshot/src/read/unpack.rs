//! Unpacks a file's bytes, within the limits.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::error::ReadError;
use super::limits::Limits;

/// Initial capacity for unpacked bytes: the size in a gzip file is not trusted.
const START: usize = 1 << 16;

/// Reads a file's bytes.
pub(crate) fn file(path: &Path, limits: &Limits) -> Result<Vec<u8>, ReadError> {
    let failed = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    // Pipes and devices have no size.
    let read = file.take(limits.input.saturating_add(1)).read_to_end(&mut bytes);
    let read = read.map_err(failed)? as u64;
    if read > limits.input {
        return Err(too_large(limits.input, false));
    }
    Ok(bytes)
}

/// Unpacks gzipped bytes, and returns others as they are. For a truncated file, returns the bytes before the end, and
/// the error.
pub(crate) fn bytes<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Cow<'a, [u8]>, Option<ReadError>), ReadError> {
    if bytes.len() as u64 > limits.input {
        return Err(too_large(limits.input, false));
    }
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok((Cow::Borrowed(bytes), None));
    }
    let packed = bytes.len() as u64;
    let limit = limits.unpacked(packed);
    let mut unpacked = Vec::with_capacity(START);
    let mut source = MultiGzDecoder::new(bytes).take(limit.saturating_add(1));
    match source.read_to_end(&mut unpacked) {
        Ok(length) if length as u64 > limits.input => Err(too_large(limits.input, true)),
        // The unpacked file may be larger.
        Ok(length) if length as u64 > limit => Err(ReadError::Packed { packed, limit }),
        Ok(_) => Ok((Cow::Owned(unpacked), None)),
        Err(source) => {
            let is_cut = source.kind() == ErrorKind::UnexpectedEof;
            let error = ReadError::Gzip {
                unpacked: unpacked.len() as u64,
                source,
            };
            match is_cut {
                true => Ok((Cow::Owned(unpacked), Some(error))),
                false => Err(error),
            }
        }
    }
}

fn too_large(limit: u64, unpacked: bool) -> ReadError {
    ReadError::TooLarge { limit, unpacked }
}
