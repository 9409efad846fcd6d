//! What is odd about a file that is replayed all the same.

use gpumem_text::clean;
use gpumem_text::units::plural;

use super::Format;

/// What is odd about a file. Its texts are [cleaned](clean).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Odd {
    /// Rows of a log or entries of a history that make no sense, and are left out.
    pub rows: u64,
    /// Where the first of them is, and why it makes none.
    pub first: String,
    /// Frees of another size than their blocks have, which are replayed.
    pub sizes: u64,
    /// Where the first of them is, and what it says.
    pub first_size: String,
    /// Where and why the file ends too early: all before is replayed.
    pub cut: Option<String>,
    /// Logs in the file behind the first.
    pub more_logs: u64,
    /// The log begins without its header.
    pub headerless: bool,
    /// Something follows a snapshot, which is not read.
    pub more: bool,
}

impl Odd {
    /// A row that is left out.
    pub(super) fn row(&mut self, why: &str) {
        if self.rows == 0 {
            self.first = clean(why);
        }
        self.rows += 1;
    }

    /// A free of another size.
    pub(super) fn size(&mut self, why: &str) {
        if self.sizes == 0 {
            self.first_size = clean(why);
        }
        self.sizes += 1;
    }

    /// What is left out, for people.
    pub(crate) fn left_out(&self, format: Format) -> Option<String> {
        let (one, more) = match format {
            Format::PyTorch => ("1 entry", "entries"),
            Format::Csv | Format::RmmLog => ("1 row", "rows"),
        };
        match self.rows {
            0 => None,
            1 => Some(format!("{one} that makes no sense ({})", self.first)),
            n => Some(format!(
                "{} {more} that make no sense (the first: {})",
                gpumem_text::units::count(n),
                self.first
            )),
        }
    }

    /// What else there is to say, for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        let first = |count, what: &str| match count {
            1 => format!(" ({what})"),
            _ => format!(" (the first: {what})"),
        };
        let sizes = (self.sizes > 0).then(|| {
            let frees = plural(self.sizes, "free");
            format!(
                "{frees} of another size than was allocated{}",
                first(self.sizes, &self.first_size)
            )
        });
        let logs = (self.more_logs > 0).then(|| {
            let logs = plural(self.more_logs + 1, "log");
            format!("{logs} one after the other: what lives at the end of one is freed there")
        });
        let headerless = "the log has no header: its beginning may be lacking".to_owned();
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
