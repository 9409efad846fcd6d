//! A rehearsal of 3 AM: 8 GPUs, 35 processes, one of which runs out of memory. Culprit, cause and fix in three keys at most, at 80x24.

use gpumem_tests::{Ended, Terminal, World, fail, publish_named, uuid_of};

const MIB: u64 = 1 << 20;

#[test]
fn culprit_cause_and_fix_take_three_keys() {
    let uuids = (0..8).map(|gpu| format!("gpu{gpu}.used=70G"));
    let scenario: Vec<String> = std::iter::once("gpus=8".to_owned()).chain(uuids).collect();
    let world = World::with_nvml(&scenario.join(";"));
    let mut publishers: Vec<_> = (0..35)
        .map(|number| publish_named(&world, uuid_of(number % 8), &format!("job-{number}")))
        .collect();
    let mut terminal = Terminal::start(&world, &[], 80, 24);
    terminal.wait_for(&["of 35"]);
    fail(&mut publishers[29], 82, 218 * MIB);
    // Without a key: the culprit is the first row, whatever its size.
    terminal.wait("the culprit on top", |screen| {
        let mut lines = screen
            .lines()
            .skip_while(|line| !line.contains("JOB/COMMAND") && !line.contains("COMMAND"));
        lines
            .nth(1)
            .is_some_and(|row| row.contains("job-29") && row.contains("OOM x82"))
    });
    // One key: cause and fix.
    terminal.keys("6");
    terminal.wait_for(&[
        "Triage: ",
        "on GPU 5",
        "asked for 218.0 MiB",
        "What helps, in order",
        "1. ",
    ]);
    // The finding leads there, too, and to the blocks.
    terminal.keys("1m\r");
    terminal.wait_for(&["Triage: ", "on GPU 5"]);
    terminal.keys("\r");
    terminal.wait_for(&["1 cell = "]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
