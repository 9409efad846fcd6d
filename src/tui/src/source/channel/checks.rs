//! The checks of `doctor` for channels.

use std::path::{Path, PathBuf};

use gpumem_channel::{Life, Options, check_directory, left_behind, named_directory, own_directories};
use gpumem_probe::Facts;
use gpumem_text::units;
use rustix::fs::Access;

use crate::check::{Check, Verdict, good, not};
use crate::model::{ChannelSample, Problem, ProblemKind};

/// Returns the checks for the channel directory and for the channels in it.
pub(super) fn all(facts: &Facts, sample: &ChannelSample) -> Vec<Check> {
    vec![place(facts), seen(sample)]
}

/// Checks how many channels were found, and whether something keeps others from being found.
fn seen(sample: &ChannelSample) -> Check {
    let name = "channels";
    let living = sample
        .channels
        .iter()
        .filter(|c| c.snapshot.life == Life::Alive)
        .count();
    let dead = sample.channels.len() - living;
    let seen = format!("{living} live, {dead} of programs that ended");
    if !sample.problems.is_empty() {
        let of = |wanted: &[ProblemKind]| -> Vec<&Problem> {
            sample.problems.iter().filter(|p| wanted.contains(&p.kind)).collect()
        };
        let parts = [
            listed(
                &of(&[ProblemKind::Overflow]),
                "not searched in full:",
                "places are not searched in full:",
            ),
            listed(
                &of(&[ProblemKind::File, ProblemKind::Directory]),
                "cannot be read:",
                "files cannot be read:",
            ),
            listed(
                &of(&[ProblemKind::Removed]),
                "was removed:",
                "channel files were removed:",
            ),
        ];
        let todo: Vec<String> = parts.into_iter().flatten().collect();
        return not(name, Verdict::Bad, seen, todo.join("\n"));
    }
    match living {
        0 => {
            let todo = "no program publishes now; gpumem-tui demo train --headless --device sim does";
            not(name, Verdict::Note, seen, todo)
        }
        _ => good(name, seen),
    }
}

/// Returns the first problems, one a line, and how many more there are; `None` without problems.
fn listed(problems: &[&Problem], one: &str, many: &str) -> Option<String> {
    const LISTED: usize = 8;
    let mut lines = vec![match problems.len() {
        0 => return None,
        1 => one.to_owned(),
        n => format!("{n} {many}"),
    }];
    lines.extend(problems.iter().take(LISTED).map(|p| format!("{}: {}", p.file, p.text)));
    if problems.len() > LISTED {
        lines.push(format!("and {} more", problems.len() - LISTED));
    }
    Some(lines.join("\n"))
}

/// Checks the directory that this user's programs would publish in.
fn place(facts: &Facts) -> Check {
    let name = "channel dir";
    let dirs = own_directories();
    let looked: Vec<Result<&PathBuf, String>> = dirs.iter().map(|dir| usable(dir, facts).map(|()| dir)).collect();
    let Some(dir) = looked.iter().find_map(|look| look.as_ref().ok()) else {
        let seen = format!(
            "none can be used: {}",
            looked
                .into_iter()
                .filter_map(Result::err)
                .collect::<Vec<_>>()
                .join("; ")
        );
        let todo = match named_directory() {
            Some(_) => {
                "GPUMEM_DIR must name a directory of this user with mode 0700 on a tmpfs such as /dev/shm".to_owned()
            }
            None => {
                let places = [&facts.runtime_dir, &facts.shm].into_iter();
                let why = places.filter_map(|place| place.as_ref().err());
                let why: String = why.map(|why| format!(" ({why})")).collect();
                format!("mount a tmpfs on /dev/shm or set GPUMEM_DIR to a directory on one{why}")
            }
        };
        return not(name, Verdict::Bad, seen, todo);
    };
    let at = |place: &&gpumem_probe::Place| dir.starts_with(&place.path);
    let place = [&facts.runtime_dir, &facts.shm].into_iter().flatten().find(at);
    let free = place.map(|place| place.free);
    let seen = match free {
        Some(free) => format!("{}, {} free", dir.display(), units::bytes(free)),
        None => dir.display().to_string(),
    };
    let needed = Options::default().file_len_within(place.map_or(0, |place| place.total));
    match free {
        // Files of ended programs are removed when a new one needs the space.
        Some(free) if free + left_behind(dir) < needed => {
            // Rounded up, so that freeing the printed amount is enough.
            let room = units::round_size(needed.next_multiple_of(1 << 20));
            not(name, Verdict::Bad, seen, format!("a program needs up to {room} there"))
        }
        _ => good(name, seen),
    }
}

/// Checks whether a program could publish in `dir`: the directory, or the parent in which it would be created, must be in
/// memory and writable. The error says why it is not.
fn usable(dir: &Path, facts: &Facts) -> Result<(), String> {
    let known = [&facts.runtime_dir, &facts.shm];
    let place = known.into_iter().flatten().find(|place| dir.starts_with(&place.path));
    let named = place.is_none() && named_directory().is_some();
    let fail = |why: String| Err(format!("{}: {why}", dir.display()));
    match place {
        None if !named => return fail("there is no such place".into()),
        Some(place) if !place.tmpfs => return fail("not in memory (tmpfs)".into()),
        _ => {}
    }
    if dir.is_dir() {
        check_directory(dir)?;
    } else if dir.symlink_metadata().is_ok() {
        return fail("it is not a directory".into());
    }
    // A directory that GPUMEM_DIR names must exist; its parent does not do.
    let candidates = [Some(dir), dir.parent().filter(|_| !named)];
    let Some(existing) = candidates.into_iter().flatten().find(|dir| dir.is_dir()) else {
        return fail("there is no such directory".into());
    };
    // Not the mode bits: root ignores those, but cannot write to a read-only file system.
    match rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(error) => fail(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_files_are_listed_and_the_rest_counted() {
        let files: Vec<Problem> = (0..10)
            .map(|n| Problem {
                file: n.to_string(),
                text: "torn".into(),
                ..Problem::default()
            })
            .collect();
        let todo = |problems: &[Problem]| {
            let sample = ChannelSample {
                problems: problems.to_vec(),
                ..ChannelSample::default()
            };
            let check = seen(&sample);
            assert_eq!(check.verdict, Verdict::Bad);
            check.todo
        };
        assert_eq!(todo(&files[..1]), "cannot be read:\n0: torn");
        let all = todo(&files);
        assert!(
            all.starts_with("10 files cannot be read:\n0: torn\n1: torn\n") && all.ends_with("\n7: torn\nand 2 more")
        );
        let overflow = Problem {
            file: "/dev/shm".into(),
            kind: ProblemKind::Overflow,
            text: "it is full".into(),
        };
        assert_eq!(
            todo(&[files[0].clone(), overflow]),
            "not searched in full:\n/dev/shm: it is full\ncannot be read:\n0: torn"
        );
    }
}
