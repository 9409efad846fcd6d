//! `doctor --bundle FILE`: an archive for a bug report, without what is private.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use gpumem_text::{clean, units};
use serde_json::Value;

use super::machine::Machine;
use super::placeholders::{Kind, Placeholders};
use crate::check::Check;
use crate::model::Model;
use crate::report;

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;

/// The folder of the archive's files.
const FOLDER: &str = "gpumem-bundle";

/// The shortest argument, and the shortest value of a variable, that is replaced in every text. Shorter ones (`8`, `on`) would make sentences
/// unreadable, and are replaced where they stand as an argument or a value.
const SHORT: usize = 4;

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: &'static str,
    about: &'static str,
    text: String,
}

/// Writes an archive with the checks, the report and what else is known of this machine. Returns what to say about it.
///
/// # Errors
/// When the file exists, or cannot be written. The text says so.
pub(crate) fn bundle(file: &Path, checks: &[Check], model: &Model) -> Result<String, String> {
    let report = report::document(model).and_then(|document| serde_json::from_str(&document));
    let report = report.map_err(|error| format!("the report cannot be written as JSON: {error}"))?;
    let mut placeholders = Placeholders::default();
    let entries = contents(checks, report, &Machine::look(), &mut placeholders);
    let name = clean(&file.display().to_string());
    let archive = archive(&entries, model.unix_ms(model.now) / 1000);
    let archive = archive.map_err(|error| format!("the archive cannot be made: {error}"))?;
    write_new(file, &archive).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{name} exists, and is not overwritten: name another file"),
        _ => format!("cannot write {name}: {error}"),
    })?;
    Ok(summary(&name, archive.len() as u64, &entries, &placeholders))
}

/// Writes a file that does not exist. It is readable by its owner only, who may not want to share it after a look into it.
fn write_new(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    opened.write_all(bytes).inspect_err(|_| {
        // A part of an archive is of no use.
        let _ = std::fs::remove_file(file);
    })
}

/// Packs the files into a compressed archive.
fn archive(entries: &[Entry], seconds: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(entry.text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(seconds);
        let path = format!("{FOLDER}/{}", entry.name);
        archive.append_data(&mut header, path, entry.text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

/// Says what is in the archive.
fn summary(name: &str, size: u64, entries: &[Entry], placeholders: &Placeholders) -> String {
    let mut out = format!("{name} is written, {}. It has:\n", units::bytes(size));
    for entry in entries {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "  {:<12} {:>10}  {}",
            entry.name,
            units::bytes(entry.text.len() as u64),
            entry.about
        );
    }
    out + "\n" + &replaced(placeholders)
}

/// Says what was replaced and what was not.
fn replaced(placeholders: &Placeholders) -> String {
    let kinds = [
        (Kind::User, "user name"),
        (Kind::Host, "host name"),
        (Kind::Job, "job name"),
        (Kind::Pool, "pool name"),
        (Kind::Argument, "argument"),
        (Kind::Value, "environment value"),
        (Kind::Path, "path"),
    ];
    let counts = kinds.map(|(kind, noun)| (placeholders.count(kind) as u64, noun));
    let known: Vec<String> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| units::plural(count, noun))
        .collect();
    format!(
        "Replaced by placeholders such as user-1: {}.\nStill in it: names of programs, devices and tags, UUIDs, bus ids, process ids, versions, \
         sizes and times.\nLook into it before you send it.\n",
        known.join(", ")
    )
}

/// Returns the files of the archive, with `placeholders` in place of what is private.
fn contents(checks: &[Check], mut report: Value, machine: &Machine, placeholders: &mut Placeholders) -> Vec<Entry> {
    *placeholders = Placeholders::new(machine.homes.iter().cloned());
    learn_machine(machine, placeholders);
    // Everything is learned before anything is replaced: a finding may name what another part of the report shows.
    learn_report(&report, placeholders);
    replace(&mut report, None, placeholders);
    let checks: Vec<Check> = checks
        .iter()
        .map(|check| Check {
            seen: placeholders.apply(&check.seen),
            todo: placeholders.apply(&check.todo),
            ..check.clone()
        })
        .collect();
    let log = match &machine.log {
        Ok(lines) if lines.is_empty() => "the kernel's log has no line of the NVIDIA driver\n".to_owned(),
        Ok(lines) => lines.iter().map(|line| log_line(line, placeholders) + "\n").collect(),
        Err(why) => placeholders.apply(why) + "\n",
    };
    let mut entries = vec![
        entry("doctor.txt", "the checks", super::text(&checks, u16::MAX)),
        entry(
            "doctor.json",
            "the same for programs",
            super::json(&checks).unwrap_or_default() + "\n",
        ),
        entry("report.json", "the document of --json", format!("{report:#}\n")),
        entry(
            "versions.txt",
            "versions of this program, the kernel and the system",
            placeholders.apply(&machine.versions),
        ),
        entry(
            "driver.txt",
            "version, parameters and cards of the driver",
            placeholders.apply(&machine.driver),
        ),
        entry(
            "limits.txt",
            "limits of processes and of the machine",
            placeholders.apply(&machine.limits),
        ),
        entry("kernel.txt", "lines of the driver in the kernel's log", log),
    ];
    entries.insert(0, entry("README.txt", "what was replaced", replaced(placeholders)));
    entries
}

fn entry(name: &'static str, about: &'static str, text: String) -> Entry {
    Entry { name, about, text }
}

fn learn_machine(machine: &Machine, placeholders: &mut Placeholders) {
    for user in &machine.users {
        learn_user(user, placeholders);
    }
    for host in &machine.hosts {
        learn_host(host, placeholders);
    }
    for (name, value) in &machine.environment {
        // Words like these say nothing, and are everywhere.
        let says_nothing = ["true", "false", "root", "auto", "none", "linux"].contains(&value.as_str());
        if value.len() >= SHORT && !says_nothing && name != "_" {
            placeholders.learn(Kind::Value, value);
        }
        // A list such as LD_LIBRARY_PATH. What the system has itself is the same everywhere.
        let of_system = |path: &&str| {
            !["/usr/", "/bin", "/sbin", "/lib"]
                .iter()
                .any(|start| path.starts_with(start))
        };
        for path in value
            .split(':')
            .filter(|path| path.starts_with('/') && path.len() >= SHORT)
        {
            if Some(path).filter(of_system).is_some() {
                placeholders.learn(Kind::Path, path);
            }
        }
    }
}

/// Learns a user's name. That of root is the same everywhere.
fn learn_user(name: &str, placeholders: &mut Placeholders) {
    if name != "root" {
        placeholders.learn(Kind::User, name);
    }
}

/// Learns a machine's name, and the part before its domain.
fn learn_host(name: &str, placeholders: &mut Placeholders) {
    if !["", "localhost"].contains(&name) {
        placeholders.learn(Kind::Host, name);
        let short = name.split('.').next().unwrap_or(name);
        placeholders.learn(Kind::Host, short);
    }
}

/// Learns what is private in a report.
fn learn_report(report: &Value, placeholders: &mut Placeholders) {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    learn_host(&text(report, "host"), placeholders);
    for user in list(report, "channels_not_shown") {
        learn_user(&text(&user, "user"), placeholders);
    }
    for problem in list(report, "unreadable_channels") {
        placeholders.learn(Kind::Path, &text(&problem, "file"));
    }
    for process in list(report, "processes") {
        learn_user(&text(&process, "user"), placeholders);
        placeholders.learn(Kind::Job, &text(&process, "job"));
        for pool in list(&process["allocator"], "pools") {
            placeholders.learn(Kind::Pool, &text(&pool, "name"));
        }
        let command = text(&process, "command");
        let mut words = command.split(' ');
        // The program's folder may tell, too.
        for path in words.next().into_iter().filter(|program| program.contains('/')) {
            placeholders.learn(Kind::Path, path);
        }
        for word in words {
            learn_argument(word, placeholders);
        }
    }
}

/// Learns an argument, and its parts, which other texts may have: the value of `--name=value`, the file of a path.
fn learn_argument(word: &str, placeholders: &mut Placeholders) {
    let value = word.split_once('=').map(|(_, value)| value);
    let parts = [value, word.rsplit('/').next()].into_iter().flatten();
    for part in parts.chain([word]) {
        // The name of a flag is part of many sentences, and is replaced in the command only.
        if part.len() >= SHORT && (!part.starts_with('-') || part.contains('=')) {
            placeholders.learn(Kind::Argument, part);
        }
    }
}

/// Replaces what is private in a value of a report. `field` is its name.
fn replace(value: &mut Value, field: Option<&str>, placeholders: &mut Placeholders) {
    match value {
        Value::Object(fields) => {
            let is_process = fields.contains_key("command");
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), value) {
                    // Its script or model. The label of a device is not private.
                    ("label", Value::String(label)) if is_process => {
                        *label = placeholders.stand_in(Kind::Argument, label);
                    }
                    (name, value) => replace(value, Some(name), placeholders),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                replace(value, field, placeholders);
            }
        }
        Value::String(text) => {
            *text = match field {
                Some("command") => command(text, placeholders),
                Some("file") => placeholders.stand_in(Kind::Path, text),
                _ => placeholders.apply(text),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns a command with the name of its program and placeholders for its arguments.
fn command(text: &str, placeholders: &mut Placeholders) -> String {
    let mut words = text.split(' ');
    let program = crate::words::program(words.next().unwrap_or_default());
    let mut shown = vec![placeholders.apply(program)];
    shown.extend(words.map(|word| placeholders.stand_in(Kind::Argument, word)));
    shown.join(" ")
}

/// Returns a line of the kernel's log. The driver names the process that an Xid is about: `pid=4121, name=python3`.
fn log_line(line: &str, placeholders: &mut Placeholders) -> String {
    let Some((start, rest)) = line.split_once("name=") else {
        return placeholders.apply(line);
    };
    let end = rest.find(", ").unwrap_or(rest.len());
    let program = placeholders.stand_in(Kind::Program, &rest[..end]);
    let [start, end] = [start, &rest[end..]].map(|part| placeholders.apply(part));
    format!("{start}name={program}{end}")
}
