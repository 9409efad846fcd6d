//! `gpumem-tui doctor`: what can and cannot be seen here, and what to do about each.

mod checks;

use std::fmt::Write;

use gpumem_text::clean;

use crate::source::{listed, sample_nvml_once};
use crate::terminal::Environment;
use crate::wrap::wrap;

/// How a check ended, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It works.
    Good,
    /// Something is not there that need not be.
    Note,
    /// There is no GPU to look at.
    NoGpu,
    /// Something is broken.
    Bad,
}

impl Verdict {
    fn mark(self) -> &'static str {
        match self {
            Verdict::Good => "ok  ",
            Verdict::Note => "note",
            Verdict::NoGpu => "none",
            Verdict::Bad => "BAD ",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do, in a line or more; empty when nothing needs doing.
    pub todo: String,
}

/// Looks at everything.
pub fn examine(env: &Environment, colors: crate::model::Colors, ascii: bool) -> Vec<Check> {
    let facts = checks::facts();
    let nvml = sample_nvml_once(None);
    let mut all = vec![
        checks::driver(&facts),
        checks::device_files(&facts),
        checks::nvml(&nvml),
        checks::cuda(),
    ];
    all.extend(checks::channels(&facts, &listed(&nvml)));
    all.push(checks::permissions(&facts));
    all.push(checks::terminal(env, colors, ascii));
    all
}

/// Columns before what was seen, and before what to do.
const MARGIN: [u16; 2] = [18, 20];

/// The checks as text, ending in a line end, in lines of at most `room` columns.
pub fn text(checks: &[Check], room: u16) -> String {
    let mut out = String::new();
    // Words of one letter a line help nobody.
    let wrapped = |text: &str, margin: u16| -> String {
        let lines = text
            .lines()
            // There are names in it: of directories, of files, of what the driver says.
            .flat_map(|line| wrap(&clean(line), room.saturating_sub(margin).max(20)));
        let air = format!("\n{:1$}", "", margin.into());
        lines.collect::<Vec<_>>().join(&air)
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

/// The exit code: that of the worst check.
pub fn exit_code(checks: &[Check]) -> u8 {
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
    fn the_worst_decides() {
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
    fn advice_stands_under_what_it_is_about() {
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
    fn every_check_that_is_not_good_says_what_to_do() {
        for check in examine(&Environment::default(), crate::model::Colors::Mono, false) {
            assert!(!check.seen.is_empty(), "{check:?}");
            assert!(check.verdict == Verdict::Good || !check.todo.is_empty(), "{check:?}");
        }
    }
}
