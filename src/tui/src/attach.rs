//! `gpumem-tui attach` and `detach`: a PyTorch process that nobody prepared publishes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gpumem_probe::attach::{Attach, Injected, Route};
use gpumem_text::{clean, clean_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::AttachCli;
use crate::python;

/// How long the text may take to say whether it publishes: a main thread that computes may not come back to the interpreter before.
const ANSWER: Duration = Duration::from_secs(20);
/// The answer is a line.
const LONGEST_ANSWER: usize = 1024;
/// How long a publisher may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// The argument that names the process of a publisher.
const ATTACHED_TO: &str = "--attached-to";

/// Attaches to a process, or says what that would do. Returns the exit code.
///
/// For a millisecond the process has other registers than its own, and would die if whoever restores them did. So a process in a session
/// of its own does that: it does not end with this one, with the terminal, or by Ctrl-C.
pub(crate) fn attach(args: &AttachCli) -> u8 {
    let pid = args.pid;
    let done = match args.own_session || args.dry_run {
        true => {
            if args.own_session {
                let _ = rustix::process::setsid();
            }
            try_attach(pid, args.dry_run)
        }
        false => match in_own_session(pid) {
            Ok(code) => return code,
            Err(error) => Err(format!("cannot start a process for it: {error}")),
        },
    };
    // Nobody may be there to read it any more.
    match done {
        Ok(said) => {
            let _ = writeln!(io::stdout(), "{said}");
            0
        }
        Err(why) => {
            say(&format!("cannot attach to {pid}: {}", clean(&why)));
            1
        }
    }
}

/// Runs this command in a process of its own, and returns its exit code.
fn in_own_session(pid: u32) -> io::Result<u8> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["attach", "--own-session", &pid.to_string()])
        .stdin(Stdio::null());
    let status = command.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "gpumem-tui: {text}");
}

fn try_attach(pid: u32, dry_run: bool) -> Result<String, String> {
    let target = Attach::examine(pid)?;
    if !target.uses_torch() {
        return Err("it has not loaded PyTorch with CUDA".to_owned());
    }
    if publisher_of(pid).is_some() {
        return Err(format!(
            "it is attached to already: `gpumem-tui detach {pid}` ends that"
        ));
    }
    let python = match target.version() {
        Some((major, minor)) => format!("Python {major}.{minor} ({})", clean(target.python())),
        None => format!("Python 3.8 to 3.10 ({})", clean(target.python())),
    };
    if dry_run {
        let unless = match target.version() {
            Some(version) if version >= (3, 14) => " if it waits, not at all if it runs",
            _ => "",
        };
        return Ok(format!(
            "{pid}: {python} with PyTorch. Attaching would stop its main thread for about a millisecond{unless}, and start a thread that \
             publishes. Nothing was done."
        ));
    }
    let [before, after] = python::attach(target.own_pid());
    let injected = target.inject([&before, &after])?;
    let answer = answer(&injected.socket);
    // A pending call may still come: its text has to stay.
    if answer.is_ok() {
        let taken = target.take_back(&injected);
        if let Err(why) = taken {
            say(&format!("some kilobytes stay mapped in {pid}: {}", clean(&why)));
        }
    }
    match answer?.as_str() {
        "yes" => {}
        other => {
            return Err(other
                .strip_prefix("no: ")
                .unwrap_or("its answer is not understood")
                .to_owned());
        }
    }
    let how = how(&injected);
    publish(pid, injected.socket)?;
    Ok(format!(
        "{pid}: {python} publishes now; gpumem-tui shows it. {how} `gpumem-tui detach {pid}` ends it."
    ))
}

fn how(injected: &Injected) -> String {
    let milliseconds = injected.stopped.as_secs_f64() * 1e3;
    match injected.route {
        Route::PendingCall => format!("Its main thread stood still for {milliseconds:.1} ms, while it ran."),
        Route::Thread => format!("Its main thread stood still for {milliseconds:.1} ms, while it waited."),
        Route::Remote => "It was not stopped (PEP 768).".to_owned(),
    }
}

/// Reads the line in which the text says whether it publishes.
fn answer(socket: &OwnedFd) -> Result<String, String> {
    let until = Instant::now() + ANSWER;
    let mut file = File::from(socket.try_clone().map_err(|error| error.to_string())?);
    let mut line = Vec::new();
    // What comes after the line is the publisher's.
    let mut byte = [0];
    while line.len() < LONGEST_ANSWER {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)).map_err(|error| error.to_string())?;
        if ready == 0 {
            return Err(
                "its main thread has not returned to the interpreter yet; the request stays pending. Try again"
                    .to_owned(),
            );
        }
        match file.read(&mut byte) {
            Ok(1) if byte[0] == b'\n' => return Ok(clean_line(&line, LONGEST_ANSWER)),
            Ok(1) => line.push(byte[0]),
            _ => return Err("it has closed the connection".to_owned()),
        }
    }
    Err("its answer is too long".to_owned())
}

/// Starts the process that holds the channel, as the user of the process: a channel is that of its file's owner.
fn publish(pid: u32, socket: OwnedFd) -> Result<(), String> {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map_err(|_| "it has ended".to_owned())?;
    let program = std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let output = socket.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["publisher".to_owned(), format!("{ATTACHED_TO}={pid}")])
        .stdin(socket)
        .stdout(output)
        .stderr(Stdio::null())
        .current_dir("/");
    if owner.uid() != rustix::process::geteuid().as_raw() {
        // Its folder of channels is found by its user id. That of this user is not its.
        command.gid(owner.gid()).uid(owner.uid()).env_remove("XDG_RUNTIME_DIR");
    }
    command
        .spawn()
        .map_err(|error| format!("cannot start the publisher: {error}"))?;
    // `detach` finds it by its arguments, which it has a moment after it was started.
    wait_until(|| publisher_of(pid).is_some());
    Ok(())
}

/// Ends what [`attach`] began. Returns the exit code.
pub(crate) fn detach(pid: u32) -> u8 {
    let Some(publisher) = publisher_of(pid) else {
        say(&format!("nothing is attached to {pid}"));
        return 1;
    };
    if let Err(error) = kill_process(publisher, Signal::TERM) {
        say(&format!("cannot end the publisher of {pid}: {error}"));
        return 1;
    }
    if wait_until(|| publisher_of(pid).is_none()) {
        let _ = writeln!(io::stdout(), "{pid} publishes no longer.");
        return 0;
    }
    say(&format!("the publisher of {pid} does not end"));
    1
}

/// Waits until something holds. Returns whether it does in time.
fn wait_until(holds: impl Fn() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// Finds the publisher of a process that was attached to. It runs as the user of the process: anybody can give a process these arguments.
fn publisher_of(pid: u32) -> Option<Pid> {
    let wanted = format!("{ATTACHED_TO}={pid}");
    let user = |pid: i64| std::fs::metadata(format!("/proc/{pid}")).ok().map(|about| about.uid());
    let owner = user(pid.into())?;
    let entries = std::fs::read_dir("/proc").ok()?;
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.find(|publisher| {
        let mut line = Vec::new();
        let read =
            File::open(format!("/proc/{publisher}/cmdline")).and_then(|file| file.take(4096).read_to_end(&mut line));
        let mut arguments = line.split(|byte| *byte == 0).skip(1);
        read.is_ok()
            && arguments.next() == Some(b"publisher")
            && arguments.next() == Some(wanted.as_bytes())
            && user((*publisher).into()) == Some(owner)
    });
    Pid::from_raw(found?)
}

/// Returns a flag that is set when this process is told to end.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // Then the signal ends the process at once, and its channel looks like that of a program that was killed.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}
