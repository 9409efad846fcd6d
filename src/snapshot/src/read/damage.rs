//! What is missing or malformed in a damaged file that was still read.

use super::error::ReadError;

/// The parts of a file that are not in the snapshot: see [`Snapshot::from_damaged`](crate::Snapshot::from_damaged).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Number of trace entries that PyTorch would not write, and that are left out.
    pub odd_entries: u64,
    /// Position of the first of them, and what is wrong with it.
    pub first_odd: Option<String>,
    /// Where the file ends too early, if it does.
    pub cut: Option<String>,
    /// Whether data follows the snapshot, which is not read.
    pub more: bool,
}

impl Damage {
    /// Counts a malformed entry. Errors of other kinds are returned.
    pub(crate) fn odd(&mut self, error: ReadError) -> Result<(), ReadError> {
        if !matches!(error, ReadError::Shape { .. }) {
            return Err(error);
        }
        self.odd_entries += 1;
        self.first_odd.get_or_insert_with(|| error.to_string());
        Ok(())
    }
}
