//! After a panic or an abort anywhere in the dashboard the terminal is restored and the demo ends. A panic's message is on the terminal.
//!
//! Nothing can make the shipped program panic on purpose. So this test is also the program: started in a terminal it runs the dashboard's
//! own main function, beside a thread that waits for a file and then fails as the file says, as a sampler might.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gpumem_tests::{Ended, Modes, Terminal, World, lives, until};

/// Names the file whose appearance makes the dashboard fail in one of the ways below.
const WHEN: &str = "GPUMEM_TESTS_PANIC_WHEN";

const PANIC: &str = "panic";
const ALLOCATION: &str = "allocation";
const STACK: &str = "stack";

fn main() -> ExitCode {
    if let Some(file) = std::env::var_os(WHEN) {
        return dashboard(file.into());
    }
    if std::env::args().any(|arg| arg == "--list") {
        println!("panic: test\nabort: test");
    } else {
        a_panic_restores_the_terminal_and_ends_the_demo();
        an_abort_restores_the_terminal_too();
        println!("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    }
    ExitCode::SUCCESS
}

/// Runs what `gpumem-tui` runs. Its demo is this program again, and does not panic.
fn dashboard(file: PathBuf) -> ExitCode {
    if !std::env::args().any(|arg| arg == "--headless") {
        std::thread::spawn(move || {
            let how = loop {
                match std::fs::read_to_string(&file) {
                    Ok(how) if !how.is_empty() => break how,
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            match how.as_str() {
                ALLOCATION => std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; 1 << 40]>()),
                STACK => println!("{}", deeper(1)),
                _ => panic!("this sampler is broken"),
            }
        });
    }
    gpumem_tui::run::main().into()
}

/// Overflows the stack.
fn deeper(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    match std::hint::black_box(depth) {
        0 => 0,
        _ => deeper(depth + 1) + frame[0],
    }
}

/// Starts a dashboard and waits until its demo runs.
fn started(world: &World, file: &Path) -> Terminal {
    let us = std::env::current_exe().unwrap();
    let args = "demo train --device sim --pace 50ms --interval 50ms";
    let args: Vec<&str> = args.split(' ').collect();
    let environment = [(WHEN, file.to_str().unwrap())];
    let terminal = Terminal::start_program(&us, world, &args, 80, 24, &environment);
    terminal.wait_for(&["Training step"]);
    terminal
}

fn an_abort_restores_the_terminal_too() {
    let world = World::without_gpu();
    let file = world.channels().join("abort");
    for how in [ALLOCATION, STACK] {
        let mut terminal = started(&world, &file);
        let children = terminal.children();
        assert_eq!(children.len(), 1, "the demo");
        std::fs::write(&file, how).unwrap();
        assert_eq!(terminal.ended(), Ended::Signal, "{how}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL, "{how}");
        assert!(terminal.line_mode_is_back(), "{how}");
        if how == STACK {
            let text = terminal.text();
            assert!(
                text.contains("has overflowed its stack"),
                "Rust's own message is missing:\n{text}"
            );
        }
        until("the demo is gone", || !lives(children[0]));
        std::fs::remove_file(&file).unwrap();
    }
}

fn a_panic_restores_the_terminal_and_ends_the_demo() {
    let world = World::without_gpu();
    let file = world.channels().join("panic");
    for view in ["1", "2", "3", "7"] {
        let mut terminal = started(&world, &file);
        let children = terminal.children();
        assert_eq!(children.len(), 1, "the demo");
        terminal.keys(view);
        assert!(terminal.modes().alternate && !terminal.line_mode_is_back());
        std::fs::write(&file, PANIC).unwrap();
        assert_eq!(terminal.ended(), Ended::Code(101), "view {view}");
        assert_eq!(terminal.modes(), Modes::OF_A_SHELL, "view {view}");
        assert!(terminal.line_mode_is_back(), "view {view}");
        let text = terminal.text();
        let message = text.contains("this sampler is broken") && text.contains(file_name(file!()));
        assert!(
            message && !text.contains("Training step"),
            "view {view}: on the shell's screen:\n{text}"
        );
        let demo = PathBuf::from(format!("/proc/{}", children[0]));
        assert!(!demo.exists(), "not even a zombie is left of the demo");
        std::fs::remove_file(&file).unwrap();
    }
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().unwrap().to_str().unwrap()
}
