//! Reads bytes sequentially.

use super::error::PickleError;

/// The read position in a pickle.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.at as u64
    }

    pub(crate) fn take(&mut self, length: u64) -> Result<&'a [u8], PickleError> {
        let rest = &self.bytes[self.at..];
        let there = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let taken = there.ok_or(PickleError::Truncated {
            needed: length.saturating_sub(rest.len() as u64),
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, PickleError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, PickleError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, PickleError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, PickleError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads up to the next line feed, which is consumed too.
    pub(crate) fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or(PickleError::Truncated { needed: 1 })?;
        self.at += end + 1;
        Ok(&rest[..end])
    }
}
