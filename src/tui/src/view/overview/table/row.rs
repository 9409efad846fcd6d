//! The cells of a process in each column.

use gpumem_probe::Reading;
use gpumem_text::units;

use super::columns::{Shown, has_jobs};
use crate::model::{Column, Figures, ManagedSums, Process, ProcessState, SECOND};
use crate::view::layout::ELLIPSIS;
use crate::view::theme::Ink;
use crate::words;
use crate::wrap::width;

/// Returns the text of a process in a column, fitted to its width.
pub(super) fn text(process: &Process, (shown, room): (Shown, u16), columns: &[(Shown, u16)]) -> (String, Ink) {
    let (text, ink) = value(process, shown);
    let text = match shown {
        Shown::Of(Column::State) => state_in(process, room),
        Shown::Of(Column::Command) => name_in(process, room, has_jobs(columns), &name_prefix(process, columns)),
        Shown::Of(Column::Managed) if width(&text) > room => managed_size(&process.managed),
        Shown::CommandLine => known(words::command_in(&process.command, room.into())),
        Shown::Job => process.job_in(room.into(), ELLIPSIS),
        _ => text,
    };
    (shown.fitted(text, room), ink)
}

/// Returns the text of a process in a column at any width. `-` stands for an unknown figure; the STATE column says why.
pub(super) fn value(process: &Process, shown: Shown) -> (String, Ink) {
    let figures = process.figures.as_ref();
    let bytes = |f: fn(&Figures) -> u64| match figures {
        Some(figures) => (units::bytes_short(f(figures)), Ink::Plain),
        None => ("-".to_owned(), Ink::Dim),
    };
    // An incomplete map gives lower bounds only.
    let bound = |text: String| match figures {
        Some(f) if !f.complete => format!("≥{text}"),
        _ => text,
    };
    match shown {
        Shown::Of(Column::Pid) if process.failing.is_some() => (process.pid.to_string(), Ink::Warning),
        Shown::Of(Column::Pid) => (process.pid.to_string(), Ink::Plain),
        Shown::Device => (process.device_label.clone(), Ink::Dim),
        Shown::Gpu => (gpu(process).unwrap_or_default().to_owned(), Ink::Dim),
        Shown::Of(Column::User) => (known(process.user.clone()), Ink::Dim),
        Shown::Job => (process.job_text(), Ink::Dim),
        Shown::Of(Column::Nvml) if !process.may_be_counted() => ("-".to_owned(), Ink::Dim),
        Shown::Of(Column::Nvml) => reading(&process.nvml),
        Shown::Of(Column::Managed) => managed(&process.managed),
        Shown::Of(Column::Reserved) => bytes(|f| f.reserved),
        Shown::Of(Column::Allocated) => bytes(|f| f.allocated),
        Shown::Requested => bytes(|f| f.requested),
        Shown::Peak => bytes(|f| f.peak_allocated),
        Shown::Of(Column::Cached) => bytes(|f| f.cached),
        Shown::Of(Column::Fragmentation) => match figures.and_then(Figures::fragmentation) {
            Some(share) => (units::percent(share), Ink::Plain),
            None => ("-".to_owned(), Ink::Dim),
        },
        Shown::Of(Column::LargestFree) if !process.has(Column::LargestFree) => ("-".to_owned(), Ink::Dim),
        Shown::Of(Column::LargestFree) => {
            let (text, ink) = bytes(|f| f.largest_free);
            (bound(text), ink)
        }
        Shown::Of(Column::Ooms) => match figures.map(|f| f.ooms) {
            Some(0) => ("0".to_owned(), Ink::Dim),
            Some(n) => (units::count_short(n), Ink::Warning),
            None => ("-".to_owned(), Ink::Dim),
        },
        Shown::Of(Column::State) => state(process),
        Shown::CommandLine => (words::program(&process.command).to_owned(), Ink::Dim),
        // The bar is drawn elsewhere, and the name depends on the width: `name_in`.
        Shown::Bar | Shown::Of(Column::Command) => (String::new(), Ink::Plain),
    }
}

/// Returns the number of the GPU that a process uses, unless the device is simulated.
pub(super) fn gpu(process: &Process) -> Option<&str> {
    process.device_label.strip_prefix("GPU ")
}

fn state(process: &Process) -> (String, Ink) {
    let ink = match process.state {
        _ if process.failing.is_some() => Ink::Warning,
        ProcessState::Publishing if process.stopped == Some(true) => Ink::Warning,
        ProcessState::Publishing => Ink::Good,
        ProcessState::NotPublishing | ProcessState::OtherUser | ProcessState::Exited => Ink::Dim,
        ProcessState::Died | ProcessState::Inconsistent(_) | ProcessState::Disputed(_) => Ink::Warning,
    };
    (state_texts(process).swap_remove(0), ink)
}

/// Returns the texts of a state, the longest first.
fn state_texts(process: &Process) -> Vec<String> {
    let text = process.state_text();
    let short = short_state(process);
    let mut briefest = Vec::new();
    let mut texts = match (&process.state, &process.ended) {
        (ProcessState::Inconsistent(why), _) => vec![format!("{text}: {why}"), text],
        (ProcessState::Disputed(_), _) => vec![text, "claim does not hold".to_owned()],
        (ProcessState::Publishing, None) if let Some(failing) = &process.failing => {
            vec![failing.text(), failing.count()]
        }
        (_, Some(ended)) => {
            let since = ended.minutes * 60 * SECOND;
            let brief = units::ago_short(since);
            let ago = match ended.minutes {
                0 => "just now".to_owned(),
                _ => format!("{brief} ago"),
            };
            let [full, ago, brief] = [units::ago(since), ago, brief].map(|when| format!("{short} {when}"));
            let ooms = process.figures.as_ref().map_or(0, |f| f.ooms);
            // The number of failed requests matters more than the long form of the time.
            let failed = |when: &String| (ooms > 0).then(|| format!("{when}, {}", units::plural(ooms, "OOM")));
            let failed: Vec<String> = [&full, &ago, &brief].into_iter().filter_map(failed).collect();
            briefest.push(brief);
            failed.into_iter().chain([full, ago]).collect()
        }
        _ => vec![text],
    };
    let short = match process.failing {
        Some(failing) if process.state == ProcessState::Publishing => {
            vec![failing.count()]
        }
        _ => vec![short],
    };
    if !process.simulated {
        texts.extend(short);
        return texts;
    }
    // The time of the end matters more than the long form of the label.
    let (long, brief) = ("SIMULATED, ", "SIM ");
    let order = match process.ended {
        Some(_) => [(long, &texts), (brief, &texts), (brief, &briefest), (brief, &short)],
        None => [(long, &texts), (long, &short), (brief, &texts), (brief, &short)],
    };
    let lead = |(lead, texts): (&'static str, &Vec<String>)| -> Vec<String> {
        texts.iter().map(|text| format!("{lead}{text}")).collect()
    };
    order.into_iter().flat_map(lead).collect()
}

/// Returns a state without its explanation. A stopped process is called stopped, so that it is not taken for a running one.
fn short_state(process: &Process) -> String {
    let text = process.state_text();
    let short = match process.state {
        ProcessState::NotPublishing | ProcessState::OtherUser if process.stopped == Some(true) => "stopped",
        _ => text.split([',', '(']).next().unwrap_or_default().trim_end(),
    };
    short.to_owned()
}

/// Returns the longest text of a state that fits into `room` columns, else the shortest.
pub(super) fn state_in(process: &Process, room: u16) -> String {
    let mut texts = state_texts(process);
    let fits = texts.iter().position(|text| width(text) <= room);
    texts.swap_remove(fits.unwrap_or(texts.len() - 1))
}

/// Returns what the columns do not show and the name must: that a process is simulated, has ended or is stopped.
fn name_prefix(process: &Process, columns: &[(Shown, u16)]) -> String {
    let has = |wanted: Shown| columns.iter().any(|&(shown, _)| shown == wanted);
    if has(Shown::Of(Column::State)) {
        return String::new();
    }
    let simulated = if process.simulated && !has(Shown::Device) {
        "SIM "
    } else {
        ""
    };
    if let Some(failing) = process.failing.filter(|_| process.state == ProcessState::Publishing) {
        return format!("{simulated}{} ", failing.count());
    }
    match process.runs_as_usual() {
        true => simulated.to_owned(),
        false => format!("{simulated}{} ", short_state(process)),
    }
}

/// Returns the name of a process in `room` columns, behind `lead`: its label if jobs have a column of their own, else its job
/// if it has one.
pub(super) fn name_in(process: &Process, room: u16, job_shown: bool, lead: &str) -> String {
    let room = usize::from(room.saturating_sub(width(lead)));
    let name = match job_shown {
        true => process.label.clone(),
        false => process.name_in(room, ELLIPSIS),
    };
    format!("{lead}{}", known(name))
}

/// Returns a name, or `?` if it is unknown: a blank would look like a mistake. The kernel does not name a process that has
/// ended or is in another container.
fn known(name: String) -> String {
    if name.is_empty() { "?".to_owned() } else { name }
}

/// Returns the size of managed memory alone.
fn managed_size(managed: &Reading<ManagedSums>) -> String {
    managed
        .value()
        .map_or_else(|| "-".to_owned(), |sums| units::bytes_short(sums.bytes))
}

/// Returns the size of managed memory and the share of it that the CPU can reach.
fn managed(managed: &Reading<ManagedSums>) -> (String, Ink) {
    match managed {
        Reading::Value(sums) => match sums.cpu_share() {
            Some(share) => (
                format!("{} {}", units::bytes_short(sums.bytes), units::percent(share)),
                Ink::Plain,
            ),
            None => ("0".to_owned(), Ink::Dim),
        },
        Reading::Failed(_) => ("-".to_owned(), Ink::Dim),
        _ => reading(&Reading::Pending),
    }
}

fn reading(reading: &Reading<u64>) -> (String, Ink) {
    match reading {
        Reading::Value(n) => (units::bytes_short(*n), Ink::Plain),
        Reading::Pending => ("-".to_owned(), Ink::Dim),
        Reading::NotSupported => ("n/s".to_owned(), Ink::Dim),
        Reading::NoPermission => ("denied".to_owned(), Ink::Warning),
        Reading::Failed(_) => ("failed".to_owned(), Ink::Warning),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Ended;
    use crate::view::tests::fixture;

    #[test]
    fn longest_state_text_that_fits_is_used() {
        let mut process = fixture::simulated().live.processes.remove(0);
        process.state = ProcessState::Exited;
        let cases = [
            (40, "SIMULATED, exited (black box)"),
            (28, "SIMULATED, exited"),
            (16, "SIM exited"),
            (3, "SIM exited"),
        ];
        for (room, text) in cases {
            assert_eq!(state_in(&process, room), text);
        }
        process.ended = Some(Ended { at: 0, minutes: 3 });
        assert_eq!(state_in(&process, 20), "SIM exited 3 min ago");
        assert_eq!(state_in(&process, 19), "SIM exited 3m ago");
        process.ended = Some(Ended { at: 0, minutes: 13 });
        assert_eq!(state_in(&process, 17), "SIM exited 13m");
        assert_eq!(state_in(&process, 13), "SIM exited");
        process.ended = None;
        process.simulated = false;
        assert_eq!(state_in(&process, 18), "exited (black box)");
        assert_eq!(state_in(&process, 17), "exited");
        process.ended = Some(Ended { at: 0, minutes: 3 });
        process.figures.as_mut().unwrap().ooms = 2173;
        assert_eq!(state_in(&process, 30), "exited 3 min ago, 2,173 OOMs");
        assert_eq!(state_in(&process, 25), "exited 3m ago, 2,173 OOMs");
        assert_eq!(state_in(&process, 18), "exited 3 min ago");
        assert_eq!(state_in(&process, 14), "exited 3m ago");
        assert_eq!(state_in(&process, 12), "exited");
        // The width of the state on a screen of 80 columns.
        process.figures.as_mut().unwrap().ooms = 2;
        for (minutes, text) in [
            (0, "exited now, 2 OOMs"),
            (59, "exited 59m, 2 OOMs"),
            (23 * 60, "exited 23h, 2 OOMs"),
        ] {
            process.ended = Some(Ended { at: 0, minutes });
            assert_eq!(state_in(&process, 18), text);
        }
        process.ended = None;
        process.stopped = Some(true);
        process.state = ProcessState::NotPublishing;
        assert_eq!(state_in(&process, 23), "not publishing, stopped");
        assert_eq!(state_in(&process, 22), "stopped");
        process.state = ProcessState::Publishing;
        assert_eq!(
            value(&process, Shown::Of(Column::State)),
            ("stopped".into(), Ink::Warning)
        );
    }
}
