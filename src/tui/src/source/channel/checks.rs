//! What `doctor` says of channels.

use std::path::{Path, PathBuf};

use gpumem_channel::{Life, Options, check_directory, left_behind, named_directory, own_directories};
use gpumem_probe::Facts;
use rustix::fs::Access;

use crate::check::{Check, Verdict, good, not};
use crate::model::{ChannelSample, Problem, ProblemKind};
use gpumem_text::units;

/// The checks of channels: where they would be, and which there are.
pub(super) fn all(facts: &Facts, sample: &ChannelSample) -> Vec<Check> {
    vec![place(facts), seen(sample)]
}

/// Who was seen to publish, and what keeps others from being seen.
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
                "there is more than is looked at:",
                "places have more than is looked at:",
            ),
            listed(
                &of(&[ProblemKind::File, ProblemKind::Directory]),
                "cannot be read:",
                "files cannot be read:",
            ),
            listed(&of(&[ProblemKind::Removed]), "is gone:", "channel files are gone:"),
        ];
        let todo: Vec<String> = parts.into_iter().flatten().collect();
        return not(name, Verdict::Bad, seen, todo.join("\n"));
    }
    match living {
        0 => {
            let todo = "nobody publishes now; gpumem-tui demo train --headless --device sim does";
            not(name, Verdict::Note, seen, todo)
        }
        _ => good(name, seen),
    }
}

/// The first of these problems, a line each, and how many more there are; nothing where there are none.
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

/// Where this user's programs would publish.
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
                "GPUMEM_DIR has to name a directory of this user's with mode 0700 on a tmpfs, as /dev/shm is one"
                    .to_owned()
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
        // What ended programs left makes way.
        Some(free) if free + left_behind(dir) < needed => {
            // Rounded up: who makes room for what is said has room enough.
            let room = units::round_size(needed.next_multiple_of(1 << 20));
            not(name, Verdict::Bad, seen, format!("a program needs up to {room} there"))
        }
        _ => good(name, seen),
    }
}

/// Whether a program could publish there: its directory, or the place where it would make it, is in memory and can be written to.
/// Otherwise why not.
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
        return fail("it is no directory".into());
    }
    // A directory named by hand is not made by doctor's advice.
    let home = [Some(dir), dir.parent().filter(|_| !named)];
    let Some(home) = home.into_iter().flatten().find(|home| home.is_dir()) else {
        return fail("there is no such directory".into());
    };
    // Root may write where the mode forbids it, but not to a read-only file system.
    match rustix::fs::access(home, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(error) => fail(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_lines_of_their_own_while_they_are_few() {
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
            "there is more than is looked at:\n/dev/shm: it is full\ncannot be read:\n0: torn"
        );
    }
}
