//! Bytes from a terminal: one dashboard takes all of them, beside channels with false figures, and then quits normally.

use std::time::{Duration, Instant};

use gpumem_tests::{Ended, Modes, Random, Terminal, World, publish, uuid_of};

use super::{Tally, mutate};

/// What terminals send: keys, mouse reports in two encodings, pastes, replies to queries.
const REAL: [&[u8]; 30] = [
    b"j",
    b"k",
    b"1",
    b"2",
    b"3",
    b"?",
    b"/",
    b"s",
    b"m",
    b"p",
    b"b",
    b"+-",
    b"\t",
    b"\x1b[A",
    b"\x1b[B",
    b"\x1b[1;5D",
    b"\x1b[5~",
    b"\x1b[15~",
    b"\x1bOP",
    b"\x1b[Z",
    b"\x1b[<0;10;5M",
    b"\x1b[<0;10;5m",
    b"\x1b[<64;40;12M",
    b"\x1b[M !!",
    b"\x1b[200~some text\r\x1b[201~",
    b"\x1b[I",
    b"\x1b[?62;22c",
    b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\xc3\xa9\xe2\x82\xac",
    b"\x1b[97;5u",
];

const PIECES: [&[u8]; 14] = [
    b"\x1b",
    b"\x1b[",
    b"\x1b[<",
    b"\x1bO",
    b";",
    b"65535",
    b"99999999999999999999",
    b"\x1b[200~",
    b"\x1b[201~",
    b"\x00",
    b"\xff",
    b"\xf0\x9f",
    b"M",
    b"~",
];

/// Keys that end or suspend the dashboard, and Enter, which starts a demo.
const LEFT_OUT: [u8; 5] = [b'q', 0x03, 0x1a, b'\r', b'\n'];
/// The number of sequences after which the test checks that keys still work.
const AT_ONCE: u64 = 100;

/// Sends `count` mutated sequences.
pub(crate) fn terminal_bytes(random: &mut Random, count: u64) -> Tally {
    let world = World::with_nvml("h100");
    let _publisher = publish(&world, uuid_of(0));
    let mut terminal = Terminal::start(&world, &["--interval", "200ms"], 120, 40);
    terminal.wait_for(&["publishing"]);
    let mut left = count;
    while left > 0 {
        let some = left.min(AT_ONCE);
        for _ in 0..some {
            let mut bytes = Vec::new();
            for _ in 0..1 + random.below(3) {
                bytes.extend(REAL[random.below(REAL.len() as u64) as usize]);
            }
            mutate(random, &mut bytes, &PIECES);
            bytes.retain(|byte| !LEFT_OUT.contains(byte));
            terminal.bytes(&bytes);
        }
        settle(&mut terminal);
        left -= some;
    }
    terminal.keys("q");
    assert_eq!(terminal.ended(), Ended::Code(0));
    assert_eq!(terminal.modes(), Modes::OF_A_SHELL);
    assert!(terminal.line_mode_is_back());
    Tally {
        inputs: count,
        read: count,
        runs: 1,
        ..Tally::default()
    }
}

/// Leaves whatever has begun: a paste, a sequence, the filter's input line, popups. Then waits until keys work.
fn settle(terminal: &mut Terminal) {
    for (key, shown) in [("3", "last "), ("1", "STATE")] {
        let start = Instant::now();
        while !terminal.text().contains(shown) {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{key} does not show {shown:?}:\n{}",
                terminal.text()
            );
            for bytes in ["\x1b[201~", "\x1b", "\x1b", key] {
                terminal.keys(bytes);
                // The dashboard waits a short time for the rest of an unfinished sequence.
                std::thread::sleep(Duration::from_millis(60));
            }
        }
    }
}
