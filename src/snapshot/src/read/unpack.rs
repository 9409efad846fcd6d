//! The file's bytes, unpacked: never more of them than the limits allow.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::error::ReadError;
use super::limits::Limits;

/// Where memory for unpacked bytes begins: a gzip file's own word for its size is not believed.
const START: usize = 1 << 16;

/// A file's bytes.
pub(crate) fn file(path: &Path, limits: &Limits) -> Result<Vec<u8>, ReadError> {
    let failed = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    // Pipes and devices have no size to ask for.
    let read = file.take(limits.input.saturating_add(1)).read_to_end(&mut bytes);
    let read = read.map_err(failed)? as u64;
    if read > limits.input {
        return Err(too_large(limits.input, false));
    }
    Ok(bytes)
}

/// What gzip makes of bytes, or the bytes. Of a file that is cut off what comes before the end, with the error.
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
        // Unpacked, it may earn more.
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
