//! What happened before the dashboard began.

use std::time::Duration;

use gpumem_channel::{Event, EventKind};
use gpumem_tests::{Ended, Terminal, World, fail, publish_named, uuid_of};

const MIB: u64 = 1 << 20;

/// A program was killed after it ran out of memory, and nobody was looking.
#[test]
fn dead_program_tells_its_story() {
    let world = World::with_nvml("gpus=1;gpu0.used=2G");
    let mut publisher = publish_named(&world, uuid_of(0), "night");
    for (kind, size) in [(EventKind::SegmentAlloc, 512 * MIB), (EventKind::Alloc, 384 * MIB)] {
        publisher.event(&Event {
            kind,
            size,
            ..Event::default()
        });
    }
    std::thread::sleep(Duration::from_millis(1500));
    fail(&mut publisher, 3, 218 * MIB);
    // A copy is not locked, as the file of a killed program.
    let file = world.channel_files().remove(0);
    let name = file.file_stem().unwrap().to_str().unwrap();
    let (process, _) = name.rsplit_once('-').unwrap();
    std::fs::copy(&file, world.channels().join(format!("{process}-65000.gpumem"))).unwrap();
    std::fs::remove_file(&file).unwrap();
    drop(publisher);
    let mut terminal = Terminal::start(&world, &[], 120, 40);
    terminal.wait_for(&["died"]);
    terminal.keys("3");
    terminal.wait("events of the past", |screen| {
        [
            "died holding 384 MiB",
            "tried to allocate 218 MiB",
            "publishers only until",
        ]
        .iter()
        .all(|text| screen.contains(text))
    });
    // From what failed to that moment.
    terminal.keys("6");
    terminal.wait_for(&["Triage: "]);
    terminal.keys("t");
    terminal.wait_for(&["out of memory: tried to allocate 218 MiB"]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}
