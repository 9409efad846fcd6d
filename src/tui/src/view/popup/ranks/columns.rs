//! Chooses the columns of the ranks for the width of the popup.

use ratatui::layout::{Constraint, Rect};

use super::notes;
use crate::model::{Figure, Job, Rank};
use crate::wrap::{cut, width};

/// Blank columns between two columns.
pub(super) const GAP: u16 = 2;
/// Least and most columns of the bar.
const BAR: [u16; 2] = [10, 48];
/// Most columns of a device's label.
const DEVICE: u16 = 11;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// `!` at an outlier.
    Mark,
    /// The rank's number.
    Rank,
    /// Its device: the number if all are GPUs, else the label.
    Device,
    /// A bar of what it reserves, and how much of that is allocated.
    Bar,
    /// A figure in which ranks are compared.
    Figure(Figure),
    /// The largest free block.
    LargestFree,
    /// What is unusual, in words.
    Note,
}

impl Shown {
    /// Returns the heading, if it is a word.
    fn title(self) -> &'static str {
        match self {
            Shown::Mark | Shown::Bar | Shown::Note => "",
            Shown::Rank => "RANK",
            Shown::Device => "DEVICE",
            Shown::Figure(Figure::Reserved) => "RESERVED",
            Shown::Figure(Figure::Allocated) => "ALLOC",
            Shown::Figure(Figure::Cached) => "CACHED",
            Shown::Figure(Figure::Nvml) => "NVML",
            Shown::LargestFree => "LARGEST FREE",
        }
    }

    /// Checks whether the column holds text, aligned at the left, and not figures, aligned at the right.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Shown::Mark | Shown::Note)
    }
}

/// All columns but the note, from the left.
const ALL: [Shown; 9] = [
    Shown::Mark,
    Shown::Rank,
    Shown::Device,
    Shown::Bar,
    Shown::Figure(Figure::Reserved),
    Shown::Figure(Figure::Allocated),
    Shown::Figure(Figure::Cached),
    Shown::LargestFree,
    Shown::Figure(Figure::Nvml),
];

/// Columns that are dropped where they do not all fit, in this order.
const LEAVING: [Shown; 7] = [
    Shown::LargestFree,
    Shown::Figure(Figure::Nvml),
    Shown::Figure(Figure::Cached),
    Shown::Bar,
    Shown::Figure(Figure::Allocated),
    Shown::Device,
    Shown::Mark,
];

/// The columns with their widths.
pub(super) struct Columns {
    columns: Vec<(Shown, u16)>,
    /// Whether devices are named by the number of the GPU alone.
    numbered: bool,
}

impl Columns {
    /// Chooses the columns for a job in `room` columns of the terminal. A column that would hold only dashes is left out. The notes
    /// have a column if they fit.
    pub(super) fn fit(job: &Job, room: u16) -> Columns {
        let numbered = job.ranks.iter().all(|rank| rank.device_label.starts_with("GPU "));
        let mut this = Columns {
            columns: Vec::new(),
            numbered,
        };
        let known = |shown: Shown| match shown {
            Shown::Figure(figure) => figure == Figure::Reserved || job.median.figure(figure).is_some(),
            Shown::LargestFree => job.median.largest_free.is_some(),
            _ => true,
        };
        let with_width = |shown: Shown| (shown, this.least(job, shown));
        this.columns = ALL.into_iter().filter(|&shown| known(shown)).map(with_width).collect();
        for leaving in LEAVING {
            if this.needed() > room {
                this.columns.retain(|&(shown, _)| shown != leaving);
            }
        }
        let widest = |note: fn(&Rank) -> String| job.ranks.iter().map(|rank| width(&note(rank))).max().unwrap_or(0);
        let fits = |note: &u16| *note > 0 && this.needed() + GAP + note <= room;
        let note = [notes::full, notes::brief].map(widest).into_iter().find(fits);
        this.columns.extend(note.map(|wide| (Shown::Note, wide)));
        let spare = room.saturating_sub(this.needed());
        if let Some((_, wide)) = this.columns.iter_mut().find(|(shown, _)| *shown == Shown::Bar) {
            *wide = (*wide + spare).min(BAR[1]);
        }
        this
    }

    fn least(&self, job: &Job, shown: Shown) -> u16 {
        let widest =
            |text: &dyn Fn(&Rank) -> String| job.ranks.iter().map(|rank| width(&text(rank))).max().unwrap_or(0);
        match shown {
            Shown::Mark => 1,
            // The longest number, or the word in its place.
            Shown::Rank => widest(&|rank| rank.rank.to_string()).max(width("median")),
            Shown::Device => widest(&|rank| self.device(&rank.device_label)).max(width(self.title(shown))),
            Shown::Bar => BAR[0],
            // The widest size, `1023.9G`, and the headings.
            Shown::Figure(Figure::Reserved) => 8,
            Shown::Figure(_) => 7,
            Shown::LargestFree => 12,
            Shown::Note => 0,
        }
    }

    /// Returns the columns of the terminal that all take together.
    pub(super) fn needed(&self) -> u16 {
        let widths: u16 = self.columns.iter().map(|&(_, wide)| wide + GAP).sum();
        widths.saturating_sub(GAP)
    }

    /// Iterates over the columns from the left.
    pub(super) fn shown(&self) -> impl Iterator<Item = Shown> {
        self.columns.iter().map(|&(shown, _)| shown)
    }

    /// Returns the widths as constraints.
    pub(super) fn widths(&self) -> impl Iterator<Item = Constraint> {
        self.columns.iter().map(|&(_, wide)| Constraint::Length(wide))
    }

    /// Checks whether the notes have a column.
    pub(super) fn has_notes(&self) -> bool {
        self.width(Shown::Note) > 0
    }

    /// Returns the width of a column; 0 if there is none.
    pub(super) fn width(&self, wanted: Shown) -> u16 {
        let column = self.columns.iter().find(|(shown, _)| *shown == wanted);
        column.map_or(0, |&(_, wide)| wide)
    }

    /// Returns the heading of a column.
    pub(super) fn title(&self, shown: Shown) -> &'static str {
        match shown {
            Shown::Device if self.numbered => "GPU",
            shown => shown.title(),
        }
    }

    /// Returns a device's label as its column shows it.
    pub(super) fn device(&self, label: &str) -> String {
        match label.strip_prefix("GPU ").filter(|_| self.numbered) {
            Some(number) => number.to_owned(),
            None => cut(label, DEVICE, "…"),
        }
    }

    /// Returns the area of the bar on a line.
    pub(super) fn bar(&self, line: Rect) -> Option<Rect> {
        let place = self.shown().position(|shown| shown == Shown::Bar)?;
        let before: u16 = self.columns[..place].iter().map(|&(_, wide)| wide + GAP).sum();
        let bar = Rect {
            x: line.x.saturating_add(before),
            width: self.columns[place].1,
            ..line
        };
        Some(bar.intersection(line))
    }
}
