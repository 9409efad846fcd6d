//! A panic anywhere in the dashboard: the terminal comes back, the message is read on it, and the demo ends.
//!
//! The shipped program has no way to make it panic. So this test is the program too: started in a terminal it runs the dashboard's
//! own main function, beside a thread that panics when a file appears, as a sampler may.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gpumem_tests::{Ended, Modes, Terminal, World};

/// Names the file whose appearance makes the dashboard panic.
const WHEN: &str = "GPUMEM_TESTS_PANIC_WHEN";

fn main() -> ExitCode {
    if let Some(file) = std::env::var_os(WHEN) {
        return dashboard(file.into());
    }
    if std::env::args().any(|arg| arg == "--list") {
        println!("panic: test");
    } else {
        gives_the_terminal_back_and_ends_the_demo();
        println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    }
    ExitCode::SUCCESS
}

/// What `gpumem-tui` does. Its demo is this program again, and does not panic.
fn dashboard(file: PathBuf) -> ExitCode {
    if !std::env::args().any(|arg| arg == "--headless") {
        std::thread::spawn(move || {
            while !file.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            panic!("this sampler is broken");
        });
    }
    gpumem_tui::run::main().into()
}

fn gives_the_terminal_back_and_ends_the_demo() {
    let world = World::without_gpu();
    let file = world.channels().join("panic");
    let us = std::env::current_exe().unwrap();
    for view in ["1", "2", "3", "7"] {
        let args = [
            "demo",
            "train",
            "--device",
            "sim",
            "--pace",
            "50ms",
            "--interval",
            "50ms",
        ];
        let environment = [(WHEN, file.to_str().unwrap())];
        let mut terminal = Terminal::start_program(&us, &world, &args, 80, 24, &environment);
        terminal.wait_for(&["Training step"]);
        let children = terminal.children();
        assert_eq!(children.len(), 1, "the demo");
        terminal.keys(view);
        assert!(terminal.modes().alternate && !terminal.line_mode_is_back());
        std::fs::write(&file, "").unwrap();
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
