//! Finds every failure in a log, and chooses the one that began it.

use std::sync::LazyLock;

use regex::Regex;

use crate::diagnose::diagnose;
use crate::families::{Around, FAMILIES, Judged, Strength};
use crate::pytorch::{BEGIN, Figures, Message};
use crate::text::{Log, Stream, pattern};
use crate::verdict::{Allocator, Verdict};

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
    for (number, stream) in log.streams.iter().enumerate() {
        let mut own = pytorch(log, number, stream);
        own.extend(others(log, number, stream));
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
        if is_quoted_in_code(log, stream, begin.start()) {
            continue;
        }
        let mut judged = judge(&message);
        in_phase(&mut judged, stream.before(begin.start(), AROUND), after);
        if is_handled(stream, begin.start(), begin.end() + message.length) {
            judged.strength = Strength::Warning;
            judged.why = format!("the program caught it and went on. Of the failure: {}", judged.why);
            judged.verdict = Verdict::Warning;
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

fn others(log: &Log, number: usize, stream: &Stream) -> Vec<Found> {
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
            if judged.strength != Strength::Warning && is_quoted_in_code(log, stream, whole.start()) {
                continue;
            }
            if judged.strength == Strength::General && is_prose(log, stream, whole.start()) {
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
                }
            }
            let may_be_handled =
                matches!(judged.allocator, Allocator::Device | Allocator::Unknown) && judged.verdict != Verdict::Budget;
            if judged.strength >= Strength::General && may_be_handled && is_handled(stream, whole.start(), whole.end())
            {
                judged.strength = Strength::Warning;
                judged.verdict = Verdict::Warning;
                judged.why = format!("the program caught it and went on. Of the failure: {}", judged.why);
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

static CODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:#|//|/\*|\*\s|--\s|raise\s|except\b|catch\b|if\b.*[:{]$|elif\b|return\b|assert\b|with\b|throw\b|[\w.]+\s*=\s*[^=]|.*\bin str\(|grep\b|echo\b|\$\s*grep\b|.*\b(?:pytest|unittest)\.raises|.*\bin msg\b|(?:fix|feat|docs|chore|perf|refactor|test|ci|build)(?:\([\w./-]+\))?!?:\s|(?:alert|expr|summary|runbook|description|annotations):\s)",
    )
});

/// What `grep -n` prints before a line.
static GREP: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\w./-]+\.(\w{1,5}):\d+:\s*"));
const TEXTS: &[&str] = &["md", "rst", "adoc", "yaml", "yml", "html"];

/// Whether a message stands in source code: a line of a program, a comment or a traceback's quote of one.
fn is_quoted_in_code(log: &Log, stream: &Stream, offset: usize) -> bool {
    let line = log.raw(stream.line(offset));
    let line = line.trim_start_matches(['+', '-', '>', '*', ' ']);
    let line = match GREP.captures(line) {
        Some(found) if TEXTS.contains(&&found[1]) => return true,
        Some(found) => &line[found.get(0).map_or(0, |all| all.end())..],
        None => line,
    };
    CODE.is_match(line) && !line.contains("Error:") && !line.contains("error:") && !line.contains("_error=")
}

static PROSE_BEFORE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?:\b(?:if|when|whenever|avoid|avoids|prevent|prevents|an?|the|your|you|without|any|common|causes?|reduce|against|about|like|such as|see|get|getting|got|of|for|to|no|these|those|this|handle|handles|handling|catch|catches|into|hit|hits|with|on)\b[\s\x22'`(*]*)$",
    )
});
static PROSE_AFTER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W*(?:errors|exceptions|issues|problems|is\b|are\b|can\b|may\b|might\b|often|usually|happens|means|guide|handling|handler|and\b|or\b|when\b|if\b|because|even\b|on small|in the faq)",
    )
});
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)out[ -]?of[ -_]?memory(?:error)?|resource_?exhausted|cuda_error_out_of_memory|cudaErrorMemoryAllocation|oom\b",
    )
});

/// Whether the words of a general message stand in a sentence about such messages.
fn is_prose(log: &Log, stream: &Stream, offset: usize) -> bool {
    let line = log.raw(stream.line(offset));
    WORDS.find_iter(line).any(|found| {
        let before = &line[..found.start()];
        // What precedes `CUDA` is the sentence.
        let before = before.trim_end_matches(|c: char| c.is_whitespace() || c == '`');
        let before = ["CUDA error:", "CUDA", "cuda", "GPU", "HIP", "torch.", "torch.cuda."]
            .iter()
            .find_map(|word| before.strip_suffix(word))
            .unwrap_or(before);
        let after = &line[found.end()..];
        is_phrase(before, after)
            || PROSE_AFTER.is_match(after)
            || PROSE_BEFORE.is_match(before.to_lowercase().trim_end())
    })
}

/// Whether words stand in quotes as a phrase: in a sentence, or in a condition.
fn is_phrase(before: &str, after: &str) -> bool {
    let Some(quote) = before
        .chars()
        .next_back()
        .filter(|c| matches!(c, '"' | '\'' | '«' | '“' | '`'))
    else {
        return false;
    };
    let before = before[..before.len() - quote.len_utf8()].trim_end();
    after.starts_with(['"', '\'', '»', '”', '`'])
        && before.ends_with(|c: char| c.is_alphabetic() || matches!(c, '(' | ','))
        && !before.ends_with("ailure")
        && !before.ends_with("rror")
}

static HANDLED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"retry(?:ing)?(?:with|without|at|by|the|in|after|batch|step|attempt|once|again|\d|\.\.\.|:|\()|skipp(?:ing|ed)(?:this|the|batch|sample|step|a|one|\d)|batchskipped|(?:reduc|halv|lower|decreas|shrink)(?:ing|ed)(?:the)?(?:micro|per[-_]device)?[-_]?(?:train)?(?:batch|chunk|tile)|^[,;:.]?(?:reducing|skipping|retrying|trying|falling|halving)|fallingback|fellback|recovered|continu(?:ing|e)(?:with|training|without|anyway|\.)|usingsmaller|withabatchsizeof|batch_?size\w*succeeded|tryingagain|tryagainwith|caught(?:oom|out)|oomcaught|willbedecreased|wentonwith|switchingtocpu|swappingtocpu|offloadingtocpu|tiled(?:vae|decod)|usingtiled|freedandretried",
    )
});
static FATAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"traceback\(mostrecentcalllast\)|duringhandlingoftheaboveexception|exitcode|exitedwith|aborted\(core|coredumped|givingup|noexecutable\w*batchsize|aborting|fatal|killed",
    )
});
static MEMORY: LazyLock<Regex> = LazyLock::new(|| pattern(r"outofmemory|resource_?exhausted"));

const ADVICE: &[&str] = &[
    "try",
    "or",
    "by",
    "please",
    "consider",
    "considering",
    "could",
    "can",
    "should",
    "and",
];

/// Whether the program said that it caught a failure, and did not end by it.
fn is_handled(stream: &Stream, begin: usize, end: usize) -> bool {
    let after = stream.after(end, 3000);
    // `skipping batch: CUDA out of memory ...`
    if HANDLED.is_match(stream.before_in_line(begin)) {
        return !FATAL.is_match(after);
    }
    // What is recommended was not done.
    let done = HANDLED.find_iter(after).find(|handled| {
        let before = &after[..handled.start()];
        !ADVICE.iter().any(|word| before.ends_with(word))
    });
    let Some(handled) = done else {
        return false;
    };
    // Another failure in between is the one that was handled.
    if MEMORY
        .find(crate::text::head(after, handled.start()))
        .is_some_and(|again| again.start() > 400)
    {
        return false;
    }
    let rest = &after[handled.end()..];
    // What ends by memory all the same was not helped by trying again.
    match FATAL.find(rest) {
        Some(fatal) => !MEMORY.is_match(&rest[fatal.start()..]) && !rest.contains("givingup"),
        None => true,
    }
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
