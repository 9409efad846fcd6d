//! `gpumem-tui doctor`: checks what can be seen on this machine, and says what to do about the rest.

mod bundle;
mod machine;
mod placeholders;

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;

use gpumem_probe::{Facts, Root};
use gpumem_text::clean;

use serde::Serialize;

use crate::check::{Check, Verdict, good, not};
use crate::model::{Colors, Model};
use crate::terminal::{self, Environment};
use crate::wrap::wrap;
use crate::{report, source};

pub(crate) use bundle::bundle;

/// Name and version of the format of `--json`.
const SCHEMA: &str = "gpumem-doctor/1";

/// Runs all checks. `model` takes over what was sampled for them.
pub(crate) fn examine(model: &mut Model, env: &Environment, colors: Colors, ascii: bool) -> Vec<Check> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let facts = Facts::gather(&Root::default(), runtime.as_deref());
    report::sample(model);
    let sources = source::all();
    let checks = sources.iter().flat_map(|source| source.checks(&facts, &model.inputs));
    let mut all: Vec<Check> = checks.collect();
    all.push(screen(env, colors, ascii));
    all
}

/// Returns the check of a configuration that cannot be used.
pub(crate) fn configuration(wrong: &str) -> Check {
    let todo = "correct that line, or name another file with --config: the dashboard and the reports refuse this one";
    not("config", Verdict::Bad, wrong, todo)
}

/// Checks the terminal that the dashboard would use.
fn screen(env: &Environment, colors: Colors, ascii: bool) -> Check {
    let name = "terminal";
    let term = env
        .term
        .as_deref()
        .map_or_else(|| "TERM is not set".to_owned(), |term| format!("TERM={term}"));
    let colors = match colors {
        Colors::True => "24-bit colours",
        Colors::Ansi256 => "256 colours",
        Colors::Ansi16 => "16 colours",
        Colors::Mono => "no colours",
    };
    let letters = if ascii { "ASCII" } else { "UTF-8" };
    let term: String = gpumem_text::clean(&term).chars().take(60).collect();
    if !std::io::stdout().is_terminal() {
        let seen = format!("stdout is not a terminal; {term}, {colors}, {letters}");
        return not(
            name,
            Verdict::Note,
            seen,
            "the dashboard needs one; --once and --json do not",
        );
    }
    let (width, height) = terminal::size();
    let seen = format!("{width}x{height}, {term}, {colors}, {letters}");
    if width < 80 || height < 24 {
        return not(name, Verdict::Note, seen, "80x24 or more shows everything");
    }
    good(name, seen)
}

/// The document of `--json`, as `JSON.md` describes it.
#[derive(Serialize)]
struct JsonChecks {
    schema: &'static str,
    version: &'static str,
    checks: Vec<JsonCheck>,
}

#[derive(Serialize)]
struct JsonCheck {
    name: &'static str,
    verdict: &'static str,
    seen: String,
    todo: Option<String>,
}

/// Formats the checks as a JSON document on one line, without the newline.
///
/// # Errors
/// When it cannot be written as JSON, which is a bug.
pub(crate) fn json(checks: &[Check]) -> serde_json::Result<String> {
    // Cleaned like the text, except that lines stay lines.
    let lines = |text: &str| text.lines().map(clean).collect::<Vec<_>>().join("\n");
    let check = |check: &Check| JsonCheck {
        name: check.name,
        verdict: check.verdict.word(),
        seen: lines(&check.seen),
        todo: (!check.todo.is_empty()).then(|| lines(&check.todo)),
    };
    serde_json::to_string(&JsonChecks {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        checks: checks.iter().map(check).collect(),
    })
}

/// Columns before what was found, and before what to do.
const MARGIN: [u16; 2] = [18, 20];

/// Formats the checks in lines of at most `room` columns, ending in a newline.
pub(crate) fn text(checks: &[Check], room: u16) -> String {
    let mut out = String::new();
    // At least 20 columns, so that words are not broken into letters.
    let wrapped = |text: &str, margin: u16| -> String {
        let lines = text
            .lines()
            // Cleaned, since it has names of files and texts of the driver.
            .flat_map(|line| wrap(&clean(line), room.saturating_sub(margin).max(20)));
        let indent = format!("\n{:1$}", "", margin.into());
        lines.collect::<Vec<_>>().join(&indent)
    };
    for check in checks {
        let [seen, todo] = [wrapped(&check.seen, MARGIN[0]), wrapped(&check.todo, MARGIN[1])];
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{} {:<12} {seen}", check.verdict.mark(), check.name);
        if !todo.is_empty() {
            let _ = writeln!(out, "{:17} > {todo}", "");
        }
    }
    out
}

/// Returns the exit code of the worst check.
pub(crate) fn exit_code(checks: &[Check]) -> u8 {
    match checks.iter().map(|c| c.verdict).max() {
        Some(Verdict::Bad) => 1,
        Some(Verdict::NoGpu) => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(verdict: Verdict, todo: &str) -> Check {
        Check {
            name: "thing",
            verdict,
            seen: "seen".into(),
            todo: todo.into(),
        }
    }

    #[test]
    fn exit_code_is_that_of_the_worst_check() {
        use Verdict::{Bad, Good, NoGpu, Note};
        for (verdicts, code) in [
            (&[Good, Note][..], 0),
            (&[Good, NoGpu], 3),
            (&[NoGpu, Bad, Good], 1),
            (&[], 0),
        ] {
            let checks: Vec<_> = verdicts.iter().map(|v| check(*v, "")).collect();
            assert_eq!(exit_code(&checks), code, "{verdicts:?}");
        }
    }

    #[test]
    fn advice_follows_its_check() {
        let checks = [
            check(Verdict::Good, ""),
            check(Verdict::Bad, "do this\nand that which is long"),
        ];
        let first = "ok   thing        seen\nBAD  thing        seen\n                  > do this\n";
        let wide = format!("{first}                    and that which is long\n");
        let narrow = format!("{first}                    and that which is\n                    long\n");
        assert_eq!([text(&checks, u16::MAX), text(&checks, 40)], [wide, narrow]);
    }

    #[test]
    fn document_has_each_check() {
        let checks = [
            check(Verdict::Good, ""),
            check(Verdict::Bad, "do \u{1b}[this\nand that"),
            check(Verdict::NoGpu, "x"),
        ];
        let document: serde_json::Value = serde_json::from_str(&json(&checks).unwrap_or_default()).unwrap_or_default();
        assert_eq!(
            document,
            serde_json::json!({
                "schema": "gpumem-doctor/1",
                "version": env!("CARGO_PKG_VERSION"),
                "checks": [
                    {"name": "thing", "verdict": "ok", "seen": "seen", "todo": null},
                    {"name": "thing", "verdict": "bad", "seen": "seen", "todo": "do \u{fffd}[this\nand that"},
                    {"name": "thing", "verdict": "no-gpu", "seen": "seen", "todo": "x"},
                ]
            })
        );
    }

    #[test]
    fn every_check_that_is_not_good_says_what_to_do() {
        for check in examine(&mut Model::default(), &Environment::default(), Colors::Mono, false) {
            assert!(!check.seen.is_empty(), "{check:?}");
            assert!(check.verdict == Verdict::Good || !check.todo.is_empty(), "{check:?}");
        }
    }
}
