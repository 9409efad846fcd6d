//! The filter of the process table (key `/`, `--filter`): terms between blanks, all of which a process must match. Upper and
//! lower case are the same.
//!
//! | term | matches |
//! |---|---|
//! | `WORD` | a part of the pid, user, command, job, device or state; `oom` is what ran out of memory in the last minutes |
//! | `publishing`, `died` and the other [`STATES`] | exactly that state, so `publishing` is not `not publishing` |
//! | `gpu:0` `gpu:0:1` `gpu:GPU-6f5a` `gpu:sim` | the device: index, MIG device, beginning of the UUID, simulated |
//! | `user:NAME` | the user, by the whole name |
//! | `pid:N` `rank:N` | the number |
//! | `state:TEXT` | the beginning of a state, with `-` for its blanks |
//! | `job:TEXT` | a part of the job's name |
//!
//! A value may be a list, of which one must match: `pid:11,12`. `-` or `!` before a term negates it. A word that begins with two
//! dashes is not negated, since command lines have such words. A term with another key is a word.

use super::device::Device;
use super::only::Only;
use super::process::Process;

/// The states that a term can name, with `-` for their blanks.
const STATES: [&str; 8] = [
    "publishing",
    "not-publishing",
    "stopped",
    "exited",
    "died",
    "inconsistent",
    "disputed",
    "other-user's",
];

/// A filter of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    negated: bool,
    test: Test,
}

/// What a process must be. Of several values, one must match. Texts are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Word(String),
    State(&'static str),
    StateBegins(Vec<String>),
    Gpu(Vec<Only>),
    User(Vec<String>),
    Pid(Vec<u32>),
    Rank(Vec<u32>),
    Job(Vec<String>),
    /// The value makes no sense, for this reason. No process matches. It is never negated.
    Bad(String),
}

impl Filter {
    /// Reads a filter. Every text is one: a term that makes no sense matches nothing.
    pub(crate) fn parse(text: &str) -> Filter {
        let mut terms = Vec::new();
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            // The blank of `not publishing` is also that between two terms.
            let both = words.peek().and_then(|next| state(&format!("{word}-{next}")));
            terms.push(match both {
                Some(state) => {
                    words.next();
                    Term {
                        negated: false,
                        test: Test::State(state),
                    }
                }
                None => Term::parse(word),
            });
        }
        Filter { terms }
    }

    /// Checks whether it has no terms, so that every process matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns why no process can match: the first value that makes no sense.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.terms.iter().find_map(|term| match &term.test {
            Test::Bad(why) => Some(why.as_str()),
            _ => None,
        })
    }

    /// Checks whether a process matches all terms. `device` is the device it uses, if that is shown.
    pub(crate) fn matches(&self, process: &Process, device: Option<&Device>) -> bool {
        let matches = |term: &Term| term.test.matches(process, device) != term.negated;
        self.terms.iter().all(matches)
    }
}

impl Term {
    fn parse(word: &str) -> Term {
        let rest = word.strip_prefix(['-', '!']);
        let rest = rest.filter(|rest| !rest.is_empty() && !word.starts_with("--"));
        let test = Test::parse(rest.unwrap_or(word));
        let negated = rest.is_some() && !matches!(test, Test::Bad(_));
        Term { negated, test }
    }
}

impl Test {
    fn parse(word: &str) -> Test {
        if let Some(state) = state(word) {
            return Test::State(state);
        }
        let lower = word.to_lowercase();
        let Some((key, values)) = lower.split_once(':') else {
            return Test::Word(lower);
        };
        let test = match key {
            "gpu" => list(values, Only::parse).map(Test::Gpu),
            "user" => list(values, text).map(Test::User),
            "pid" => list(values, number).map(Test::Pid),
            "rank" => list(values, number).map(Test::Rank),
            "job" => list(values, text).map(Test::Job),
            "state" => list(values, beginning).map(Test::StateBegins),
            _ => return Test::Word(lower),
        };
        test.unwrap_or_else(|wrong| Test::Bad(why(key, wrong)))
    }

    fn matches(&self, process: &Process, device: Option<&Device>) -> bool {
        match self {
            Test::Word(word) => fields(process).iter().any(|field| field.to_lowercase().contains(word)),
            Test::State(state) => states(process).iter().any(|shown| shown == state),
            Test::StateBegins(values) => states(process)
                .iter()
                .any(|shown| values.iter().any(|value| shown.starts_with(value))),
            Test::Gpu(values) => values.iter().any(|only| match device {
                Some(device) => only.matches(device),
                // A simulated device ends with its program.
                None => *only == Only::Simulated && process.simulated,
            }),
            Test::User(values) => values.contains(&process.user.to_lowercase()),
            Test::Pid(values) => values.contains(&process.pid),
            Test::Rank(values) => process.rank.is_some_and(|rank| values.contains(&rank)),
            Test::Job(values) => {
                let job = process.job.to_lowercase();
                values.iter().any(|value| job.contains(value))
            }
            Test::Bad(_) => false,
        }
    }
}

/// Reads values between commas. A comma too many is not an error, as the next value may be about to be typed. Returns the value
/// that makes no sense, or an empty text if there is none at all.
fn list<T>(values: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, &str> {
    let values = values.split(',').filter(|value| !value.is_empty());
    let read: Vec<T> = values
        .map(|value| parse(value).ok_or(value))
        .collect::<Result<_, _>>()?;
    if read.is_empty() { Err("") } else { Ok(read) }
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn number(value: &str) -> Option<u32> {
    value.parse().ok()
}

/// Reads the beginning of a state.
fn beginning(value: &str) -> Option<String> {
    let known = STATES.iter().any(|state| state.starts_with(value));
    known.then(|| value.to_owned())
}

/// Says why a value makes no sense.
fn why(key: &str, value: &str) -> String {
    let wanted = match key {
        "gpu" => "an index (0, 0:1), a UUID (GPU-6f5a) or sim".to_owned(),
        "pid" | "rank" => "a number".to_owned(),
        "user" | "job" => "a name".to_owned(),
        _ => format!("one of {}", STATES.join(", ")),
    };
    match value {
        "" => format!("{key}: needs {wanted}"),
        _ => format!("{key}:{value} is not {wanted}"),
    }
}

/// Returns the state that a word names.
fn state(word: &str) -> Option<&'static str> {
    STATES.into_iter().find(|state| word.eq_ignore_ascii_case(state))
}

/// Returns the states that a process is shown with, as in [`STATES`]: a stopped one may also be `not publishing`.
fn states(process: &Process) -> Vec<String> {
    let text = process.state_text();
    let words = text.split(", ").map(|part| part.split(" (").next().unwrap_or_default());
    words.map(|word| word.to_lowercase().replace(' ', "-")).collect()
}

/// Returns the texts that a word may be part of.
fn fields(process: &Process) -> [String; 8] {
    [
        process.pid.to_string(),
        process.user.clone(),
        process.command.clone(),
        process.label.clone(),
        process.job_text(),
        process.device_label.clone(),
        process.state_text(),
        process.failing.map(|failing| failing.text()).unwrap_or_default(),
    ]
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
