//! A log, brought into a form in which messages can be found: prefixes of lines removed, the lines of each source together, no white space.
//!
//! Terminals, chat programs and log collectors break lines wherever they like, between words and within them. Without white space a
//! message is the same however it was broken.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::LazyLock;

use regex::Regex;

/// A text is read up to this many bytes: of a longer one the first and the last half of that.
pub(crate) const BYTES_MAX: usize = 32 << 20;
/// A quote has at most this many characters.
const QUOTE_MAX: usize = 160;
/// Sources that are told apart. Each is searched for every kind of message, so a text with a million of them would take minutes.
const SOURCES_MAX: usize = 4096;
/// Log collectors stack prefixes, but not more than this.
const PREFIXES_MAX: usize = 8;

/// A text, or the first and the last part of a longer one.
#[derive(Debug, Default)]
pub(crate) struct Excerpt {
    pub text: String,
    /// Lines of the first part, and lines that were left out after it.
    gap: Option<(usize, usize)>,
}

impl Excerpt {
    /// Reads to the end, and keeps [`BYTES_MAX`] at most.
    pub(crate) fn read(mut reader: impl Read) -> io::Result<Excerpt> {
        const HALF: usize = BYTES_MAX / 2;
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        let mut first = Vec::new();
        reader.by_ref().take(HALF as u64).read_to_end(&mut first)?;
        let (mut last, mut left_out) = (Vec::new(), 0);
        let mut is_cut = false;
        while reader.by_ref().take(HALF as u64).read_to_end(&mut last)? > 0 {
            let surplus = last.len().saturating_sub(HALF);
            left_out += lines(&last[..surplus]);
            last.drain(..surplus);
            is_cut |= surplus > 0;
        }
        let mut text = String::from_utf8_lossy(&first).into_owned();
        if is_cut {
            text.push('\n');
        }
        let gap = is_cut.then(|| (lines(text.as_bytes()), left_out));
        text.push_str(&String::from_utf8_lossy(&last));
        Ok(Excerpt { text, gap })
    }

    /// Returns the number that a line of the excerpt, counted from 1, has in the whole text.
    pub(crate) fn number(&self, line: usize) -> usize {
        match self.gap {
            Some((first, left_out)) if line > first => line - 1 + left_out,
            _ => line,
        }
    }
}

/// What one source (a rank, a worker, a container) wrote.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The prefix that names the source; empty if there is none.
    pub source: String,
    /// Its rank, if the prefix says so.
    pub rank: Option<u32>,
    /// What it wrote: lower case, without white space.
    pub text: String,
    /// Where each line begins in `text`, and its number in the whole text.
    lines: Vec<(usize, usize)>,
}

impl Stream {
    /// Returns the number of the line of an offset into `text`.
    pub(crate) fn line(&self, offset: usize) -> usize {
        let after = self.lines.partition_point(|(begin, _)| *begin <= offset);
        after.checked_sub(1).map_or(0, |at| self.lines[at].1)
    }

    /// Returns what precedes an offset in its line.
    pub(crate) fn before_in_line(&self, offset: usize) -> &str {
        let after = self.lines.partition_point(|(begin, _)| *begin <= offset);
        let begin = after.checked_sub(1).map_or(0, |at| self.lines[at].0);
        &self.text[begin..offset]
    }

    /// Returns up to `length` bytes before an offset.
    pub(crate) fn before(&self, offset: usize, length: usize) -> &str {
        let mut begin = offset.saturating_sub(length);
        while !self.text.is_char_boundary(begin) {
            begin += 1;
        }
        &self.text[begin..offset]
    }

    /// Returns up to `length` bytes from an offset on.
    pub(crate) fn after(&self, offset: usize, length: usize) -> &str {
        let mut end = offset.saturating_add(length).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        &self.text[offset..end]
    }
}

/// A whole log.
#[derive(Debug)]
pub(crate) struct Log {
    pub streams: Vec<Stream>,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    /// Its number in the text, from 1. A line of JSON may be several here.
    number: usize,
    text: String,
    /// Whether it begins with a prefix that names its source.
    is_named: bool,
    /// When it was written, in a form that sorts.
    time: Option<String>,
}

impl Log {
    pub(crate) fn new(text: &str) -> Log {
        let mut log = Log {
            streams: Vec::new(),
            lines: Vec::new(),
        };
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut current = String::new();
        let telling = telling(text);
        for (number, line) in text.lines().enumerate().filter(|(number, _)| telling[*number]) {
            let line = without_escapes(line);
            let (prefix, rest) = split(&line);
            for rest in unfolded(rest) {
                // A line without a prefix continues what was written before it.
                if let Some(source) = &prefix.source
                    && (known.len() < SOURCES_MAX || known.contains_key(source))
                {
                    current.clone_from(source);
                }
                let at = *known.entry(current.clone()).or_insert_with(|| {
                    log.streams.push(Stream {
                        source: current.clone(),
                        rank: prefix.rank,
                        text: String::new(),
                        lines: Vec::new(),
                    });
                    log.streams.len() - 1
                });
                let stream = &mut log.streams[at];
                stream.lines.push((stream.text.len(), log.lines.len()));
                squeeze(&rest, &mut stream.text);
                log.lines.push(Line {
                    number: number + 1,
                    text: rest,
                    is_named: prefix.source.is_some(),
                    time: prefix.time.clone(),
                });
            }
        }
        log
    }

    /// Returns when a line was written, if it or one of the lines before it says so.
    pub(crate) fn time(&self, line: usize) -> Option<&str> {
        let lines = self.lines.get(..=line)?;
        lines.iter().rev().take(200).find_map(|line| line.time.as_deref())
    }

    /// Returns the number of a line in the whole text, from 1.
    pub(crate) fn number(&self, line: usize) -> usize {
        self.lines.get(line).map_or(0, |line| line.number)
    }

    /// Whether a line itself says who wrote it. Others are taken for the continuation of what was written before them.
    pub(crate) fn is_named(&self, line: usize) -> bool {
        self.lines.get(line).is_some_and(|line| line.is_named)
    }

    /// Returns a line as it is.
    pub(crate) fn raw(&self, line: usize) -> &str {
        self.lines.get(line).map_or("", |line| line.text.trim())
    }

    /// Returns all lines that are looked at.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.text.as_str())
    }

    /// Returns a line, cut to what can be quoted.
    pub(crate) fn quote(&self, line: usize) -> String {
        gpumem_text::clean_line(self.raw(line).as_bytes(), QUOTE_MAX)
    }
}

/// Lines around one with a word of memory that are looked at: a traceback says before what the message says of it.
const BEFORE: usize = 60;
const AFTER: usize = 40;
/// A shorter text is looked at as a whole.
const LONG: usize = 64 << 10;

/// Returns for each line whether it is near one that may be about memory. Most lines of a long log are not, and searching them for every
/// kind of message would take ten times as long.
fn telling(text: &str) -> Vec<bool> {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)memory|oom|alloc|exhaust|kill|shm|shared|code\D{0,3}(?:137|-9)|status\D{0,3}137|sigkill|xid|ecc|cuda|cudnn|cublas|hip|resource|ibv_|memlock|ulimit|nvmap|nvml|nvrm|nvls|handles_|cache blocks|pool|overflow|internal array|bus error|lowonmem|off the bus|space left|permission|internal assert|free blocks|fi_mr|buffer|maxseqlen|max seq len|tactic|nvidia-smi",
        )
    });
    if text.len() < LONG {
        // Also where each line has a letter or two.
        return vec![true; text.lines().count()];
    }
    let mut telling = Vec::new();
    let mut until = 0;
    for (number, line) in text.lines().enumerate() {
        if WORDS.is_match(line) {
            until = number + 1 + AFTER;
            let before = number.saturating_sub(BEFORE).min(telling.len());
            telling[before..].fill(true);
        }
        telling.push(number < until);
    }
    telling
}

/// Appends `line` without white space and frames, in lower case.
fn squeeze(line: &str, to: &mut String) {
    let kept = line
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '\u{2500}'..='\u{257f}' | '\u{200b}' | '\u{feff}' | '`'));
    to.extend(kept.map(|c| c.to_ascii_lowercase()));
}

/// Removes the sequences that colour a terminal, also where ESC was lost or written as text.
fn without_escapes(line: &str) -> String {
    static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?:\x1b|\\x1b|\\u001b|\\e|\\033|\u{241b}|\^\[)\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
    });
    ESCAPES.replace_all(line, "").into_owned()
}

/// A string of JSON or of a repr has line ends and quotes as escapes.
fn unfolded(line: &str) -> Vec<String> {
    let trimmed = line.trim();
    let json = trimmed.starts_with('{') && trimmed.ends_with('}');
    if !trimmed.contains("\\n") || !(json || trimmed.contains("\\n  ") || trimmed.contains("\\nTraceback")) {
        return vec![line.to_owned()];
    }
    let text = line.replace("\\\"", "\"").replace("\\t", " ").replace("\\r", "");
    text.replace("\\\\n", "\\n").split("\\n").map(str::to_owned).collect()
}

#[derive(Default)]
struct Prefix {
    source: Option<String>,
    rank: Option<u32>,
    time: Option<String>,
}

/// Prefixes of lines. Groups: `source`, `rank` and `time`.
static PREFIXES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // A quoted mail or comment; a diff is none.
        r"^\s*(?:>\s?)+",
        // torchrun's `[rank3]: `, older `[default3]:`, and mpirun's `[1,3]<stderr>:`.
        r"^(?P<source>\[(?:rank|default|Rank )(?P<rank>\d{1,5})\]):?\s?",
        r"^(?P<source>\[\d+,(?P<rank>\d{1,5})\])<std(?:out|err)>:\s?",
        // `srun --label`.
        r"^(?P<source>\s{0,3}(?P<rank>\d{1,4})):\s",
        // Ray's and vLLM's workers.
        r"^(?P<source>\([\w:.-]{1,60}(?:\(.{1,40}?\))?(?:,? (?:rank|local_rank)=\d+)?,? ?pid=\d+(?:, ip=[\w.:-]+)?\)),?\s?",
        // docker compose and kubetail.
        r"^(?P<source>[\w./-]{1,60})\s{0,30}\|\s",
        r"^(?P<source>\[pod/[\w./-]{1,120}\])\s",
        // A container's log: `2026-11-28T03:12:01.123456789Z stderr F `, and any other time that begins a line.
        r"^\[?(?P<time>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?\]?:?\s*(?:-\s)?",
        r"^(?:stdout|stderr) [FP]\s",
        r"^\[?(?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)\]?\s",
        // journald and syslog.
        r"^(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.\d+)? [\w.-]+ [\w./@:-]+(?:\[\d+\])?:\s",
        // The same after another time.
        r"^[\w.-]{1,64} [\w./@-]{1,60}\[\d+\]:\s",
        // dmesg.
        r"^\[\s*\d+\.\d{6}\]\s",
        // vLLM's, and other loggers that begin with the level.
        r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*:?\s+(?P<time>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\s(?:\[[^\]]{1,80}\]\s?)?",
        r"^\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\]?\s*:?\s+(?:-\s)?",
    ]
    .iter()
    .map(|text| pattern(text))
    .collect()
});

/// Splits a line into what log collectors put before it, and what the program wrote.
fn split(line: &str) -> (Prefix, &str) {
    let mut prefix = Prefix::default();
    let mut rest = line;
    for _ in 0..PREFIXES_MAX {
        let Some(found) = PREFIXES.iter().find_map(|pattern| pattern.captures(rest)) else {
            break;
        };
        if let Some(source) = found.name("source") {
            prefix.source.get_or_insert_default().push_str(source.as_str().trim());
        }
        if let Some(rank) = found.name("rank") {
            prefix.rank = prefix.rank.or(rank.as_str().parse().ok());
        }
        if let Some(time) = found.name("time") {
            prefix.time.get_or_insert_with(|| time.as_str().replace(',', "."));
        }
        rest = &rest[found.get(0).map_or(0, |all| all.end())..];
    }
    (prefix, rest)
}

/// Returns up to `length` bytes of the beginning of a text.
pub(crate) fn head(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Compiles a pattern of this crate.
pub(crate) fn pattern(text: &str) -> Regex {
    // Each is compiled by the tests. One that is not valid matches nothing.
    Regex::new(text).unwrap_or_else(|error| {
        debug_assert!(false, "{error}");
        #[allow(clippy::expect_used)]
        Regex::new("[^\\s\\S]").expect("it is valid")
    })
}

/// A size in a squeezed text, as a group to put into a pattern.
pub(crate) const SIZE: &str = r"(\d[\d.,]*)(bytes|[kmgtp]i?b|b)";

/// Returns the bytes of a number with its unit, in lower case. Units are powers of 1024, as every stack here writes them, whether it says MB
/// or MiB. The decimal sign is a dot or a comma.
pub(crate) fn bytes(number: &str, unit: &str) -> Option<u64> {
    let number = number.trim_end_matches(['.', ',']);
    let groups: Vec<_> = number.split(',').collect();
    let thousands = groups.len() > 1 && groups[1..].iter().all(|group| group.len() == 3 && !group.contains('.'));
    let number = match (groups.len(), thousands) {
        (1, _) => number.to_owned(),
        // `1,234 MiB` has thousands, `1,23 GiB` a decimal comma, `0,123 GiB`, too.
        (_, true) if groups[0] != "0" => number.replace(',', ""),
        (2, _) if !number.contains('.') => number.replace(',', "."),
        _ => number.replace(',', ""),
    };
    let shift = match unit.as_bytes().first()? {
        b'b' => 0,
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        b't' => 40,
        _ => 50,
    };
    if let Ok(whole) = number.parse::<u128>() {
        return Some(u64::try_from(whole << shift).unwrap_or(u64::MAX));
    }
    let value: f64 = number.parse().ok()?;
    // Casting saturates.
    value.is_finite().then(|| (value * (1u64 << shift) as f64) as u64)
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
