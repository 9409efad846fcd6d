//! Whatever the keyboard sends, nothing breaks, and `q` still quits.

use std::time::{Duration, Instant};

use gpumem_tests::{Ended, Random, Terminal, World, until};

/// The pids are above the largest that Linux assigns.
const THREE: &str = "gpu0.used=9G
gpu0.process=5000001:4G:compute
gpu0.process=5000002:3G:compute
gpu0.process=5000003:2G:compute";

const TURNED: &str = "gpu0.used=9G
gpu0.process=5000001:1G:compute
gpu0.process=5000002:2G:compute
gpu0.process=5000003:6G:compute";

/// Starts a dashboard and waits until it has drawn three processes.
fn dashboard(world: &World) -> Terminal {
    let terminal = Terminal::start(world, &["--interval", "200ms"], 120, 40);
    terminal.wait_for(&["5000001", "5000002", "5000003"]);
    terminal
}

/// Returns the three pids in the order in which they are listed.
fn order(screen: &str) -> Vec<u32> {
    let numbers = screen
        .lines()
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.parse().ok());
    numbers.filter(|n| (5_000_001..=5_000_003).contains(n)).collect()
}

/// Presses an idempotent key until it took effect. An unfinished sequence before it may take the first presses.
fn press_until(terminal: &mut Terminal, key: &str, shown: &str) {
    for _ in 0..100 {
        terminal.keys(key);
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_millis(300) {
            if terminal.text().contains(shown) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    unreachable!("{key} does not show {shown:?}:\n{}", terminal.text());
}

/// Waits until keys work again.
fn settle(terminal: &mut Terminal) {
    press_until(terminal, "3", "last 60 s");
    press_until(terminal, "1", "STATE");
}

/// Checks that keys work and that `q` quits.
fn is_sound(mut terminal: Terminal) {
    settle(&mut terminal);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn unbound_keys_do_nothing() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    let before = order(&terminal.text());
    terminal.keys("zZ@#$%^&*()[]{};:'\",<>`~89\x01\x02\x05\x06\x07\x0b\x0e\x10\x14\x18\x1c\x1d\x1e\x1f\x7f");
    terminal.keys("\x1bOs\x1b[15~\x1b[99~\x1b[3~\x1b[2;5H\x1b[1;5A\x1bx\x1b[I\x1b[O\x1b[200;1R\x1b[?62;c\x1b[0n");
    settle(&mut terminal);
    assert_eq!(order(&terminal.text()), before);
    is_sound(terminal);
}

#[test]
fn invalid_utf8_is_dropped() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    terminal.bytes(&[
        0xff, 0xfe, 0xc0, 0x80, 0xed, 0xa0, 0x80, 0xf5, 0x80, 0x80, 0x80, 0xe2, 0x82, b'z', 0xf0, 0x9f,
    ]);
    settle(&mut terminal);
    let mut random = Random::new(2);
    for _ in 0..50 {
        let chunk: Vec<u8> = std::iter::repeat_with(|| random.any() as u8)
            // Bytes above ASCII, and control characters that do nothing. The others are keys.
            .map(|byte| if byte < 0x80 { byte % 3 } else { byte })
            .take(200)
            .collect();
        terminal.bytes(&chunk.iter().map(|b| if *b == 3 { 0 } else { *b }).collect::<Vec<_>>());
    }
    settle(&mut terminal);
    is_sound(terminal);
}

#[test]
fn unfinished_sequences_block_nothing() {
    let world = World::with_nvml(THREE);
    for begun in [
        "\x1b[",
        "\x1b[<0;10",
        "\x1b[1;",
        "\x1bO",
        "\x1b[200",
        &("\x1b[".to_owned() + &"1;".repeat(9999)),
    ] {
        let mut terminal = dashboard(&world);
        terminal.keys(begun);
        settle(&mut terminal);
        is_sound(terminal);
    }
}

#[test]
fn pasted_text_presses_no_keys() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    let paste = format!("\x1b[200~{}\x1b[201~", "q3s?x\r\n".repeat(15_000));
    terminal.keys(&paste);
    settle(&mut terminal);
    assert!(
        terminal.text().contains("STATE"),
        "still the first view:\n{}",
        terminal.text()
    );
    // The filter takes a paste, as far as there is room.
    terminal.keys("/");
    terminal.keys(&format!("\x1b[200~{}\x1b[201~", "5000002 \x07\x1b[31m".repeat(9_000)));
    terminal.wait_for(&["/5000002"]);
    terminal.keys("\x15");
    terminal.keys("\x1b[200~5000002\x1b[201~\r");
    terminal.wait("only one row", |screen| order(screen) == [5_000_002]);
    terminal.keys("\x1b");
    terminal.wait("all of them", |screen| order(screen).len() == 3);
    is_sound(terminal);
}

/// Such as a paste in a terminal that does not support bracketed paste.
#[test]
fn a_flood_of_keys_is_worked_off() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    terminal.keys(&"jk\x1b[A\x1b[B+-23".repeat(8_000));
    is_sound(terminal);
}

#[test]
fn the_mouse_outside_of_the_screen_hits_nothing() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    for (x, y) in [
        (0, 0),
        (121, 41),
        (9999, 9999),
        (65535, 65535),
        (65536, 1),
        (1, 99_999_999),
    ] {
        for button in [0, 1, 2, 32, 35, 64, 65, 66, 128, 255, 99999] {
            terminal.keys(&format!("\x1b[<{button};{x};{y}M\x1b[<{button};{x};{y}m"));
        }
    }
    terminal.keys("\x1b[<;;M\x1b[<0M\x1b[<-1;-1;-1M\x1b[M !!");
    settle(&mut terminal);
    is_sound(terminal);
}

#[test]
fn the_mouse_clicks_tabs_and_rows() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    let at = |terminal: &Terminal, text: &str| {
        let screen = terminal.text();
        let (y, line) = (1..).zip(screen.lines()).find(|(_, line)| line.contains(text)).unwrap();
        (line[..line.find(text).unwrap()].chars().count() + 1, y)
    };
    let (x, y) = at(&terminal, "5000003");
    terminal.keys(&format!("\x1b[<0;{x};{y}M\x1b[<0;{x};{y}m"));
    until("the row is selected", || terminal.selected("5000003"));
    let (x, y) = at(&terminal, "3 Timeline");
    terminal.keys(&format!("\x1b[<0;{x};{y}M"));
    terminal.wait_for(&["last 60 s"]);
    is_sound(terminal);
}

#[test]
fn the_selection_stays_with_its_process_while_rows_move() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    assert_eq!(order(&terminal.text()), [5_000_001, 5_000_002, 5_000_003]);
    terminal.keys("j");
    until("the second is selected", || terminal.selected("5000002"));
    world.play(TURNED);
    terminal.wait("a new order", |screen| {
        order(screen) == [5_000_003, 5_000_002, 5_000_001]
    });
    until("still the same is selected", || {
        terminal.selected("5000002") && !terminal.selected("5000003")
    });
    // Sorting by another column moves the row.
    terminal.keys("s");
    terminal.wait_for(&["Sort by"]);
    terminal.keys("1");
    terminal.wait("by pid", |screen| {
        order(screen) == [5_000_001, 5_000_002, 5_000_003] && !screen.contains("Sort by")
    });
    until("still the same is selected", || {
        terminal.selected("5000002") && !terminal.selected("5000001")
    });
    terminal.keys("G");
    until("the last is selected", || terminal.selected("5000003"));
    // Filtered out, and shown again.
    terminal.keys("/5000001\r");
    terminal.wait("one row", |screen| order(screen) == [5_000_001]);
    terminal.keys("\x1b");
    terminal.wait("all rows", |screen| order(screen).len() == 3);
    until("still the last is selected", || terminal.selected("5000003"));
    // Gone for good: another one is selected.
    world.play("gpu0.process=5000001:1G:compute\ngpu0.process=5000002:2G:compute");
    terminal.wait("two rows", |screen| order(screen).len() == 2);
    until("another one is selected", || {
        terminal.selected("5000001") || terminal.selected("5000002")
    });
    world.play(THREE);
    is_sound(terminal);
}

#[test]
fn a_paused_view_does_not_change() {
    let world = World::with_nvml(THREE);
    let mut terminal = dashboard(&world);
    terminal.keys("p");
    terminal.wait_for(&["PAUSED"]);
    world.play(TURNED);
    terminal.keys("3");
    terminal.wait_for(&["last 60 s", "PAUSED"]);
    terminal.keys("1");
    terminal.wait("the old order", |screen| {
        order(screen) == [5_000_001, 5_000_002, 5_000_003]
    });
    terminal.keys("p");
    terminal.wait("the newest", |screen| {
        order(screen) == [5_000_003, 5_000_002, 5_000_001] && !screen.contains("PAUSED")
    });
    is_sound(terminal);
}
