//! No tracker stays open after its process has ended: the process's GPU memory would not be released.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use gpumem_probe::Watching;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::stage::{LONG, Process, Stage, run_until, signal, stat, until_on, wait_for};

/// How long a tracker may stay open after its process has ended. The helper checks every 50 ms whether a process was replaced, and the
/// watch gives the helper 50 ms. The rest is usually below 5 ms.
const LIMIT: Duration = Duration::from_millis(100);
/// How often a measurement is tried. A busy machine sometimes runs a process late, but a tracker that is leaked is open every time.
const TRIES: usize = 5;

/// Asserts that an attempt takes no longer than [`LIMIT`].
fn in_time(what: &str, attempt: impl Fn() -> Duration) {
    let mut times = Vec::new();
    while times.len() < TRIES {
        let time = attempt();
        if time <= LIMIT {
            return;
        }
        times.push(time);
    }
    panic!("{what}: a tracker was open for {times:?}");
}

/// Returns how long it takes until no process has the tools device open.
fn until_released(stage: &Stage, helpers: &[u32]) -> Duration {
    let begin = Instant::now();
    loop {
        let open = helpers
            .iter()
            .any(|pid| stage.descriptors(*pid, "dev/nvidia-uvm-tools") > 0);
        if !open && stage.fake.open_trackers().unwrap() == 0 {
            return begin.elapsed();
        }
        if begin.elapsed() > LONG {
            return begin.elapsed();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Killed,
    Exits,
    Replaced,
    ReplacedBySame,
    KilledAfterFork,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    Nothing,
    WatcherStopped,
    WatcherKilled,
    HelperStopped,
    HelperKilled,
}

pub(crate) fn ended_processes() {
    use End::*;
    use Meanwhile::*;
    for end in [Killed, Exits, Replaced, ReplacedBySame, KilledAfterFork] {
        for meanwhile in [Nothing, WatcherStopped, WatcherKilled, HelperStopped, HelperKilled] {
            in_time(&format!("{end:?}, {meanwhile:?}"), || time_of(end, meanwhile));
        }
    }
}

fn time_of(end: End, meanwhile: Meanwhile) -> Duration {
    let stage = Stage::new("");
    let (mut target, other, mut watcher) = (stage.target(), stage.target(), stage.watcher());
    watcher.watch(&[&target]);
    let helpers = stage.helpers();
    let [helper] = helpers[..] else {
        panic!("one helper: {helpers:?}")
    };
    assert_eq!(stage.fake.open_trackers().unwrap(), 1);
    let child: Option<u32> = (end == End::KilledAfterFork).then(|| target.say("fork").parse().unwrap());
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::WatcherStopped => {
            signal(watcher.pid(), Signal::STOP);
            wait_for("it is stopped", || stat(watcher.pid(), 3).as_deref() == Some("T"));
        }
        Meanwhile::WatcherKilled => watcher.kill(),
        Meanwhile::HelperStopped => signal(helper, Signal::STOP),
        Meanwhile::HelperKilled => signal(helper, Signal::KILL),
    }
    match end {
        End::Killed | End::KilledAfterFork => target.kill(),
        End::Exits => target.order("exit"),
        End::Replaced => target.order("exec"),
        End::ReplacedBySame => target.order("exec-same"),
    }
    let time = until_released(&stage, &helpers);
    // The watcher goes on with other processes, unless the helper was so late that the watch ended it.
    if meanwhile == Meanwhile::Nothing && time < LIMIT / 4 {
        watcher.watch(&[&other]);
        assert_eq!(stage.helpers(), helpers);
    }
    watcher.kill();
    wait_for("no helper is left", || stage.helpers().is_empty());
    if let Some(child) = child {
        signal(child, Signal::KILL);
    }
    time
}

pub(crate) fn watchers_that_are_killed() {
    in_time("the watcher is killed", || {
        let stage = Stage::new("");
        let (target, mut watcher) = (stage.target(), stage.watcher());
        watcher.watch(&[&target]);
        let helpers = stage.helpers();
        watcher.kill();
        let time = until_released(&stage, &helpers);
        wait_for("no helper is left", || stage.helpers().is_empty());
        time
    });
    // A watcher whose helper waits for a message only.
    let stage = Stage::new("");
    let idle = Process::start("as-idle", stage.root(), &[]);
    let mut watcher = stage.watcher();
    watcher.say(&format!("set {}:0", idle.pid()));
    wait_for("it has no managed memory", || watcher.say("states") == "off");
    assert_eq!(stage.helpers().len(), 1);
    watcher.kill();
    wait_for("no helper is left", || stage.helpers().is_empty());
}

/// A stopped helper does not notice that its watcher is gone, and no other process kills it.
pub(crate) fn stopped_helper_without_watcher() {
    in_time("both", || {
        let stage = Stage::new("");
        let (target, mut watcher) = (stage.target(), stage.watcher());
        watcher.watch(&[&target]);
        let helpers = stage.helpers();
        signal(watcher.pid(), Signal::STOP);
        wait_for("it is stopped", || stat(watcher.pid(), 3).as_deref() == Some("T"));
        signal(helpers[0], Signal::STOP);
        watcher.kill();
        let time = until_released(&stage, &helpers);
        wait_for("no helper is left", || stage.helpers().is_empty());
        time
    });
}

/// Ctrl-Z stops the watcher but not its helper. When the terminal is closed, both end.
pub(crate) fn terminal_stops_and_hangs_up() {
    in_time("the watcher is stopped by its terminal", || {
        let stage = Stage::new("");
        let target = stage.target();
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("as-shell").arg(stage.root()).arg(name);
        let mut shell = Process::of(command);
        shell.watch(&[&target]);
        let helpers = stage.helpers();
        let [helper] = helpers[..] else {
            panic!("one helper: {helpers:?}")
        };
        assert_eq!(stat(helper, 6), Some(helper.to_string()), "a session of its own");
        assert_eq!(stat(helper, 7).as_deref(), Some("0"), "no terminal");
        let watcher: u32 = stat(helper, 4).unwrap().parse().unwrap();
        assert_ne!(watcher, shell.pid());

        let mut keys = std::fs::File::from(terminal);
        wait_for("it is in the foreground", || {
            stat(watcher, 8) == Some(watcher.to_string())
        });
        keys.write_all(b"\x1a").unwrap();
        wait_for("it is stopped", || stat(watcher, 3).as_deref() == Some("T"));
        assert_ne!(stat(helper, 3).as_deref(), Some("T"));
        target.kill();
        let time = until_released(&stage, &helpers);
        assert_eq!(stage.helpers(), helpers);

        drop(keys);
        wait_for("no helper is left", || stage.helpers().is_empty());
        wait_for("no watcher is left", || {
            stat(watcher, 3).is_none_or(|state| state == "Z")
        });
        time
    });
}

/// The helper is asked to stop watching a process, and is stopped by a signal before it does.
pub(crate) fn one_that_is_no_longer_watched() {
    in_time("a helper that does not hear", || {
        let stage = Stage::new("");
        let (target, other) = (stage.target(), stage.target());
        let mut watch = stage.watch();
        watch.set(&[target.target(), other.target()], None);
        until_on(&mut watch, target.target());
        until_on(&mut watch, other.target());
        let helpers = stage.helpers();
        signal(helpers[0], Signal::STOP);
        watch.set(&[other.target()], None);
        assert_eq!(watch.state(target.target()), None);
        target.kill();
        let begin = Instant::now();
        run_until(&mut watch, "the helper is ended", |watch| {
            matches!(watch.state(other.target()), Some(Watching::Off(_)))
        });
        until_released(&stage, &helpers) + begin.elapsed()
    });
}
