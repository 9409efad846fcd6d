//! The whole path: a program allocates, publishes to its channel, and reports and dashboard show it; also when it is killed.

use gpumem_channel::{BlockState, Reader};
use gpumem_tests::{Background, Ended, Terminal, World};
use serde_json::Value;

/// Returns the row of a process in the JSON document.
fn row(document: &Value, pid: u32) -> Value {
    let rows = document["processes"].as_array().unwrap();
    rows.iter().find(|row| row["pid"] == pid).unwrap().clone()
}

fn number(object: &Value, field: &str) -> u64 {
    object[field]
        .as_u64()
        .unwrap_or_else(|| unreachable!("{field} of {object}"))
}

/// Writes a size below 1 GiB as the table does.
fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    match mib >= 100.0 {
        true => format!("{mib:.0}M"),
        false => format!("{mib:.1}M"),
    }
}

/// Compares four views of one program whose memory does not change.
#[test]
fn program_channel_report_and_screen_agree() {
    let world = World::without_gpu();
    let (demo, says) = Background::fragmented(&world);
    let (reserved, allocated) = (number(&says, "reserved"), number(&says, "allocated"));
    let (cached, largest) = (number(&says, "cached"), number(&says, "largest_free"));
    assert_eq!(reserved, allocated + cached);

    let snapshot = Reader::open(&world.channel_files()[0]).unwrap().refresh().unwrap();
    assert_eq!((snapshot.identity.pid, snapshot.devices.len()), (demo.pid(), 1));
    let device = &snapshot.devices[0];
    let stats = device.stats.unwrap().all();
    let blocks = |state| {
        device
            .blocks()
            .filter(move |block| block.state == state)
            .map(|block| block.size)
    };
    let held: u64 = device.segments.iter().map(|segment| segment.segment.mapped).sum();
    assert_eq!((stats.reserved_bytes.current, held), (reserved, reserved));
    assert_eq!(
        (stats.allocated_bytes.current, blocks(BlockState::Allocated).sum()),
        (allocated, allocated)
    );
    assert_eq!(
        (blocks(BlockState::Free).sum::<u64>(), blocks(BlockState::Free).max()),
        (cached, Some(largest))
    );
    assert_eq!(stats.allocation.current, blocks(BlockState::Allocated).count() as u64);
    for segment in &device.segments {
        let tiles: u64 = segment.blocks.iter().map(|block| block.size).sum();
        assert!(segment.complete && tiles == segment.segment.size, "{segment:?}");
    }

    let document = world.json();
    let process = row(&document, demo.pid());
    assert_eq!(
        (&process["state"], &process["simulated"]),
        (&"publishing".into(), &true.into())
    );
    for figure in [
        "reserved",
        "allocated",
        "requested",
        "cached",
        "peak_reserved",
        "free_total",
        "largest_free",
    ] {
        assert_eq!(process["allocator"][figure], says[figure], "{figure}");
    }
    assert_eq!(process["allocator"]["active_blocks"], says["blocks"]);
    assert_eq!(
        process["allocator"]["external_fragmentation"],
        says["external_fragmentation"]
    );
    assert_eq!(process["allocator"]["map_complete"], true);
    let memory = &document["devices"][0]["memory"];
    assert_eq!(
        (number(memory, "allocated"), number(memory, "cached")),
        (allocated, cached)
    );
    assert_eq!(number(memory, "total"), reserved + number(memory, "not_published"));

    let mut terminal = Terminal::start(&world, &[], 160, 40);
    let shown = [
        demo.pid().to_string(),
        mib(reserved),
        mib(allocated),
        mib(cached),
        mib(largest),
    ];
    terminal.wait("the row with its figures", |screen| {
        screen
            .lines()
            .any(|line| shown.iter().all(|text| line.contains(text)) && line.contains("publishing"))
    });
    terminal.keys("\r");
    let count = format!(
        "{} blocks in {} segment",
        device.blocks().count(),
        device.segments.len()
    );
    terminal.wait_for(&[&count, "1 cell =", "tag", "kept", "Free blocks by size"]);
    assert_eq!(
        terminal.children(),
        Vec::<u32>::new(),
        "with something to show nothing is simulated"
    );
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
}

#[test]
fn figures_of_a_busy_program_always_add_up() {
    let world = World::without_gpu();
    let demo = Background::training(&world);
    let mut seen = Vec::new();
    for _ in 0..20 {
        let document = world.json();
        let process = row(&document, demo.pid());
        let figures = &process["allocator"];
        let (reserved, allocated) = (number(figures, "reserved"), number(figures, "allocated"));
        assert_eq!(reserved, allocated + number(figures, "cached"));
        assert!(number(figures, "requested") <= allocated && allocated <= number(figures, "peak_allocated"));
        assert!(number(figures, "largest_free") <= number(figures, "free_total"));
        let memory = &document["devices"][0]["memory"];
        assert_eq!(number(memory, "allocated") + number(memory, "cached"), reserved);
        assert_eq!(number(memory, "total"), reserved + number(memory, "not_published"));
        seen.push(allocated);
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 1, "it lives");
}

#[test]
fn a_killed_program_leaves_its_black_box() {
    let world = World::with_nvml("h100");
    let (mut demo, says) = Background::fragmented(&world);
    let mut terminal = Terminal::start(&world, &["--interval", "200ms"], 160, 40);
    let pid = demo.pid().to_string();
    let figures = ["reserved", "allocated", "cached", "largest_free"].map(|figure| mib(number(&says, figure)));
    let row_says = |screen: &str, state: &str| {
        let of_it = |line: &&str| line.contains(&pid) && line.contains(state);
        screen
            .lines()
            .filter(of_it)
            .any(|line| figures.iter().all(|text| line.contains(text)))
    };
    terminal.wait("it publishes", |screen| row_says(screen, "publishing"));
    demo.kill();
    terminal.wait("it died, with its last figures", |screen| row_says(screen, "died"));
    terminal.wait_for(&[&format!(
        "({pid}, SIM {pid}) died holding {:.1} MiB",
        number(&says, "allocated") as f64 / f64::from(1 << 20)
    )]);
    terminal.keys("\r");
    terminal.wait_for(&["blocks in 1 segment", "1 cell ="]);
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));

    let process = row(&world.json(), demo.pid());
    assert_eq!(process["state"], "died");
    assert_eq!(process["allocator"]["reserved"], says["reserved"]);
    assert_eq!(process["allocator"]["largest_free"], says["largest_free"]);

    // A dashboard that starts later mentions the black box, and lists it on request.
    let mut later = Terminal::start(&world, &[], 160, 40);
    later.wait_for(&["1 program that ended left its black box: b lists it", "GPU 0"]);
    assert!(!row_says(&later.text(), "died"));
    later.keys("b");
    later.wait("the black box", |screen| row_says(screen, "died"));
}

#[test]
fn a_program_that_closes_its_channel_exited_and_did_not_die() {
    let world = World::with_nvml("h100");
    let (mut demo, _) = Background::fragmented(&world);
    let terminal = Terminal::start(&world, &["--interval", "200ms"], 160, 40);
    let pid = demo.pid().to_string();
    let row_says = |screen: &str, state: &str| screen.lines().any(|line| line.contains(&pid) && line.contains(state));
    terminal.wait("it publishes", |screen| row_says(screen, "publishing"));
    demo.tell("quit");
    terminal.wait("it exited", |screen| row_says(screen, "exited"));
    assert!(!terminal.text().contains("died holding"));
    assert_eq!(row(&world.json(), demo.pid())["state"], "exited");
}
