//! A fake driver and the processes around it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use gpumem_fake_uvm::FakeUvm;
use gpumem_probe::{Target, UvmWatch, Watching};
use rustix::process::{Pid, Signal, kill_process};

/// How long the tests wait for anything.
pub(crate) const LONG: Duration = Duration::from_secs(5);

thread_local! {
    /// The folder of this thread's driver, and the user that this thread's helpers run as.
    static HELPERS: RefCell<(PathBuf, Option<u32>)> = const { RefCell::new((PathBuf::new(), None)) };
}

/// Returns the command of a helper. Only that process has the fake driver in front of `ioctl`.
pub(crate) fn helper() -> Command {
    let (root, user) = HELPERS.with_borrow(Clone::clone);
    let mut program = std::env::current_exe().unwrap();
    let mut library = FakeUvm::library().unwrap();
    if let Some(user) = user {
        for path in [&mut program, &mut library] {
            *path = copy_into(&root, path);
        }
        let mut command = Command::new(program);
        command.arg("as-helper").arg(root).env("LD_PRELOAD", library);
        command.uid(user).gid(user);
        return command;
    }
    let mut command = Command::new(program);
    command.arg("as-helper").arg(root).env("LD_PRELOAD", library);
    command
}

/// Copies a file to a folder that another user can read, if it is not there. Another process makes the copy: children that other threads
/// start would inherit this process's open descriptor, and a file that is open for writing cannot be executed.
pub(crate) fn copy_into(root: &Path, file: &Path) -> PathBuf {
    let copy = root.join(file.file_name().unwrap());
    if !copy.exists() {
        let done = Command::new("cp").args([file, &copy]).status().unwrap();
        assert!(done.success());
    }
    copy
}

/// Sets where this thread's helpers find the driver.
pub(crate) fn use_driver(root: &Path, user: Option<u32>) {
    HELPERS.set((root.to_owned(), user));
}

pub(crate) struct Stage {
    pub(crate) fake: FakeUvm,
}

impl Stage {
    pub(crate) fn new(scenario: &str) -> Stage {
        let root = gpumem_fake_uvm::folder().expect("tmpfs on /dev/shm");
        let fake = FakeUvm::install(&root, "580.159.04").unwrap();
        fake.play(scenario).unwrap();
        use_driver(&root, None);
        Stage { fake }
    }

    pub(crate) fn root(&self) -> &Path {
        self.fake.root()
    }

    pub(crate) fn watch(&self) -> UvmWatch {
        UvmWatch::new(helper)
    }

    /// Starts a process that has managed memory.
    pub(crate) fn target(&self) -> Process {
        self.target_with(&["0"])
    }

    /// Starts such a process with a number of its own, and more arguments.
    pub(crate) fn target_with(&self, arguments: &[&str]) -> Process {
        Process::start("as-target", self.root(), arguments)
    }

    /// Starts a process that watches others.
    pub(crate) fn watcher(&self) -> Process {
        Process::start("as-watcher", self.root(), &[])
    }

    /// Returns the living helpers of all watchers of this driver.
    pub(crate) fn helpers(&self) -> Vec<u32> {
        let is_helper = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0).skip(1);
            words.next() == Some(b"as-helper") && words.next() == Some(self.root().as_os_str().as_encoded_bytes())
        };
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(is_helper).collect()
    }

    /// Counts the descriptors that a process has of one of the driver's files.
    pub(crate) fn descriptors(&self, pid: u32, device: &str) -> usize {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            return 0;
        };
        let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| *link == self.root().join(device)).count()
    }

    /// Waits until this many trackers are open. No watch of this thread runs meanwhile: it would end a helper that is late.
    pub(crate) fn wait_for_trackers(&self, count: usize) {
        wait_for("trackers", || self.fake.open_trackers().unwrap() == count);
    }

    /// Asserts that no request to the driver changes anything.
    fn check_requests(&self) {
        for request in self.fake.requests().unwrap() {
            let known = match request.tools {
                true => [56, 58, 60].contains(&request.number),
                false => [64, 67, 0x3000_0001].contains(&request.number),
            };
            assert!(known, "{request:?}");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_requests();
        }
        let _ = std::fs::remove_dir_all(self.root());
    }
}

/// A process that reads commands line by line, and answers each with a line.
pub(crate) struct Process {
    pub(crate) child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    start_time: u64,
}

impl Process {
    pub(crate) fn start(role: &str, root: &Path, arguments: &[&str]) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role).arg(root).args(arguments);
        Process::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Process {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut process = Process {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            start_time: start_time(child.id()),
            child,
        };
        assert_eq!(process.answer(), "ready");
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            pid: self.pid(),
            start_time: self.start_time,
        }
    }

    /// Sends a command that has no answer.
    pub(crate) fn order(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    pub(crate) fn say(&mut self, line: &str) -> String {
        self.order(line);
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn kill(&self) {
        signal(self.pid(), Signal::KILL);
    }

    /// Makes a watcher watch these processes, and waits until it does.
    pub(crate) fn watch(&mut self, targets: &[&Process]) {
        let names: Vec<String> = targets
            .iter()
            .map(|t| format!("{}:{}", t.pid(), t.start_time))
            .collect();
        self.say(&format!("set {}", names.join(" ")));
        let all_on = vec!["on"; targets.len()].join(" ");
        wait_for("all are watched", || self.say("states") == all_on);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the clock ticks from boot to the start of a process.
pub(crate) fn start_time(pid: u32) -> u64 {
    stat(pid, 22).unwrap().parse().unwrap()
}

/// Returns a field of `/proc/PID/stat` by its number. `None` for a process that is gone.
pub(crate) fn stat(pid: u32, field: usize) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(field - 3).map(str::to_owned)
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LONG, "{what}: not after {LONG:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs the watch until `done` holds.
pub(crate) fn run_until(watch: &mut UvmWatch, what: &str, mut done: impl FnMut(&UvmWatch) -> bool) {
    let begin = Instant::now();
    while !done(watch) {
        assert!(begin.elapsed() < LONG, "{what}: not after {LONG:?}: {watch:?}");
        watch.wait(Duration::from_millis(5));
    }
}

/// Runs the watch until a process is watched.
pub(crate) fn until_on(watch: &mut UvmWatch, target: Target) {
    run_until(watch, "it is watched", |watch| {
        watch.state(target) == Some(&Watching::On)
    });
}

/// Runs the watch until a process is not watched, and returns the reason.
pub(crate) fn why_off(watch: &mut UvmWatch, target: Target) -> String {
    let mut why = None;
    run_until(watch, "it is not watched", |watch| {
        if let Some(Watching::Off(reason)) = watch.state(target) {
            why = Some(reason.clone());
        }
        why.is_some()
    });
    why.unwrap()
}
