//! What a file lacks that is read all the same.

use super::error::ReadError;

/// What of a file is not in the snapshot that was read of it: [`Snapshot::from_damaged`](crate::Snapshot::from_damaged).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Entries of the traces that are not as PyTorch writes them, and are left out.
    pub odd_entries: u64,
    /// Where the first of them is, and what is wrong with it.
    pub first_odd: Option<String>,
    /// Where the file ends too early.
    pub cut: Option<String>,
    /// Something follows the snapshot, which is not read.
    pub more: bool,
}

impl Damage {
    /// Counts an entry; errors that are not of its shape stay errors.
    pub(crate) fn odd(&mut self, error: ReadError) -> Result<(), ReadError> {
        if !matches!(error, ReadError::Shape { .. }) {
            return Err(error);
        }
        self.odd_entries += 1;
        self.first_odd.get_or_insert_with(|| error.to_string());
        Ok(())
    }
}
