//! Whether words of a failure are only quoted: in source code, in a change of it, in a sentence about failures.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::{Log, Stream, pattern};

/// Lines around one that tell whether it stands in source code.
const NEAR: usize = 6;

/// Lines that are never a message.
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:#|//|/\*|\*\s|--\s|raise\s|except\b|catch\b|elif\b|assert\b|throw\b|grep\b|echo\b|\$\s*grep\b|.*\b(?:pytest|unittest)\.raises|.*\bin msg\b|.*\bin str\(|(?:fix(?:ed)?|added|changed|removed|feat|docs|chore|perf|refactor|test|ci|build)(?:\([\w./-]+\))?!?:\s|(?:alert|expr|summary|runbook|description|annotations):\s)",
    )
});
/// Lines that are none unless they name an error.
static LIKE_CODE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:if\b.*[:{]$|return\b|with\b|[\w.]+\s=\s[^=])"));
/// A string of a list, such as a line of source code has.
static LITERAL: LazyLock<Regex> = LazyLock::new(|| pattern(r#"^(?:"[^"]*"|'[^']*')[,)\]]*$"#));
/// Lines that stand around a message in source code.
static AROUND_CODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:[+-]?\s*)(?:def \w|class \w|import \w|from [\w.]+ import|return\b|assert\b|#include|fn \w|pub fn|try:|except\b|TORCH_CHECK|\}|\)[;:,]?$|throw |raise \w+\()|^@@ |^diff --git",
    )
});
/// The last line of a traceback.
static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\w.]*(?:Error|Exception|Error\w*): "));
/// What `grep -n` prints before a line.
static GREP: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\w./-]+\.(\w{1,5}):\d+:\s*"));
const TEXTS: &[&str] = &["md", "rst", "adoc", "yaml", "yml", "html", "sh"];

/// Whether a message stands in source code: a line of a program, a comment or a traceback's quote of one.
pub(super) fn in_code(log: &Log, stream: &Stream, offset: usize) -> bool {
    let number = stream.line(offset);
    let line = log.raw(number);
    let line = line.trim_start_matches(['+', '-', '>', '*', ' ']);
    let line = match GREP.captures(line) {
        Some(found) if TEXTS.contains(&&found[1]) => return true,
        Some(found) => &line[found.get(0).map_or(0, |all| all.end())..],
        None => line,
    };
    let names_error = line.contains("Error:") || line.contains("error:") || line.contains("_error=");
    CODE.is_match(line)
        || LITERAL.is_match(line)
        || (LIKE_CODE.is_match(line) && !names_error)
        || (among_code(log, number) && !EXCEPTION.is_match(line))
}

fn among_code(log: &Log, number: usize) -> bool {
    let first = number.saturating_sub(NEAR);
    let lines = || (first..=number + NEAR).filter(|at| *at != number).map(|at| log.raw(at));
    let said = lines().any(|line| line.contains("Traceback") || line.contains("Error: "));
    !said && lines().filter(|line| AROUND_CODE.is_match(line)).count() >= 2
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
pub(super) fn in_prose(log: &Log, stream: &Stream, offset: usize) -> bool {
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
        // A part of a longer name, as of a test.
        if line[..found.start()].ends_with('_') || after.starts_with('_') {
            return true;
        }
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
