#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

/// A child process that is killed at the end of the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a shell that runs `script` with these arguments; its standard input is a pipe. Spawning returns before the
/// kernel has finished `exec`, so this waits for the command line, or the end, of the shell.
fn shell(script: &str, arguments: &[&[u8]]) -> Guard {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).stdin(Stdio::piped());
    command.args(arguments.iter().map(|a| OsStr::from_bytes(a)));
    let child = Guard(command.spawn().unwrap());
    let cmdline = format!("/proc/{}/cmdline", child.0.id());
    wait(child.0.id(), |stat| {
        stat.state == 'Z' || (stat.comm == "sh" && !std::fs::read(&cmdline).unwrap().is_empty())
    });
    child
}

fn command_of(processes: &mut Processes, pid: u32) -> String {
    processes.look_up(&[pid])[0].as_ref().unwrap().command.clone()
}

/// Waits until the condition holds for a process.
fn wait(pid: u32, what: impl Fn(&Stat) -> bool) {
    let start = Instant::now();
    while !what(&Stat::read(&Root::default(), pid).unwrap()) {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn process_is_described() {
    let child = shell("read line", &[b"--x", b""]);
    let pid = child.0.id();
    let mut processes = Processes::default();
    let found = processes.look_up(&[pid, u32::MAX]);
    let process = found[0].as_ref().unwrap();
    assert_eq!((process.pid, process.command.as_str()), (pid, "sh -c read line sh --x"));
    assert_eq!(process.label, "sh -c");
    assert_eq!(
        process.start_time,
        Stat::read(&Root::default(), pid).unwrap().start_time
    );
    assert_eq!(process.user, processes.users.name(rustix::process::getuid().as_raw()));
    assert_eq!(process.parent, Some(std::process::id()));
    assert!(process.rss > 0);
    assert_eq!(found[1], Err(NoProcess::NotHere));
}

#[test]
fn stopped_process_is_reported() {
    use rustix::process::{Pid, Signal, kill_process};
    let child = shell("read line", &[]);
    let pid = child.0.id();
    let mut processes = Processes::default();
    let mut stopped = || processes.look_up(&[pid])[0].as_ref().unwrap().stopped;
    assert!(!stopped());
    for (signal, is) in [(Signal::STOP, true), (Signal::CONT, false)] {
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
        wait(pid, |stat| (stat.state == 'T') == is);
        assert_eq!(stopped(), is);
    }
}

#[test]
fn reused_pid_never_shows_the_old_command() {
    let pid = std::process::id();
    let mut processes = Processes::default();
    processes.look_up(&[pid]);
    let known = processes.known.get_mut(&pid).unwrap();
    known.start_time -= 1;
    known.command = "old".into();
    assert!(command_of(&mut processes, pid).contains("gpumem_probe"));
}

#[test]
fn pid_reused_while_it_is_read_is_not_here() {
    let pid = std::process::id();
    let mut before = Stat::read(&Root::default(), pid).unwrap();
    before.start_time -= 1;
    assert_eq!(Processes::default().learn(pid, &before).err(), Some(NoProcess::NotHere));
}

#[test]
fn exec_of_another_program_changes_the_command_at_once() {
    let mut child = shell("read line; exec cat -u", &[]);
    let pid = child.0.id();
    let mut processes = Processes::default();
    assert_eq!(command_of(&mut processes, pid), "sh -c read line; exec cat -u sh");
    std::io::Write::write_all(child.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    wait(pid, |stat| {
        stat.comm == "cat" && !std::fs::read(format!("/proc/{pid}/cmdline")).unwrap().is_empty()
    });
    assert_eq!(command_of(&mut processes, pid), "cat -u");
}

#[test]
fn unchanged_name_is_read_again_after_some_look_ups() {
    let pid = std::process::id();
    let mut processes = Processes::default();
    processes.look_up(&[pid]);
    let known = processes.known.get_mut(&pid).unwrap();
    (known.command, known.rss) = ("before".into(), 1);
    assert_eq!(command_of(&mut processes, pid), "before");
    let current = |p: &Process| p.command.contains("gpumem_probe") && p.rss > 1;
    assert!((0..MAX_AGE).any(|_| current(processes.look_up(&[pid])[0].as_ref().unwrap())));
}

#[test]
fn ended_and_unrequested_processes_are_forgotten() {
    let child = shell("read line", &[]);
    let (pid, own) = (child.0.id(), std::process::id());
    let mut processes = Processes::default();
    processes.look_up(&[pid, own]);
    drop(child);
    assert_eq!(processes.look_up(&[pid, own])[0], Err(NoProcess::NotHere));
    assert_eq!(processes.known.len(), 1);
    processes.look_up(&[]);
    assert!(processes.known.is_empty());
}

#[test]
fn command_is_cleaned_and_limited() {
    let child = shell(
        "read line",
        &[b"\x1b]0;owned\x07\xff", b"two\nlines", &vec![b'a'; 100_000]],
    );
    let command = command_of(&mut Processes::default(), child.0.id());
    assert_eq!(command.chars().count(), 512);
    assert!(command.starts_with("sh -c read line sh \u{fffd}]0;owned\u{fffd}\u{fffd} two lines aaa"));
    assert!(!command.chars().any(char::is_control));
}

#[test]
fn zombie_is_shown_by_its_cleaned_name() {
    let child = shell(r"printf ') Z 1 (\n\033[2J' > /proc/$$/comm", &[]);
    wait(child.0.id(), |stat| stat.state == 'Z');
    let found = Processes::default().look_up(&[child.0.id()]);
    let process = found[0].as_ref().unwrap();
    assert_eq!(process.command, "[) Z 1 ( \u{fffd}[2J] <defunct>");
    assert_eq!(process.rss, 0);
}

#[test]
fn process_without_arguments_is_its_name_in_brackets() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("proc/7")).unwrap();
    std::fs::write(dir.path().join("proc/7/cmdline"), b"").unwrap();
    let stat = Stat {
        comm: "kworker/0".into(),
        state: 'I',
        parent: 2,
        start_time: 1,
    };
    let named = command::read(&Root::at(dir.path()), 7, &stat).unwrap();
    assert_eq!(
        (named.command.as_str(), named.label.as_str()),
        ("[kworker/0]", "kworker/0")
    );
}

#[test]
fn this_process_is_found_by_its_real_pid() {
    let found = Processes::default().look_up(&[std::process::id()]);
    let process = found[0].as_ref().unwrap();
    assert!(
        process.rss > 0 && process.start_time > 0 && process.command.contains("gpumem_probe"),
        "{process:?}"
    );
}
