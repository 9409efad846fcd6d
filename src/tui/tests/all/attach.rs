//! `attach` and `detach`: a program in Python that nobody prepared publishes, goes on as it would have, and keeps nothing of it.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use gpumem_channel::{EventKind, Reader};
use gpumem_tests::{Ended, Terminal, World, said, until};
use rustix::process::{Pid, Signal, kill_process};

/// A program that has loaded the stand-in for torch, and a file with the name of PyTorch's library. It does what its argument says until a
/// file appears, and says what came of it: results that depend on every register, and what it has loaded.
const PROGRAM: &str = r#"
import hashlib, mmap, os, select, signal, sys, threading, time
what, folder = sys.argv[1:]
# As programs have it that end quietly in a pipeline. Python itself ignores it.
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
library = os.path.join(folder, "ld-musl-x86_64.so.1" if what == "musl" else "libc10_cuda.so")
if what != "bare":
    with open(library, "wb") as file:
        file.write(b"\x7fELF" + bytes(8192))
    with open(library, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
import torch
if what != "early":
    torch.empty(1)
end = os.path.join(folder, "end")
read, write = os.pipe()
threads = threading.active_count()
def wait_for_end():
    while not os.path.exists(end): time.sleep(0.01)
    os.write(write, b"x")
    locked.release()
locked = threading.Lock()
locked.acquire()
threading.Thread(target=wait_for_end, daemon=True).start()
digest, sums, rounds = b"", 0.0, 0
poll = select.epoll()
poll.register(read, select.EPOLLIN)
print("ready", flush=True)
if what == "busy":
    while not os.path.exists(end) or rounds < 200:
        digest = hashlib.sha256(digest + bytes(20000)).digest()
        sums = sum(x * 1.000001 for x in range(1000))
        rounds += 1
elif what == "read":
    os.read(read, 1)
elif what == "epoll":
    sums = len(poll.poll())
elif what == "sleep":
    while not os.path.exists(end): time.sleep(0.5)
elif what == "lock":
    locked.acquire()
elif what == "forks":
    while not os.path.exists(end):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "a forked process died"
elif what == "execs":
    # Each program lives for a moment, and the last one waits for the end.
    left = int(os.environ.get("LEFT", "400"))
    if not os.path.exists(end) and left > 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1) if left == 400 else None
        os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, "LEFT": str(left - 1)})
    while not os.path.exists(end): time.sleep(0.01)
elif what == "fails":
    while not os.path.exists(end): time.sleep(0.01)
    try:
        torch.empty(1 << 45)
    except torch.OutOfMemoryError:
        pass
else:
    while not os.path.exists(end): time.sleep(0.01)
expected = b""
for _ in range(rounds):
    expected = hashlib.sha256(expected + bytes(20000)).digest()
assert digest == expected, "another digest"
assert sums in (0.0, 1, sum(x * 1.000001 for x in range(1000))), sums
ours = [name for name in sys.modules if "gpumem" in name] + [name for name in globals() if "gpumem" in name.lower()]
ours += [thread.name for thread in threading.enumerate() if "gpumem" in thread.name]
print("end", ours, len(sys.meta_path), flush=True)
"#;

/// A running program of the kind above.
struct Program {
    child: Child,
    folder: tempfile::TempDir,
}

impl Program {
    fn start(world: &World, python: &str, what: &str) -> Program {
        Program::start_below(world, &[python], what)
    }

    /// Starts a program as the last arguments of a command, which may run it as another user.
    fn start_below(world: &World, command: &[&str], what: &str) -> Program {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let script = folder.path().join("train.py");
        fs::write(&script, PROGRAM).unwrap();
        // Another user may not see the checkout.
        let standin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/standin");
        let copied = Command::new("cp")
            .arg("-r")
            .arg(standin)
            .arg(folder.path())
            .status()
            .unwrap();
        assert!(copied.success());
        let mut child = Command::new(command[0])
            .args(&command[1..])
            .arg(&script)
            .arg(what)
            .arg(folder.path())
            .envs(world.environment())
            .env("PYTHONPATH", folder.path().join("standin"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // From 3.12 on, a process with several threads warns when it forks, and these have several of their own.
            .env("PYTHONWARNINGS", "ignore::DeprecationWarning")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        // It says "end" later, through the same pipe.
        let mut byte = [0];
        let output = child.stdout.as_mut().unwrap();
        while !line.ends_with('\n') && output.read(&mut byte).unwrap() == 1 {
            line.push(byte[0] as char);
        }
        assert_eq!(line, "ready\n", "{command:?} {what}");
        Program { child, folder }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Numbers of its threads, open files and mappings that no file backs.
    fn kept(&self) -> (usize, usize, usize) {
        let proc = PathBuf::from(format!("/proc/{}", self.pid()));
        let count = |folder: &str| fs::read_dir(proc.join(folder)).unwrap().count();
        let maps = fs::read_to_string(proc.join("maps")).unwrap();
        let executable = maps
            .lines()
            .filter(|line| line.contains(" r-xp ") && !line.contains('/') && !line.contains('['));
        (count("task"), count("fd"), executable.count())
    }

    /// Tells it to end, and returns its last line.
    fn ends(mut self) -> String {
        fs::write(self.folder.path().join("end"), "").unwrap();
        let status = self.child.wait().unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        self.child.stdout.as_mut().unwrap().read_to_string(&mut out).unwrap();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut err).unwrap();
        assert!(status.success() && err.is_empty(), "{status}: {err}");
        out.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A test that fails leaves none behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(world: &World, arguments: &[&str]) -> Output {
    world.command(arguments).output().unwrap()
}

fn attach(world: &World, pid: u32) -> Output {
    run(world, &["attach", &pid.to_string()])
}

/// Attaches, and returns why that was refused.
fn refusal(world: &World, pid: u32) -> String {
    let output = attach(world, pid);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output.stdout));
    let text = said(&output.stderr);
    let why = text.strip_prefix(&format!("gpumem-tui: cannot attach to {pid}: "));
    why.unwrap_or_else(|| panic!("{text}")).trim_end().to_owned()
}

fn detach(world: &World, pid: u32) {
    let output = run(world, &["detach", &pid.to_string()]);
    assert!(output.status.success(), "{}", said(&output.stderr));
}

/// Returns the report, also if there is nothing to report on yet.
fn report(world: &World) -> serde_json::Value {
    serde_json::from_slice(&run(world, &["--json"]).stdout).unwrap()
}

/// Returns the row of a process.
fn row(world: &World, pid: u32) -> Option<serde_json::Value> {
    let rows = report(world)["processes"].as_array().cloned().unwrap_or_default();
    rows.into_iter().find(|row| row["pid"] == pid)
}

/// Whether this machine lets a test trace a program of its own.
fn may_trace(world: &World) -> bool {
    let program = Program::start(world, "python3", "idle");
    let output = run(world, &["attach", "--dry-run", &program.pid().to_string()]);
    let may = output.status.success();
    if !may {
        eprintln!("SKIPPED: {}", said(&output.stderr));
    }
    program.ends();
    may
}

#[test]
fn any_python_publishes_and_goes_on() {
    let world = World::without_gpu();
    if !may_trace(&world) {
        return;
    }
    // The distribution's Python is one program, without a shared library.
    let own = Some("/usr/bin/python3".to_owned()).filter(|path| Path::new(path).exists());
    for python in super::python::pythons(8).into_iter().chain(own) {
        for what in ["busy", "read", "epoll", "sleep", "lock"] {
            let program = Program::start(&world, &python, what);
            let pid = program.pid();
            let before = program.kept();
            let output = attach(&world, pid);
            assert!(output.status.success(), "{python} {what}: {}", said(&output.stderr));
            let text = said(&output.stdout);
            let by_itself = text.contains(": Python 3.14 ") || text.contains(": Python 3.15 ");
            let how = match what {
                "busy" if by_itself => "It was not stopped",
                "busy" => "while it ran",
                _ => "while it waited",
            };
            assert!(what == "sleep" || text.contains(how), "{python} {what}: {text}");
            assert_eq!(said(&output.stderr), "", "{python} {what}");
            until("it publishes", || {
                row(&world, pid).is_some_and(|row| row["allocator"]["reserved"] == 2_577_399_808u64)
            });
            assert_eq!(row(&world, pid).unwrap()["state"], "publishing");
            detach(&world, pid);
            until("it has no thread and no descriptor of ours", || {
                program.kept() == before
            });
            assert!(world.channel_files().is_empty(), "{python} {what}");
            let last = program.ends();
            assert!(last.starts_with("end []"), "{python} {what}: {last}");
        }
    }
}

#[test]
fn what_cannot_be_attached_to_says_why() {
    let world = World::without_gpu();
    if !may_trace(&world) {
        return;
    }
    assert_eq!(
        refusal(&world, 1 << 22),
        format!("there is no process {} here", 1 << 22)
    );
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    assert_eq!(
        refusal(&world, other.id()),
        "it is no CPython, or one without names of functions"
    );
    other.kill().unwrap();
    let gone = other.id();
    until("it is a zombie", || refusal(&world, gone) == "it has ended");
    other.wait().unwrap();

    let bare = Program::start(&world, "python3", "bare");
    assert_eq!(refusal(&world, bare.pid()), "it has not loaded PyTorch with CUDA");
    bare.ends();
    let musl = Program::start(&world, "python3", "musl");
    assert_eq!(refusal(&world, musl.pid()), "it runs on musl, which is not supported");
    musl.ends();
    let early = Program::start(&world, "python3", "early");
    assert_eq!(refusal(&world, early.pid()), "its torch has not initialised CUDA");
    early.ends();

    let program = Program::start(&world, "python3", "idle");
    program.signal(Signal::STOP);
    until("it is stopped", || gpumem_tests::stopped(program.pid()));
    assert!(refusal(&world, program.pid()).starts_with("it is stopped"));
    program.signal(Signal::CONT);
    assert!(attach(&world, program.pid()).status.success());
    assert!(refusal(&world, program.pid()).starts_with("it is attached to already"));
    detach(&world, program.pid());
    let again = run(&world, &["detach", &program.pid().to_string()]);
    assert_eq!(
        (again.status.code(), said(&again.stderr)),
        (
            Some(1),
            format!("gpumem-tui: nothing is attached to {}\n", program.pid())
        )
    );
    program.ends();
}

#[test]
fn dry_run_stops_nothing() {
    let world = World::without_gpu();
    let program = Program::start(&world, "python3", "idle");
    let output = run(&world, &["attach", "--dry-run", &program.pid().to_string()]);
    if output.status.success() {
        let text = said(&output.stdout);
        assert!(text.contains("Nothing was done") && text.contains("Python"), "{text}");
    }
    assert!(world.channel_files().is_empty());
    assert!(program.ends().starts_with("end []"));
}

/// `a` asks, attaches and shows the result in place, and what cannot be attached to says why.
#[test]
fn key_attaches_to_the_selected_process() {
    let world = World::with_nvml("gpus=1");
    if !may_trace(&world) {
        return;
    }
    let program = Program::start(&world, "python3", "sleep");
    let bare = Program::start(&world, "python3", "bare");
    let device = "gpus=1;gpu0.uuid=GPU-0b2c5a1e-7d43-4f0a-9c61-5e8f2a9b4d17;gpu0.used=8G";
    let (first, second) = (program.pid(), bare.pid());
    let before = program.kept();
    world.play(&format!(
        "{device};gpu0.process={first}:4G:compute;gpu0.process={second}:1G:compute"
    ));
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&[&first.to_string(), &second.to_string(), "a attach"]);
    terminal.keys("a");
    terminal.wait_for(&["stands still"]);
    terminal.keys("\r");
    // Reserved by PyTorch, as the stand-in has it.
    terminal.wait_for(&["publishes now", "publishing", "2.4G"]);
    terminal.keys("2");
    terminal.wait_for(&["PyTorch"]);
    terminal.keys("1j");
    until("the other process is selected", || {
        terminal.selected(&second.to_string())
    });
    terminal.keys("a\r");
    terminal.wait_for(&["it has not loaded PyTorch with CUDA"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    detach(&world, first);
    until("it has nothing of ours", || program.kept() == before);
    assert!(program.ends().starts_with("end []"));
    bare.ends();
}

/// The line of Python is found although nobody prepared for it, and its black box stays.
#[test]
fn failed_request_after_attaching_is_a_black_box() {
    let world = World::with_nvml("gpus=1;gpu0.uuid=GPU-0b2c5a1e-7d43-4f0a-9c61-5e8f2a9b4d17");
    if !may_trace(&world) {
        return;
    }
    let program = Program::start(&world, "python3", "fails");
    let pid = program.pid();
    assert!(attach(&world, pid).status.success());
    until("it publishes", || {
        row(&world, pid).is_some_and(|row| row["state"] == "publishing")
    });
    program.ends();
    until("it is a black box", || {
        row(&world, pid).is_some_and(|row| row["state"] != "publishing")
    });
    // The stand-in counts no failed requests, so there is no finding.
    let mut reader = Reader::open(&world.channel_files()[0]).unwrap();
    let snapshot = reader.refresh().unwrap();
    let events = reader.events().unwrap().events;
    let failed = events
        .iter()
        .find(|event| event.kind == EventKind::OutOfMemory)
        .unwrap();
    assert_eq!(failed.requested, 1 << 45);
    assert!(
        snapshot.string(failed.tag).starts_with("train.py:"),
        "{}",
        snapshot.string(failed.tag)
    );
    assert!(!snapshot.devices[0].segments.is_empty(), "the map is of that moment");
}

/// Root attaches to a process of another user, whose channel is that user's, and to one with other process ids and mounts.
#[test]
fn root_attaches_across_users_and_containers() {
    const PYTHON: &str = "/usr/bin/python3";
    let world = World::without_gpu();
    if !rustix::process::geteuid().is_root() || !Path::new(PYTHON).exists() || !may_trace(&world) {
        eprintln!("SKIPPED: needs root and {PYTHON}");
        return;
    }
    let found = |pid: u32| {
        // The default places: the test's own folder is not the other user's.
        let output = world
            .command(&["--json"])
            .env_remove("GPUMEM_DIR")
            .env_remove("XDG_RUNTIME_DIR")
            .output()
            .unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = document["processes"].as_array().unwrap().iter();
        rows.filter(|row| row["pid"] == pid && row["state"] == "publishing")
            .count()
    };
    let attach = |pid: u32| {
        let mut command = world.command(&["attach", &pid.to_string()]);
        command
            .env_remove("GPUMEM_DIR")
            .env_remove("XDG_RUNTIME_DIR")
            .output()
            .unwrap()
    };
    let uid = 1_500_000 + std::process::id() % 100_000;
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
    let other_user = ["setpriv", &ids[0], &ids[1], "--clear-groups", PYTHON];
    let container = ["unshare", "-mpf", "--kill-child", "--mount-proc", PYTHON];
    for (name, command) in [("user", other_user), ("container", container)] {
        let program = Program::start_below(&world, &command, "sleep");
        let pid = match name {
            "user" => program.pid(),
            _ => gpumem_tests::children(program.pid())[0],
        };
        // Whose arguments are those of its publisher, but who is another user.
        fs::write(program.folder.path().join("publisher"), "read line").unwrap();
        let mut pretender = Command::new("setpriv")
            .args([
                &format!("--reuid={}", uid + 1),
                &ids[1],
                "--clear-groups",
                "sh",
                "publisher",
            ])
            .arg(format!("--attached-to={pid}"))
            .current_dir(program.folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        until("it is taken for a publisher by its arguments", || {
            publisher_of(pid).is_some()
        });
        let output = attach(pid);
        assert!(output.status.success(), "{name}: {}", said(&output.stderr));
        // Looking into every container of a busy machine takes long.
        let begun = std::time::Instant::now();
        while found(pid) != 1 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(100));
        }
        until("it publishes", || found(pid) == 1);
        if name == "user" {
            let folder = PathBuf::from(format!("/dev/shm/gpumem-{uid}"));
            let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
            assert!(
                files.len() == 1 && files[0].metadata().unwrap().uid() == uid,
                "{files:?}"
            );
            detach(&world, pid);
            fs::remove_dir_all(folder).unwrap();
        } else {
            detach(&world, pid);
        }
        assert!(
            pretender.try_wait().unwrap().is_none(),
            "{name}: `detach` ended somebody else's process"
        );
        drop(pretender.stdin.take());
        pretender.wait().unwrap();
        assert!(program.ends().starts_with("end"), "{name}");
    }
}

/// A process keeps its number and its start when it replaces its program. What was found of the old one must not be used on the new one.
#[test]
fn programs_that_fork_or_exec_go_on() {
    let world = World::without_gpu();
    if !may_trace(&world) {
        return;
    }
    for what in ["forks", "execs"] {
        let program = Program::start(&world, "python3", what);
        let pid = program.pid();
        let threads = program.kept().0;
        let mut attached = 0;
        for _ in 0..30 {
            if attach(&world, pid).status.success() {
                attached += 1;
                // A program that was replaced meanwhile publishes no longer.
                let detached = run(&world, &["detach", &pid.to_string()]);
                assert!(
                    what == "execs" || detached.status.success(),
                    "{}",
                    said(&detached.stderr)
                );
            }
        }
        assert!(attached > 0 || what == "execs", "{attached}");
        until("our thread has ended", || program.kept().0 <= threads);
        let last = program.ends();
        assert!(what == "execs" || last.starts_with("end []"), "{last}");
    }
}

#[test]
fn traced_process_is_left_to_its_tracer() {
    let world = World::without_gpu();
    if !may_trace(&world) {
        return;
    }
    let program = Program::start(&world, "python3", "idle");
    let seize = "import ctypes, sys; libc = ctypes.CDLL(None); assert libc.ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0; print('traces', \
                 flush=True); sys.stdin.read()";
    let mut tracer = Command::new("python3")
        .args(["-c", seize, &program.pid().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(tracer.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "traces\n");
    let expected = format!("process {} traces it already, such as a debugger", tracer.id());
    assert_eq!(refusal(&world, program.pid()), expected);
    drop(tracer.stdin.take());
    tracer.wait().unwrap();
    // At once after it was ended, too.
    for _ in 0..3 {
        let output = attach(&world, program.pid());
        assert!(output.status.success(), "{}", said(&output.stderr));
        detach(&world, program.pid());
    }
    program.ends();
}

/// Whoever attaches or publishes may be killed, and the program, too, at any moment: the program goes on, or was killed by this test.
#[test]
fn programs_survive_whoever_attaches() {
    let world = World::without_gpu();
    if !may_trace(&world) {
        return;
    }
    let rounds: u64 = if std::env::var_os("GPUMEM_FULL").is_some() {
        1000
    } else {
        100
    };
    let mut program = Program::start(&world, "python3", "busy");
    let mut attached = 0;
    for round in 0..rounds {
        let pid = program.pid();
        let mut attaching = world.command(&["attach", &pid.to_string()]);
        let mut attaching = attaching.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // From before it begins until after it has ended.
        std::thread::sleep(Duration::from_micros(round * 7919 % 40_000));
        match round % 4 {
            0 => attaching.kill().unwrap(),
            1 => {
                program.child.kill().unwrap();
                program.child.wait().unwrap();
            }
            _ => {}
        }
        let output = BufReader::new(attaching.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .count();
        attached += usize::from(attaching.wait().unwrap().success() && output == 1);
        match round % 4 {
            1 => program = Program::start(&world, "python3", if round % 8 == 1 { "lock" } else { "busy" }),
            2 => {
                let _ = run(&world, &["detach", &pid.to_string()]);
            }
            3 => {
                if let Some(publisher) = publisher_of(pid) {
                    let _ = kill_process(publisher, Signal::KILL);
                }
            }
            _ => {}
        }
        let state = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap();
        assert!(
            !state.contains(") t ") && !state.contains(") Z "),
            "round {round}: {state}"
        );
    }
    assert!(attached > rounds as usize / 10, "{attached} of {rounds}");
    until("it is not attached to", || {
        let _ = run(&world, &["detach", &program.pid().to_string()]);
        publisher_of(program.pid()).is_none()
    });
    program.ends();
}

fn publisher_of(pid: u32) -> Option<Pid> {
    let wanted = format!("--attached-to={pid}\0");
    let mut entries = fs::read_dir("/proc").unwrap().flatten();
    let found = entries.find(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).ends_with(&wanted)
    });
    Pid::from_raw(found?.file_name().to_str()?.parse().ok()?)
}
