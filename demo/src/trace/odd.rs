//! Faults of a file that do not prevent a replay.

use gpumem_text::clean;
use gpumem_text::units::plural;

use super::Format;

/// Faults of a file that do not prevent a replay. The texts are [cleaned](clean).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Odd {
    /// Invalid rows of a log or entries of a history, which are left out.
    pub rows: u64,
    /// Where the first of them is, and why it is invalid.
    pub first: String,
    /// Frees with a different size than their blocks, which are replayed.
    pub sizes: u64,
    /// Where the first of them is, and what it says.
    pub first_size: String,
    /// Where and why the file ends early. Everything before is replayed.
    pub cut: Option<String>,
    /// Logs in the file after the first.
    pub more_logs: u64,
    /// Whether the log has no header.
    pub headerless: bool,
    /// Whether something follows the snapshot. It is not read.
    pub more: bool,
}

impl Odd {
    /// Counts a row that is left out.
    pub(super) fn row(&mut self, why: &str) {
        if self.rows == 0 {
            self.first = clean(why);
        }
        self.rows += 1;
    }

    /// Counts a free with a different size.
    pub(super) fn size(&mut self, why: &str) {
        if self.sizes == 0 {
            self.first_size = clean(why);
        }
        self.sizes += 1;
    }

    /// Returns a text about what is left out.
    pub(crate) fn left_out(&self, format: Format) -> Option<String> {
        let (one, more) = match format {
            Format::PyTorch => ("1 invalid entry", "invalid entries"),
            Format::Csv | Format::RmmLog => ("1 invalid row", "invalid rows"),
        };
        match self.rows {
            0 => None,
            1 => Some(format!("{one} ({})", self.first)),
            n => Some(format!(
                "{} {more} (the first: {})",
                gpumem_text::units::count(n),
                self.first
            )),
        }
    }

    /// Returns further notes as text.
    pub(crate) fn notes(&self) -> Vec<String> {
        let first = |count, what: &str| match count {
            1 => format!(" ({what})"),
            _ => format!(" (the first: {what})"),
        };
        let sizes = (self.sizes > 0).then(|| {
            let frees = plural(self.sizes, "free");
            format!(
                "{frees} with a different size than was allocated{}",
                first(self.sizes, &self.first_size)
            )
        });
        let logs = (self.more_logs > 0).then(|| {
            let logs = plural(self.more_logs + 1, "log");
            format!("{logs} in sequence: blocks still live at the end of one are freed there")
        });
        let headerless = "the log has no header: its beginning may be missing".to_owned();
        let more = "something follows the snapshot, which is not read".to_owned();
        [
            sizes,
            logs,
            self.headerless.then_some(headerless),
            self.more.then_some(more),
            self.cut.as_ref().map(|why| format!("the file is cut off: {why}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
