//! What is unusual about ranks, in words: beside each rank where there is room, else below all of them.

use gpumem_text::units::bytes;
use ratatui::text::{Line, Span};

use crate::model::{Job, Rank, signed_difference};
use crate::view::layout::clip;
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;

/// A line below the ranks.
pub(super) struct Note {
    text: String,
    /// Whether it is about an outlier.
    marked: bool,
}

impl Note {
    /// Returns it as a line of text in `room` columns.
    pub(super) fn line(self, theme: Theme, room: u16) -> Line<'static> {
        let (mark, ink) = if self.marked {
            ("! ", Ink::Warning)
        } else {
            ("  ", Ink::Plain)
        };
        Line::from_iter([
            Span::styled(mark, theme.ink(ink)),
            Span::raw(clip(&self.text, room.saturating_sub(2))),
        ])
    }
}

/// Returns where else a rank has memory: `also on GPU 0: 512 MiB`.
fn elsewhere(rank: &Rank) -> Option<String> {
    let there = rank.elsewhere.iter().map(|there| match there.bytes {
        Some(size) => format!("{}: {}", there.device_label, bytes(size)),
        None => there.device_label.clone(),
    });
    let there = there.collect::<Vec<_>>().join(", ");
    (!there.is_empty()).then(|| format!("also on {there}"))
}

/// Returns everything that is unusual about a rank.
pub(super) fn full(rank: &Rank) -> String {
    let parts = [rank.outlier.map(|outlier| outlier.to_string()), elsewhere(rank)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns how far a rank is from the median, else where else it has memory.
pub(super) fn brief(rank: &Rank) -> String {
    match rank.outlier {
        Some(outlier) => outlier.to_string(),
        None => elsewhere(rank).unwrap_or_default(),
    }
}

/// Returns the note beside a rank in `room` columns.
pub(super) fn beside(rank: &Rank, room: u16) -> String {
    let full = full(rank);
    if width(&full) <= room { full } else { brief(rank) }
}

/// Returns the colour of the note beside a rank.
pub(super) fn ink(rank: &Rank) -> Ink {
    match rank.outlier {
        Some(_) => Ink::Warning,
        None => Ink::Dim,
    }
}

/// Returns the lines below the ranks, `most` at most. `beside` says that outliers have their note beside them.
pub(super) fn below(job: &Job, beside: bool, most: u16) -> Vec<Note> {
    let outliers = job.ranks.iter().filter_map(|rank| Some((rank.rank, rank.outlier?)));
    let outliers = outliers.filter(|_| !beside).map(|(rank, outlier)| Note {
        text: format!("rank {rank}: {outlier}"),
        marked: true,
    });
    let plain = difference(job).into_iter().chain(uneven(job)).chain(visitors(job));
    let plain = plain.map(|text| Note { text, marked: false });
    let mut notes: Vec<Note> = outliers.chain(plain).collect();
    let more = notes.len().saturating_sub(most.into());
    notes.truncate(most.into());
    if let Some(last) = notes.last_mut().filter(|_| more > 0) {
        last.text.push_str(&format!(" (and {more} more)"));
    }
    notes
}

/// Returns the difference of two ranks, neither of which is the usual one.
fn difference(job: &Job) -> Option<String> {
    let [a, b] = job.ranks.as_slice() else { return None };
    let difference = signed_difference(a.holds.reserved?, b.holds.reserved?);
    let (more, less) = if difference > 0 { (a, b) } else { (b, a) };
    (difference != 0).then(|| {
        let size = bytes(difference.unsigned_abs());
        format!("Rank {} reserves {size} more than rank {}.", more.rank, less.rank)
    })
}

fn uneven(job: &Job) -> Option<String> {
    let reserved = || job.ranks.iter().filter_map(|rank| rank.holds.reserved);
    let (least, most) = (reserved().min()?, reserved().max()?);
    job.uneven.then(|| {
        let [least, most] = [least, most].map(bytes);
        format!("The ranks differ too much for one to stand out: {least} to {most} reserved.")
    })
}

/// Returns a sentence for each device that has memory of ranks which use another one.
fn visitors(job: &Job) -> impl Iterator<Item = String> {
    job.visitors().into_iter().map(|visitors| {
        let (device, size) = (visitors.device_label, bytes(visitors.bytes));
        let ranks = match visitors.ranks.as_slice() {
            [one] => format!("rank {one}, which uses another device"),
            [some @ .., last] if some.len() < 4 => {
                let some: Vec<String> = some.iter().map(u32::to_string).collect();
                format!("ranks {} and {last}, which use other devices", some.join(", "))
            }
            many => format!("{} ranks that use other devices", many.len()),
        };
        match visitors.bytes {
            0 => format!("{device} also holds memory of {ranks}."),
            _ => format!("{device} also holds {size} of {ranks}."),
        }
    })
}
