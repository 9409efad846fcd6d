use super::*;

fn keys(bytes: &[u8]) -> Vec<Key> {
    let events = Parser::default().feed(bytes);
    events
        .into_iter()
        .filter_map(|e| if let Event::Key(key) = e { Some(key) } else { None })
        .collect()
}

#[test]
fn sequences_of_each_key_are_recognized() {
    let cases: &[(&[u8], Key)] = &[
        (b"q", Key::Char('q')),
        (b"?", Key::Char('?')),
        ("é".as_bytes(), Key::Char('é')),
        ("😀".as_bytes(), Key::Char('😀')),
        (b"\r", Key::Enter),
        (b"\t", Key::Tab),
        (b"\x7f", Key::Backspace),
        (b"\x03", Key::Ctrl('c')),
        (b"\x1a", Key::Ctrl('z')),
        (b"\x1b[A", Key::Up),
        (b"\x1bOB", Key::Down),
        (b"\x1b[1;5C", Key::Right),
        (b"\x1b[H", Key::Home),
        (b"\x1b[1~", Key::Home),
        (b"\x1b[4~", Key::End),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6;2~", Key::PageDown),
        (b"\x1b[3~", Key::Delete),
        (b"\x1b[Z", Key::BackTab),
        (b"\x1bOP", Key::F(1)),
        (b"\x1bOM", Key::Enter),
        (b"\x1b[15~", Key::F(5)),
        (b"\x1b[21~", Key::F(10)),
    ];
    for (bytes, key) in cases {
        assert_eq!(keys(bytes), [*key], "{:?}", String::from_utf8_lossy(bytes));
        // The same key arrives byte by byte over a slow line.
        let mut parser = Parser::default();
        let slow: Vec<Event> = bytes.iter().flat_map(|b| parser.feed(&[*b])).collect();
        assert!(
            matches!(slow.as_slice(), [Event::Key(k)] if k == key),
            "{bytes:?} byte by byte: {slow:?}"
        );
        assert!(parser.patience().is_none());
    }
}

#[test]
fn lone_escape_is_a_key_only_if_nothing_follows() {
    let mut parser = Parser::default();
    assert!(parser.feed(b"\x1b").is_empty());
    assert_eq!(parser.patience(), Some(PATIENCE));
    assert!(matches!(parser.give_up(), Some(Event::Key(Key::Esc))));
    assert!(parser.feed(b"\x1b[").is_empty());
    assert!(parser.give_up().is_none(), "half a sequence is no key");
    assert_eq!(keys(b"\x1bq"), [Key::Esc, Key::Char('q')]);
}

#[test]
fn several_keys_in_one_read_keep_their_order() {
    assert_eq!(
        keys(b"a\x1b[Ab\x1b[99zc\x1b[6~"),
        [Key::Char('a'), Key::Up, Key::Char('b'), Key::Char('c'), Key::PageDown]
    );
}

#[test]
fn mouse_reports_are_parsed_or_ignored() {
    let at = |bytes: &[u8]| match Parser::default().feed(bytes).as_slice() {
        [Event::Mouse(m)] => Some((m.action, m.x, m.y)),
        _ => None,
    };
    assert_eq!(at(b"\x1b[<0;5;3M"), Some((MouseAction::Click, 4, 2)));
    assert_eq!(at(b"\x1b[<0;300;200M"), Some((MouseAction::Click, 299, 199)));
    assert_eq!(at(b"\x1b[<32;1;1M"), Some((MouseAction::Drag, 0, 0)));
    assert_eq!(at(b"\x1b[<64;1;1M"), Some((MouseAction::WheelUp, 0, 0)));
    assert_eq!(at(b"\x1b[<69;1;1M"), Some((MouseAction::WheelDown, 0, 0)), "with shift");
    for ignored in [
        &b"\x1b[<0;5;3m"[..],
        b"\x1b[<2;5;3M",
        b"\x1b[<0;0;3M",
        b"\x1b[<0;5M",
        b"\x1b[<0;99999;1M",
    ] {
        assert_eq!(at(ignored), None, "{:?}", String::from_utf8_lossy(ignored));
    }
}

#[test]
fn paste_is_one_event_however_it_arrives() {
    let bytes = b"\x1b[200~qq\x1b[Ak\x1b[201~x";
    for chunk in 1..bytes.len() {
        let mut parser = Parser::default();
        let events: Vec<Event> = bytes.chunks(chunk).flat_map(|c| parser.feed(c)).collect();
        assert!(
            matches!(events.as_slice(), [Event::Paste(text), Event::Key(Key::Char('x'))] if text == "qq\x1b[Ak"),
            "in chunks of {chunk}: {events:?}"
        );
    }
    let mut parser = Parser::default();
    parser.feed(b"\x1b[200~");
    for _ in 0..=MAX_PASTE / 1000 {
        parser.feed(&[b'x'; 1000]);
    }
    let events = parser.feed(PASTE_END);
    assert!(matches!(events.as_slice(), [Event::Paste(text)] if text.len() == MAX_PASTE));
}

#[test]
fn noise_never_panics_and_leaves_no_backlog() {
    let alphabet = b"\x1b[<;0159~MmO\xc3\xff\x00q";
    let mut seed = 1u64;
    let mut parser = Parser::default();
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        parser.feed(&[alphabet[(seed >> 33) as usize % alphabet.len()]]);
        assert!(parser.bytes.len() <= MAX_SEQUENCE + 1 || parser.paste.is_some());
    }
}

/// Terminals without SGR reports send these.
#[test]
fn older_mouse_reports_are_ignored() {
    let reports: [&[u8]; 5] = [
        b"\x1b[M !!",
        b"\x1b[M\x20\x0d\x0d",
        b"\x1b[Mqqq",
        b"\x1b[M\x1b[A",
        b"\x1b[32;10;20M",
    ];
    for report in reports {
        let bytes = [report, b"j"].concat();
        assert_eq!(keys(&bytes), [Key::Char('j')], "{report:?}");
        for split in 1..report.len() {
            let mut parser = Parser::default();
            assert!(parser.feed(&bytes[..split]).is_empty(), "{report:?} {split}");
            assert!(parser.patience().is_some(), "{report:?} {split}");
            let rest = parser.feed(&bytes[split..]);
            assert!(
                matches!(rest.as_slice(), [Event::Key(Key::Char('j'))]),
                "{report:?} {split}: {rest:?}"
            );
        }
    }
    let mut parser = Parser::default();
    assert!(parser.feed(b"\x1b[M !").is_empty());
    assert_eq!(parser.patience(), Some(X10_PATIENCE), "its last byte may be late");
    assert!(parser.give_up().is_none());
}
