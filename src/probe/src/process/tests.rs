#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use super::*;

/// A process in a fake `/proc`.
fn put(root: &Path, pid: u32, comm: &str, start: u64, cmdline: &[u8]) {
    let dir = root.join(format!("proc/{pid}"));
    fs::create_dir_all(&dir).unwrap();
    let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 3 0\n");
    fs::write(dir.join("stat"), stat).unwrap();
    fs::write(dir.join("status"), "Uid:\t1000\t1000\t1000\t1000\n").unwrap();
    fs::write(dir.join("cmdline"), cmdline).unwrap();
}

fn tree() -> (tempfile::TempDir, Processes) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    fs::write(dir.path().join("etc/passwd"), "ml:x:1000:1000::/:\n").unwrap();
    let processes = Processes::new(Root::at(dir.path()));
    (dir, processes)
}

#[test]
fn a_process_is_described() {
    let (dir, mut processes) = tree();
    put(dir.path(), 7, "py thon)", 99, b"python\0serve.py\0--x\0");
    let page = rustix::param::page_size() as u64;
    let expected = Process {
        pid: 7,
        user: "ml".into(),
        command: "python serve.py --x".into(),
        start_time: 99,
        rss: 3 * page,
    };
    assert_eq!(processes.look_up(&[7, 8]), [Ok(expected), Err(NoProcess::NotHere)]);
}

#[test]
fn a_reused_pid_never_shows_the_old_command() {
    let (dir, mut processes) = tree();
    put(dir.path(), 7, "python", 99, b"old\0");
    processes.look_up(&[7]);
    put(dir.path(), 7, "python", 100, b"new\0");
    assert_eq!(processes.look_up(&[7])[0].as_ref().unwrap().command, "new");
}

#[test]
fn a_program_that_starts_another_is_renamed_at_once_and_one_that_renames_itself_soon() {
    let (dir, mut processes) = tree();
    put(dir.path(), 7, "sh", 99, b"sh\0-c\0");
    processes.look_up(&[7]);
    put(dir.path(), 7, "python", 99, b"python\0");
    assert_eq!(processes.look_up(&[7])[0].as_ref().unwrap().command, "python");
    put(dir.path(), 7, "python", 99, b"VLLM::Worker\0");
    let looks = (0..=COMMAND_AGE).find(|_| processes.look_up(&[7])[0].as_ref().unwrap().command == "VLLM::Worker");
    assert!(looks.is_some());
}

#[test]
fn what_is_not_asked_for_is_forgotten() {
    let (dir, mut processes) = tree();
    for pid in 1..=50 {
        put(dir.path(), pid, "x", 1, b"x\0");
    }
    processes.look_up(&(1..=50).collect::<Vec<_>>());
    processes.look_up(&[3]);
    assert_eq!(processes.known.len(), 1);
}

#[test]
fn a_command_is_cleaned_and_limited() {
    let (dir, mut processes) = tree();
    put(
        dir.path(),
        7,
        "x",
        1,
        &[b"\x1b]0;owned\x07\xff\0".as_slice(), &vec![b'a'; 6 << 20]].concat(),
    );
    let command = processes.look_up(&[7])[0].as_ref().unwrap().command.clone();
    assert_eq!(command.chars().count(), 512);
    assert!(!command.chars().any(char::is_control));
}

#[test]
fn without_arguments_the_name_stands_in_brackets() {
    let (dir, mut processes) = tree();
    put(dir.path(), 7, "kworker/0", 1, b"");
    assert_eq!(processes.look_up(&[7])[0].as_ref().unwrap().command, "[kworker/0]");
}

#[test]
fn hostile_trees_are_errors() {
    let (dir, mut processes) = tree();
    let proc = dir.path().join("proc");
    for (pid, stat) in [(1, &b"\xff\0\x1b"[..]), (2, b""), (3, b"3 (x) S")] {
        put(dir.path(), pid, "x", 1, b"");
        fs::write(proc.join(pid.to_string()).join("stat"), stat).unwrap();
    }
    put(dir.path(), 4, "x", 1, b"");
    fs::remove_file(proc.join("4/stat")).unwrap();
    std::os::unix::fs::symlink("stat", proc.join("4/stat")).unwrap();
    put(dir.path(), 5, "x", 1, b"");
    fs::write(proc.join("5/stat"), vec![b'('; 10 << 20]).unwrap();
    put(dir.path(), 6, "x", 1, b"");
    fs::remove_file(proc.join("6/stat")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, proc.join("6/stat"), rustix::fs::Mode::RUSR).unwrap();
    for found in processes.look_up(&[1, 2, 3, 4, 5, 6]) {
        assert!(matches!(found, Err(NoProcess::Failed(_))), "{found:?}");
    }
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
