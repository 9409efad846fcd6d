//! The checks of `doctor`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use gpumem_channel::{Life, Options, check_directory, left_behind, named_directory, own_directories};
use gpumem_probe::{Facts, NvmlSample, NvmlState, PtraceScope, Root};
use gpumem_text::units;
use rustix::fs::Access;

use super::{Check, Verdict};
use crate::model::{ChannelSample, Colors, Problem, ProblemKind};
use crate::source::{Channels, named_nvml};
use crate::terminal::{self, Environment};

pub(super) fn facts() -> Facts {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    Facts::gather(&Root::default(), runtime.as_deref())
}

fn good(name: &'static str, seen: impl Into<String>) -> Check {
    Check {
        name,
        verdict: Verdict::Good,
        seen: seen.into(),
        todo: String::new(),
    }
}

fn not(name: &'static str, verdict: Verdict, seen: impl Into<String>, todo: impl Into<String>) -> Check {
    Check {
        name,
        verdict,
        seen: seen.into(),
        todo: todo.into(),
    }
}

pub(super) fn driver(facts: &Facts) -> Check {
    match &facts.driver_module {
        Ok(version) => good("driver", format!("NVIDIA kernel module {version}")),
        Err(why) => {
            let todo = match &facts.container {
                Some(_) => "in a container: start it with the NVIDIA container runtime (--gpus all)",
                None => "install the NVIDIA driver, or load it (modprobe nvidia); without a GPU use --device sim",
            };
            not("driver", Verdict::NoGpu, why, todo)
        }
    }
}

pub(super) fn device_files(facts: &Facts) -> Check {
    let refused: Vec<String> = facts
        .device_nodes
        .iter()
        .filter_map(|node| node.access.as_ref().err().map(|why| format!("{} {why}", node.path)))
        .collect();
    if refused.is_empty() {
        return good("device files", format!("{} can be opened", facts.device_nodes.len()));
    }
    // Without a driver there are none, which is no fault of theirs.
    let verdict = if facts.driver_module.is_ok() {
        Verdict::Note
    } else {
        Verdict::NoGpu
    };
    let todo = match verdict {
        Verdict::Note => "join the group that owns them (often video or render), or run nvidia-modprobe -u -c=0",
        _ => "they appear with the driver",
    };
    not("device files", verdict, refused.join("; "), todo)
}

pub(super) fn nvml(sample: &NvmlSample) -> Check {
    match &sample.state {
        NvmlState::Failed { error, hint } => not("NVML", Verdict::Bad, error.clone(), hint.clone()),
        NvmlState::Missing => {
            let (file, todo) = match named_nvml() {
                // The driver's own was not looked for.
                Some(file) => (
                    file,
                    "GPUMEM_NVML names it: correct that, or leave it out for the driver's own",
                ),
                None => (
                    "libnvidia-ml.so.1".to_owned(),
                    "it comes with the driver (libnvidia-compute, nvidia-utils); GPUMEM_NVML names another file",
                ),
            };
            not("NVML", Verdict::NoGpu, format!("{file} is not on this machine"), todo)
        }
        _ if sample.gpus.is_empty() => not(
            "NVML",
            Verdict::NoGpu,
            "works and lists no GPU",
            "check CUDA device rules of the container, or lspci",
        ),
        _ => {
            let names: Vec<String> = sample
                .gpus
                .iter()
                .map(|g| format!("GPU {} {}", g.index, g.name))
                .collect();
            let driver = sample
                .driver
                .as_ref()
                .map_or_else(String::new, |v| format!("driver {v}: "));
            good("NVML", format!("{driver}{}", names.join(", ")))
        }
    }
}

/// The dashboard needs no CUDA; programs that allocate do. The library is looked for, not loaded.
pub(super) fn cuda() -> Check {
    const NAME: &str = "libcuda.so.1";
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
    ];
    let dirs = std::env::split_paths(&listed).chain(usual.iter().map(PathBuf::from));
    if let Some(path) = dirs.map(|dir| dir.join(NAME)).find(|path| path.exists()) {
        return good("CUDA", path.display().to_string());
    }
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    if cache.windows(NAME.len()).any(|window| window == NAME.as_bytes()) {
        return good("CUDA", format!("{NAME} is known to the loader"));
    }
    let todo = "only programs and demos on a GPU need it; it comes with the driver (libnvidia-compute)";
    not("CUDA", Verdict::NoGpu, format!("{NAME} is not on this machine"), todo)
}

/// `pids` are those of the programs that NVML lists.
pub(super) fn channels(facts: &Facts, pids: &[u32]) -> Vec<Check> {
    let mut checks = vec![place(facts)];
    let sample = Channels::default().sample(pids, None);
    checks.push(seen(&sample));
    checks
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

pub(super) fn permissions(facts: &Facts) -> Check {
    let name = "permissions";
    let root = rustix::process::geteuid().is_root();
    let mut seen = vec![
        if root {
            "root: every user's channels"
        } else {
            "our own channels only"
        }
        .to_owned(),
    ];
    if let Ok(false) = facts.host_pids {
        seen.push("pids here are a container's own: NVML may list others".into());
    }
    match &facts.ptrace_scope {
        Ok(PtraceScope::AdminOnly | PtraceScope::Nobody) => seen.push("other processes' memory is closed".into()),
        Ok(_) => {}
        Err(why) => seen.push(why.clone()),
    }
    if let Ok(capabilities) = &facts.capabilities
        && capabilities.sys_ptrace
        && !root
    {
        seen.push("CAP_SYS_PTRACE".into());
    }
    let seen = seen.join("; ");
    if root {
        good(name, seen)
    } else {
        not(name, Verdict::Note, seen, "run as root to see other users' channels")
    }
}

pub(super) fn terminal(env: &Environment, colors: Colors, ascii: bool) -> Check {
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
        let seen = format!("stdout is no terminal; {term}, {colors}, {letters}");
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
