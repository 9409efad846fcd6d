//! Finds every failure in a log, and chooses the one that began it.

mod handled;
mod quoted;
mod surroundings;

use std::sync::LazyLock;

use regex::Regex;

use crate::diagnose::diagnose;
use crate::families::{Around, FAMILIES, Judged, Strength};
use crate::pytorch::{BEGIN, Figures, Message};
use crate::text::{Log, Stream, pattern};
use crate::verdict::{Allocator, Verdict};
use handled::is_handled;
use quoted::{in_code, in_prose};
use surroundings::Surroundings;

/// How much text around a match is looked at.
const AROUND: usize = 6000;
/// A general message this close to a telling one is about the same failure.
const SAME: usize = 1500;
/// Matches of one kind in one stream that are looked at.
const MOST: usize = 200;

/// A failure, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub judged: Judged,
    pub stream: usize,
    pub begin: usize,
    pub end: usize,
    pub line: usize,
}

/// Finds all failures of a log, in no order.
pub(crate) fn scan(log: &Log) -> Vec<Found> {
    let mut found = Vec::new();
    let surroundings = Surroundings::of(log);
    for (number, stream) in log.streams.iter().enumerate() {
        let mut own = pytorch(log, number, stream);
        own.extend(others(log, number, stream, &surroundings));
        let told: Vec<_> = own
            .iter()
            .map(|found| (found.judged.strength, found.begin, found.end))
            .collect();
        own.retain(|found| {
            found.judged.strength != Strength::General
                || !told.iter().any(|&(strength, begin, end)| {
                    // A warning explains what it contains, a failure what is near.
                    let near = if strength == Strength::Warning { 120 } else { SAME };
                    strength != Strength::General
                        && strength != Strength::Other
                        && begin.saturating_sub(near) <= found.begin
                        && found.begin <= end + near
                })
        });
        found.extend(own);
    }
    found
}

static PYTORCH: LazyLock<Regex> = LazyLock::new(|| pattern(BEGIN));

fn pytorch(log: &Log, number: usize, stream: &Stream) -> Vec<Found> {
    let mut all = Vec::new();
    for begin in PYTORCH.find_iter(&stream.text).take(MOST) {
        let after = stream.after(begin.end(), AROUND);
        let Some(message) = Message::read(after) else { continue };
        // Prose and source code have placeholders, and words before and after.
        if in_code(log, stream, begin.start()) {
            continue;
        }
        let mut judged = judge(&message);
        in_phase(&mut judged, stream.before(begin.start(), AROUND), after);
        if is_handled(stream, begin.start(), begin.end() + message.length) {
            judged = went_on(judged, CAUGHT);
        }
        all.push(Found {
            judged,
            stream: number,
            begin: begin.start(),
            end: begin.end() + message.length,
            line: stream.line(begin.start()),
        });
    }
    all
}

const CAUGHT: &str = "the program caught it and went on";

/// Turns a failure into a warning, because the program did not end by it.
fn went_on(judged: Judged, how: &str) -> Judged {
    Judged {
        strength: Strength::Warning,
        verdict: Verdict::Warning,
        why: format!("{how}. Of the failure: {}", judged.why),
        ..judged
    }
}

fn judge(message: &Message) -> Judged {
    let (mut verdict, mut why) = diagnose(&message.figures);
    if message.is_rejected {
        verdict = Verdict::ProcessLimit;
        why = "the request was refused because it would exceed the fraction that the process may have".to_owned();
    }
    let figures = message.figures.clone();
    Judged {
        strength: if message.is_cut && verdict == Verdict::Incomplete {
            Strength::General
        } else {
            Strength::Specific
        },
        allocator: Allocator::Device,
        verdict,
        figures,
        why,
    }
}

static CAPTURE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"capturecudagraphfailed|cuda_?graph_?(?:runner|capture)|capture_(?:model|one_batch_size|graphs?|cudagraph)|capturingcudagraph|(?:while|during|when)captur\w*(?:the)?cudagraph|graphcapturefailed",
    )
});
static WAKE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"\bwake_?up\b|inwake_?up|wakeup\(|wakingup|resume_memory_occupation|wakingfromsleep|/wake_up")
});
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"pin_memory|pinned_?memory|host_alloc|hostallocator|cudahostalloc|cudamallochost|pinnedhost|pin_tensor")
});

/// What the program did decides what helps: the phase is in the words around a failure.
fn in_phase(judged: &mut Judged, before: &str, after: &str) {
    let near = |pattern: &Regex| pattern.is_match(before) || pattern.is_match(crate::text::head(after, 900));
    let by_size = matches!(
        judged.verdict,
        Verdict::Exhausted
            | Verdict::Incomplete
            | Verdict::GraphPools
            | Verdict::OutsideAllocator
            | Verdict::Fragmentation
    );
    if by_size && near(&CAPTURE) && !near(&WAKE) {
        judged.verdict = Verdict::GraphCapture;
        judged.allocator = Allocator::Device;
        judged.strength = Strength::Specific;
        judged.why = format!("it ran out while CUDA graphs were captured: {}", judged.why);
    } else if by_size && WAKE.is_match(before) {
        judged.verdict = Verdict::WakeUp;
        judged.allocator = Allocator::Device;
        judged.strength = Strength::Specific;
        judged.why = format!("it ran out while the engine woke up: {}", judged.why);
    }
}

static GOES_ON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)ignoring this choice|may not be an issue|this is not a failure|skipping this|will be skipped")
});

fn others(log: &Log, number: usize, stream: &Stream, surroundings: &Surroundings) -> Vec<Found> {
    let mut all = Vec::new();
    for family in FAMILIES.iter() {
        for captures in family.pattern.captures_iter(&stream.text).take(MOST) {
            let Some(whole) = captures.get(0) else { continue };
            let line = stream.line(whole.start());
            let around = Around {
                line: log.raw(line),
                before: stream.before(whole.start(), AROUND),
                after: stream.after(whole.start(), 4 * AROUND),
            };
            let Some(mut judged) = family.judge(&captures, &around) else {
                continue;
            };
            if judged.strength != Strength::Warning && in_code(log, stream, whole.start()) {
                continue;
            }
            if judged.strength == Strength::General && in_prose(log, stream, whole.start()) {
                continue;
            }
            if judged.strength == Strength::General {
                if HOST.is_match(stream.before(whole.start(), 1500)) && whole.as_str().contains("outofmemory") {
                    judged.strength = Strength::Specific;
                    judged.allocator = Allocator::PinnedHost;
                    judged.verdict = Verdict::PinnedMemory;
                    judged.why =
                        "host memory could not be pinned: CUDA's error for that is the same as for the card's memory"
                            .to_owned();
                } else {
                    in_phase(&mut judged, around.before, "");
                    surroundings.add_to(&mut judged, around.before);
                }
            }
            // `... Ignoring this choice.`
            if judged.strength > Strength::Warning && GOES_ON.is_match(around.line) {
                judged = went_on(judged, "the line says that the program goes on");
            }
            let may_be_handled =
                matches!(judged.allocator, Allocator::Device | Allocator::Unknown) && judged.verdict != Verdict::Budget;
            if judged.strength >= Strength::General && may_be_handled && is_handled(stream, whole.start(), whole.end())
            {
                judged = went_on(judged, CAUGHT);
            }
            all.push(Found {
                judged,
                stream: number,
                begin: whole.start(),
                end: whole.end(),
                line: stream.line(whole.start()),
            });
        }
    }
    // A pinned request that the driver refuses has no word of memory.
    all.extend(pinned(number, stream));
    all
}

static REFUSED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"cudaerror:(?:invalidargument|resourcealreadymapped|operationnotsupported|partorallofthe\w*)|cudaerroralreadymapped|cudaerrorhostmemoryalreadyregistered",
    )
});
static PIN_CALL: LazyLock<Regex> = LazyLock::new(|| pattern(r"pin_memory|cudahost|cudamallochost|hostregister|pinned"));

fn pinned(number: usize, stream: &Stream) -> Vec<Found> {
    let refused = REFUSED.find_iter(&stream.text).take(MOST);
    let of_host = refused.filter(|whole| {
        PIN_CALL.is_match(stream.before(whole.start(), 1200)) || PIN_CALL.is_match(stream.after(whole.end(), 200))
    });
    of_host
        .map(|whole| Found {
            judged: Judged {
                strength: Strength::Specific,
                allocator: Allocator::PinnedHost,
                verdict: Verdict::PinnedMemory,
                figures: Figures::default(),
                why: "the driver refused to pin host memory: a limit of the driver or of the system, not the card's memory".to_owned(),
            },
            stream: number,
            begin: whole.start(),
            end: whole.end(),
            line: stream.line(whole.start()),
        })
        .collect()
}

/// Chooses the failure that began it: the first one whose reason is given, or else the first one.
pub(crate) fn first<'a>(log: &Log, found: &'a [Found]) -> Option<&'a Found> {
    let of = |strength: Strength| {
        let those = found.iter().filter(move |found| found.judged.strength == strength);
        those.reduce(|one, other| if is_before(log, other, one) { other } else { one })
    };
    let (specific, general) = (of(Strength::Specific), of(Strength::General));
    // Of lines about the same failure the one with figures.
    let telling = general.and_then(|first| {
        found.iter().find(|other| {
            other.judged.strength == Strength::General
                && other.stream == first.stream
                && other.judged.figures.requested.is_some()
                && first.judged.figures.requested.is_none()
                && (first.line..first.line + 12).contains(&other.line)
        })
    });
    let failure = specific.or(telling).or(general);
    failure
        .or_else(|| of(Strength::Other))
        .or_else(|| of(Strength::Warning))
}

/// Whether one failure came before another. Lines of several ranks are not always in the order of their times.
fn is_before(log: &Log, one: &Found, other: &Found) -> bool {
    match (log.time(one.line), log.time(other.line)) {
        // Times of the same form sort as texts.
        (Some(a), Some(b)) if same_form(a, b) && a != b => a < b,
        // A line with two reasons is of the more special one: an error of host memory is what others are reported as.
        _ => (one.line, is_of_host(one), one.begin) < (other.line, is_of_host(other), other.begin),
    }
}

fn is_of_host(found: &Found) -> bool {
    found.judged.allocator == Allocator::Host
}

fn same_form(a: &str, b: &str) -> bool {
    let form = |time: &str| {
        time.chars()
            .take(19)
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect::<String>()
    };
    form(a) == form(b)
}
