//! `gpumem-tui triage`: says which allocator failed, why and what helps, from a log, from a process or from the machine as it is now.

mod lines;
mod live;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;

use gpumem_triage::{Report, triage_log};
use serde::Serialize;

use crate::check::Verdict;
use crate::cli::TriageCli;
use crate::doctor;
use crate::model::Model;

pub(crate) use lines::{Line, Part, lines};
use live::of_machine;
pub(crate) use live::of_process;

/// Exit code: something failed for lack of memory, or is about to.
pub(crate) const FOUND: u8 = 4;

/// What was found, as text and whether it is a risk.
pub(crate) struct Answer {
    /// The text, ending in a newline.
    pub text: String,
    /// Whether the exit code is [`FOUND`].
    pub found: bool,
}

/// Runs the command. `collect` samples the machine once; `room` is the number of columns of stdout.
///
/// # Errors
/// When the log cannot be read, or there is no such process.
pub(crate) fn run(args: &TriageCli, collect: impl FnOnce() -> io::Result<Model>, room: u16) -> Result<Answer, String> {
    let from_terminal = io::stdin().is_terminal();
    let report = match (args.pid, args.file.as_deref()) {
        (Some(pid), _) => {
            let model = collect().map_err(|error| error.to_string())?;
            of_process(&model, pid)
                .ok_or_else(|| format!("no process {pid} uses a GPU or has published: gpumem-tui --once lists them"))?
        }
        (None, None) if from_terminal => {
            let model = collect().map_err(|error| error.to_string())?;
            return machine(&model, args.json, room);
        }
        (None, file) => of_log(file)?,
    };
    let found = report.verdict.is_failure();
    let text = match args.json {
        true => document(&report)?,
        false => lines(&report, room)
            .iter()
            .map(|line| format!("{}\n", line.text))
            .collect(),
    };
    Ok(Answer { text, found })
}

/// The checklist of the machine as it is now.
fn machine(model: &Model, json: bool, room: u16) -> Result<Answer, String> {
    let checks = of_machine(model);
    let found = checks.iter().any(|check| check.verdict == Verdict::Bad);
    let text = match json {
        true => doctor::json(&checks).map_err(|error| error.to_string())? + "\n",
        false => doctor::text(&checks, room),
    };
    Ok(Answer { text, found })
}

/// The document of a report.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

fn document(report: &Report) -> Result<String, String> {
    let schema = "gpumem-triage/1";
    let text = serde_json::to_string_pretty(&Document { schema, report }).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// Judges a file, or what is piped in.
fn of_log(file: Option<&Path>) -> Result<Report, String> {
    match file.filter(|file| file.as_os_str() != "-") {
        None => triage_log(io::stdin().lock()).map_err(|error| format!("stdin: {error}")),
        Some(path) => File::open(path)
            .and_then(triage_log)
            .map_err(|error| format!("{}: {error}", path.display())),
    }
}
