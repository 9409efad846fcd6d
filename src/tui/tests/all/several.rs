//! Several dashboards, several publishers, and publishers that start, stop, end and restart.

use gpumem_tests::{Background, Ended, Terminal, World};
use rustix::process::Signal;
use serde_json::Value;

/// Returns the rows of a process.
fn rows(screen: &str, pid: u32) -> Vec<&str> {
    let pid = pid.to_string();
    let of_it = |line: &&str| line.split_whitespace().any(|word| word.trim_matches(['│', '▸']) == pid);
    screen.lines().filter(of_it).collect()
}

fn shows(screen: &str, pid: u32, state: &str) -> bool {
    rows(screen, pid).iter().any(|row| row.contains(state))
}

fn processes(world: &World) -> Vec<Value> {
    world.json()["processes"].as_array().unwrap().clone()
}

fn dashboard(world: &World) -> Terminal {
    Terminal::start(world, &["--interval", "100ms"], 120, 40)
}

#[test]
fn several_dashboards_show_one_publisher() {
    let world = World::with_nvml("h100");
    let (mut demo, says) = Background::fragmented(&world);
    let mut terminals = [dashboard(&world), dashboard(&world), dashboard(&world)];
    for terminal in &terminals {
        terminal.wait("the publisher", |screen| shows(screen, demo.pid(), "publishing"));
    }
    let [first, second, third] = &mut terminals;
    first.keys("q");
    assert_eq!(first.ended(), Ended::Code(0));
    second.signal(Signal::KILL);
    assert_eq!(second.ended(), Ended::Signal);
    assert_eq!(processes(&world)[0]["allocator"]["cached"], says["cached"]);
    // The program goes on, and the dashboard that is still open shows it.
    demo.tell("next");
    let ooms = demo.step()["stats"]["ooms"].clone();
    assert_eq!(ooms, 1);
    third.wait("the failure in its row", |screen| {
        screen.contains("ran out of memory") && shows(screen, demo.pid(), "OOM x1")
    });
}

#[test]
fn a_publisher_that_restarts_is_another_row() {
    let world = World::with_nvml("gpu0.used=4G");
    let mut terminal = dashboard(&world);
    terminal.wait_for(&["4.0 of 79.6 GiB used"]);
    let (mut demo, _) = Background::fragmented(&world);
    terminal.wait("the publisher", |screen| shows(screen, demo.pid(), "publishing"));
    demo.kill();
    terminal.wait("its end", |screen| shows(screen, demo.pid(), "died"));
    let (again, _) = Background::fragmented(&world);
    terminal.wait("both", |screen| {
        shows(screen, demo.pid(), "died") && shows(screen, again.pid(), "publishing")
    });
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    let states: Vec<_> = processes(&world).iter().map(|row| row["state"].clone()).collect();
    assert_eq!(states, ["publishing", "died"]);
}

/// A stopped process holds its memory like any other. It is shown as stopped, with its last figures.
#[test]
fn a_stopped_publisher_is_alive_until_it_is_killed() {
    let world = World::with_nvml("h100");
    let demo = Background::training(&world);
    let terminal = dashboard(&world);
    terminal.wait("the publisher", |screen| shows(screen, demo.pid(), "publishing"));
    demo.signal(Signal::STOP);
    terminal.wait("that it is stopped", |screen| shows(screen, demo.pid(), "stopped"));
    let stands_still = || {
        let row = &processes(&world)[0];
        (row["state"].clone(), row["allocator"].clone(), row["stopped"].clone())
    };
    let before = stands_still();
    assert_eq!((&before.0, &before.2), (&"publishing".into(), &true.into()));
    // Time for three samples.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(stands_still(), before);
    assert!(shows(&terminal.text(), demo.pid(), "stopped"));
    demo.signal(Signal::CONT);
    terminal.wait("it goes on", |screen| shows(screen, demo.pid(), "publishing"));
    let old = rows(&terminal.text(), demo.pid()).concat();
    terminal.wait("what it does", |screen| rows(screen, demo.pid()).concat() != old);
    demo.signal(Signal::STOP);
    demo.signal(Signal::KILL);
    terminal.wait("its end", |screen| shows(screen, demo.pid(), "died"));
}

#[test]
fn fifty_publishers_are_fifty_rows() {
    let world = World::with_nvml("h100");
    let demos: Vec<_> = (0..50).map(|_| Background::fragmented(&world)).collect();
    let found = processes(&world);
    assert_eq!(found.len(), 50);
    for (demo, says) in &demos {
        let row = found.iter().find(|row| row["pid"] == demo.pid()).unwrap();
        assert_eq!(row["state"], "publishing");
        assert_eq!(row["allocator"]["cached"], says["cached"]);
    }
    let mut terminal = Terminal::start(&world, &["--interval", "100ms", "--filter", "fragmentation"], 120, 80);
    let last = demos[49].0.pid();
    terminal.wait("the list", |screen| screen.matches("publishing").count() > 5);
    terminal.keys("/");
    terminal.keys(&format!("\x15{last}\r"));
    terminal.wait("only one of them", |screen| {
        shows(screen, last, "publishing") && screen.matches(" publishing").count() == 1
    });
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
