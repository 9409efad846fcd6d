//! Names from other programs on a terminal: whatever they contain, they stay in their cells and control nothing.

use std::num::NonZero;

use gpumem_tests::{Terminal, VIEWS, World, publish_named, said, uuid_of};
use gpumem_text::clean;
use proptest::prelude::*;
use serde_json::Value;

/// Control characters, bidirectional marks, invisible characters, and fillers.
const HOSTILE: [char; 26] = [
    '\u{1b}',
    '\n',
    '\r',
    '\t',
    '\u{8}',
    '\u{7f}',
    '\u{85}',
    '\u{9b}',
    '\u{ad}',
    '\u{61c}',
    '\u{180e}',
    '\u{200b}',
    '\u{200d}',
    '\u{200f}',
    '\u{2028}',
    '\u{202e}',
    '\u{2066}',
    '\u{2069}',
    '\u{feff}',
    '\u{fff9}',
    '\u{fffb}',
    '\u{e0041}',
    '\u{fe0f}',
    '\u{e0100}',
    '\u{3164}',
    '\u{115f}',
];

fn is_hostile(c: char) -> bool {
    c.is_control() || HOSTILE.contains(&c)
}

/// Returns a terminal of two rows with text on each. The cursor is after the text of the first.
fn terminal(columns: u16) -> vt100::Parser {
    let mut terminal = vt100::Parser::new(NonZero::new(2).unwrap(), NonZero::new(columns).unwrap(), 0);
    terminal.process("\u{1b}[2;1Hbelow\u{1b}[1;1Hleft|".as_bytes());
    terminal
}

/// Returns the cells that [`terminal`] wrote, as they are now.
fn beside(terminal: &vt100::Parser) -> Vec<String> {
    terminal.screen().rows(0, 5).collect()
}

/// Writes a text character by character, and checks that the cursor only moves forwards in its row.
fn write(terminal: &mut vt100::Parser, text: &str) -> Result<(), TestCaseError> {
    // This terminal does not draw the replacement character. Others show it in one column.
    for c in text.replace('\u{fffd}', "?").chars() {
        let (_, from) = terminal.screen().cursor_position();
        terminal.process(c.encode_utf8(&mut [0; 4]).as_bytes());
        let (row, to) = terminal.screen().cursor_position();
        prop_assert!(row == 0 && to >= from, "{:?}: from {} to {}, {}", c, from, row, to);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_cursor_only_goes_forwards(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        chars in prop::collection::vec(prop_oneof![any::<char>(), prop::sample::select(&HOSTILE[..]), Just('\u{301}')], 0..100),
    ) {
        let texts = [String::from_utf8_lossy(&bytes).into_owned(), chars.into_iter().collect()];
        for text in texts {
            let mut terminal = terminal(1000);
            let before = beside(&terminal);
            write(&mut terminal, &clean(&text))?;
            prop_assert_eq!(beside(&terminal), before);
        }
    }
}

#[test]
fn every_character_takes_a_column() {
    let mut terminal = terminal(80);
    let before = beside(&terminal);
    for c in '\0'..=char::MAX {
        terminal.process(b"\x1b[1;6H");
        write(&mut terminal, &clean(c.encode_utf8(&mut [0; 4]))).unwrap();
        assert!(terminal.screen().cursor_position().1 > 5, "{c:?} takes no column");
    }
    assert_eq!(beside(&terminal), before);
}

/// Passes every string of a document to `see`, names of fields included.
fn texts(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(values) => values.iter().for_each(|value| texts(value, see)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            see(name);
            texts(value, see);
        }),
        _ => {}
    }
}

/// The program, its job, its device, its pool and its tag all have one name, made of characters that a terminal obeys or does not show.
#[test]
fn names_from_a_channel_are_always_cleaned() {
    for part in HOSTILE.chunks(7) {
        let name = format!("na{}me{}\u{301}", part.iter().collect::<String>(), "e\u{301}".repeat(5));
        let marks = format!("{name}{}", "\u{301}".repeat(20));
        let world = World::without_gpu();
        let _publisher = publish_named(&world, uuid_of(0), &marks);

        let document = world.json();
        let (mut seen, mut named) = (0, 0);
        texts(&document, &mut |text| {
            assert!(
                !text.contains(is_hostile) && !text.contains(&"\u{301}".repeat(5)),
                "{text:?}"
            );
            seen += 1;
            named += u32::from(text.contains("na\u{fffd}"));
        });
        assert!(seen > 20 && named >= 3, "{document}");

        let report = world.command(&["--once"]).output().unwrap();
        let report = said(&report.stdout) + &said(&report.stderr);
        assert!(report.contains("na\u{fffd}"), "{report}");
        let raw = |c: char| is_hostile(c) && c != '\n';
        assert!(
            !report.contains(raw) && !report.contains(&"\u{301}".repeat(5)),
            "{report:?}"
        );

        let mut terminal = Terminal::start(&world, &[], 140, 40);
        for (key, shown) in VIEWS.into_iter().take(3) {
            terminal.keys(key);
            terminal.wait_for(&[shown, "na"]);
        }
        // Everything that was written, the dashboard's own escape sequences included.
        let written = said(&terminal.raw());
        assert!(written.contains('\u{fffd}'), "{written:?}");
        let raw = |c: char| is_hostile(c) && !c.is_control();
        assert!(
            !written.contains(raw) && !written.contains(&"\u{301}".repeat(5)),
            "{written:?}"
        );
        terminal.keys("q");
    }
}
