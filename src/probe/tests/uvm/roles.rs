//! The processes that this program plays beside the tests.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufRead;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use gpumem_fake_uvm::{Managed, fork_sleeper};
use gpumem_probe::{Root, Target, UvmWatch, Watching, run_helper};
use rustix::process::{PTracer, Pid, set_ptracer, setsid};
use rustix::termios::tcsetpgrp;

use crate::stage;

/// Plays the role that the arguments name. Returns `false` if they name none.
pub(crate) fn play(arguments: &[String]) -> bool {
    let Some((role, rest)) = arguments.split_first() else {
        return false;
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (role.as_str(), &rest[..]) {
        ("as-helper", [root]) => run_helper(&Root::at(root)).expect("the helper's descriptors"),
        ("as-target", [root, space, more @ ..]) => target(Path::new(root), space, more),
        ("as-idle", _) => target_without_driver(),
        ("as-watcher", [root]) => watcher(Path::new(root)),
        ("as-shell", [root, terminal]) => shell(root, terminal),
        _ => return false,
    }
    true
}

fn lines() -> impl Iterator<Item = String> {
    std::io::stdin().lock().lines().map_while(Result::ok)
}

/// Plays a process with managed memory, which ends with its standard input.
fn target(root: &Path, space: &str, more: &[&str]) {
    // Needed where Yama lets a process trace its own children only.
    let _ = set_ptracer(PTracer::Any);
    let lifetime = more
        .contains(&"lifetime")
        .then(|| Managed::open_lifetime(root).unwrap());
    if more.contains(&"only-lifetime") {
        let _open = Managed::open_lifetime(root).unwrap();
        return target_without_driver();
    }
    let managed = Managed::open(root, space.parse().unwrap()).unwrap();
    let mut memory = BTreeMap::new();
    println!("ready");
    for line in lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<u64>().unwrap();
        match words[0] {
            "map" => {
                memory.insert(number(1), managed.map(number(1), number(2)).unwrap());
            }
            "touch" => memory[&number(1)].touch(number(2)..number(3)),
            "leave" => memory[&number(1)].leave(number(2)..number(3)).unwrap(),
            "fork" => {
                println!("{}", fork_sleeper().unwrap());
                continue;
            }
            "exit" => exit(0),
            // The new program opens the driver at once and gets the same descriptor number.
            "exec-same" => replace("as-target", &[root.to_str().unwrap(), space]),
            "exec" => replace("as-idle", &[]),
            _ => panic!("{line}"),
        }
        println!("ok");
    }
    drop((lifetime, managed));
}

fn replace(role: &str, arguments: &[&str]) -> ! {
    let mut command = Command::new(std::env::current_exe().unwrap());
    panic!("{}", command.arg(role).args(arguments).exec());
}

fn target_without_driver() {
    let _ = set_ptracer(PTracer::Any);
    println!("ready");
    lines().for_each(drop);
}

/// Plays a process that watches others, as a dashboard does.
fn watcher(root: &Path) {
    stage::use_driver(root, None);
    let mut watch = UvmWatch::new(stage::helper);
    let mut targets: Vec<Target> = Vec::new();
    let orders = orders();
    println!("ready");
    loop {
        watch.wait(Duration::from_millis(10));
        let order = match orders.try_recv() {
            Ok(order) => order,
            Err(TryRecvError::Empty) => continue,
            Err(TryRecvError::Disconnected) => return,
        };
        match order.split_once(' ') {
            Some(("set", names)) => {
                targets = names.split(' ').map(parse).collect();
                watch.set(&targets, None);
                println!("ok");
            }
            _ => {
                let state = |target: &Target| match watch.state(*target) {
                    Some(Watching::On) => "on",
                    Some(Watching::Off(_)) => "off",
                    _ => "pending",
                };
                println!("{}", targets.iter().map(state).collect::<Vec<_>>().join(" "));
            }
        }
    }
}

fn orders() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || lines().for_each(|line| sender.send(line).unwrap()));
    receiver
}

fn parse(name: &str) -> Target {
    let (pid, start_time) = name.split_once(':').unwrap();
    Target {
        pid: pid.parse().unwrap(),
        start_time: start_time.parse().unwrap(),
    }
}

/// Plays a shell, which leads the session of a terminal and runs a watcher in the foreground.
fn shell(root: &str, terminal: &str) {
    setsid().unwrap();
    // The first terminal that a session's leader opens becomes the session's own.
    let terminal = File::options().read(true).write(true).open(terminal).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut watcher = command.args(["as-watcher", root]).process_group(0).spawn().unwrap();
    tcsetpgrp(&terminal, Pid::from_child(&watcher)).unwrap();
    let _ = watcher.wait();
}
