//! `gpumem-tui triage`, and view 6 of the dashboard.

use std::io::Write;
use std::process::{Output, Stdio};

use gpumem_tests::{Background, Ended, Terminal, World, said};

const FRAGMENTED: &str = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 3 has a total capacity of \
    79.18 GiB of which 3.29 GiB is free. Including non-PyTorch memory, this process has 75.51 GiB memory in use. Of the allocated memory \
    50.50 GiB is allocated by PyTorch, and 24.50 GiB is reserved by PyTorch but unallocated.\n";

fn triage(world: &World, arguments: &[&str], input: &str) -> Output {
    let mut command = world.command(&[&["triage"], arguments].concat());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may have ended without reading it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn piped_log_is_judged_and_the_exit_code_says_so() {
    let world = World::without_gpu();
    let output = triage(&world, &[], FRAGMENTED);
    let text = said(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{text}");
    for wanted in [
        "Fragmentation: enough is free, but not in one piece",
        "Line 1, rank 3: ",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    let output = triage(&world, &["-"], "epoch 1 loss 0.31\n");
    assert_eq!(output.status.code(), Some(0));
    assert!(said(&output.stdout).starts_with("Nothing failed for lack of memory"));
}

#[test]
fn file_is_judged_and_json_has_the_words_that_programs_look_for() {
    let world = World::without_gpu();
    let file = world.channels().join("log");
    std::fs::write(&file, FRAGMENTED).unwrap();
    let path = file.to_str().unwrap();
    let output = triage(&world, &["--json", path], "");
    assert_eq!(output.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["verdict"], &report["allocator"]),
        (&"fragmentation".into(), &"device".into())
    );
    assert_eq!(report["schema"], "gpumem-triage/1");
    assert_eq!(report["evidence"]["rank"], 3);
    assert_eq!(report["figures"]["requested"], 8u64 << 30);
    for (arguments, code, words) in [
        (&["/nonexistent"][..], 1, "/nonexistent: No such file"),
        (&["--pid", "1"], 1, "no process 1 uses a GPU"),
        (&["--pid", "1", path], 2, "cannot be used with"),
    ] {
        let output = triage(&world, arguments, "");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(said(&output.stderr).contains(words), "{}", said(&output.stderr));
    }
}

/// The process that ran out is the one that is shown, and its allocator's own advice comes first.
#[test]
fn view_and_command_judge_a_process_that_ran_out() {
    let world = World::without_gpu();
    let (mut background, _) = Background::fragmented(&world);
    // The next step asks for more than any free block has.
    background.tell("next");
    background.step();
    let pid = background.pid().to_string();
    let output = triage(&world, &["--pid", &pid], "");
    let text = said(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("What helps, in order"), "{text}");
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&[&pid]);
    terminal.keys("6");
    terminal.wait_for(&[
        "Triage: ",
        &format!("({pid})"),
        "1 process ran out of memory",
        "What helps, in order",
    ]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn pasted_text_is_judged_in_view_6_and_does_nothing_elsewhere() {
    let world = World::without_gpu();
    let mut terminal = Terminal::start(&world, &["--device", "sim"], 120, 40);
    terminal.wait_for(&["1 Overview"]);
    let paste = format!("\x1b[200~{FRAGMENTED}\x1b[201~");
    terminal.bytes(paste.as_bytes());
    terminal.keys("6");
    terminal.wait_for(&["Paste it here"]);
    terminal.bytes(paste.as_bytes());
    terminal.wait_for(&["Triage: pasted text", "Fragmentation: enough is free"]);
    terminal.keys("x");
    terminal.wait_for(&["Paste it here"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
