use proptest::prelude::*;

use super::*;

#[test]
fn control_and_invisible_characters_are_replaced() {
    let harmful = [
        // Cc, Zl, Zp.
        '\0',
        '\t',
        '\n',
        '\r',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{9b}',
        '\u{2028}',
        '\u{2029}',
        // Direction.
        '\u{61c}',
        '\u{200e}',
        '\u{200f}',
        '\u{202a}',
        '\u{202e}',
        '\u{2066}',
        '\u{2069}',
        // Invisible.
        '\u{ad}',
        '\u{180e}',
        '\u{200b}',
        '\u{200d}',
        '\u{2060}',
        '\u{feff}',
        '\u{fff9}',
        '\u{fffb}',
        '\u{e0001}',
        '\u{e0041}',
        '\u{34f}',
        '\u{17b5}',
        '\u{1bca0}',
        '\u{1d173}',
        // Selectors and fillers.
        '\u{180b}',
        '\u{fe00}',
        '\u{fe0f}',
        '\u{e0100}',
        '\u{115f}',
        '\u{1160}',
        '\u{3164}',
        '\u{ffa0}',
        // Visible format characters, and noncharacters.
        '\u{600}',
        '\u{6dd}',
        '\u{70f}',
        '\u{8e2}',
        '\u{110bd}',
        '\u{13430}',
        '\u{fdd0}',
        '\u{ffff}',
        '\u{10fffe}',
    ];
    for c in harmful {
        assert_eq!(clean(&format!("a{c}é")), "a\u{fffd}é", "{c:?}");
    }
}

#[test]
fn names_in_all_scripts_are_kept() {
    let names = [
        "python3 train.py --lr=1e-3",
        "Größe ñ ¿que? naïve",
        "обучение ΔΣ",
        "学習　モデル 훈련",
        "تدريب שלום",
        "शिक्षा การฝึก",
        // Decomposed: Latin with two marks, Hangul from its letters, Hebrew with points.
        "e\u{302}\u{301}o\u{308}",
        "\u{1112}\u{1161}\u{11ab}",
        "שׁ\u{5b8}\u{5bc}לו\u{5b9}ם",
        "🚀 \u{e0b0} \u{2800}|",
        "",
    ];
    for name in names {
        assert_eq!(clean(name), name);
    }
}

#[test]
fn marks_are_bounded_and_need_a_base_character() {
    let marks = |n: usize| "\u{301}\u{489}".repeat(n).chars().take(n).collect::<String>();
    assert_eq!(clean(&format!("a{}", marks(4))), format!("a{}", marks(4)));
    assert_eq!(
        clean(&format!("a{}b", marks(60))),
        format!("a{}{}b", marks(4), "\u{fffd}".repeat(56))
    );
    assert_eq!(clean("\u{301}a"), "\u{fffd}a");
    assert_eq!(clean("\u{1b}\u{301}"), "\u{fffd}\u{301}");
    // Letters that are drawn on the next one.
    assert_eq!(
        clean(&format!("a{}b", "\u{d4e}".repeat(6))),
        format!("a{}\u{fffd}\u{fffd}b", "\u{d4e}".repeat(4))
    );
    assert_eq!(clean(&"\u{1161}".repeat(3)), "\u{fffd}".repeat(3));
}

#[test]
fn white_space_becomes_blanks_in_a_line() {
    for (bytes, limit, line) in [
        (
            &b"\x1b[31mred\x1b]0;t\x07\x9b\ttab\xff\x7f end\n"[..],
            100,
            "\u{fffd}[31mred\u{fffd}]0;t\u{fffd}\u{fffd} tab\u{fffd}\u{fffd} end",
        ),
        ("a\u{202e}b\u{ad}c\u{2028}d".as_bytes(), 10, "a\u{fffd}b\u{fffd}c d"),
        ("\u{a0}a\u{b}b\u{c}".as_bytes(), 10, "a b"),
        ("ääääää".as_bytes(), 3, "äää"),
        (b"", 3, ""),
    ] {
        assert_eq!(clean_line(bytes, limit), line);
    }
}

/// Unicode's general categories Cc, Cf, Zl and Zp, as of version 17.
const STEERING: [(u32, u32); 24] = [
    (0, 0x1f),
    (0x7f, 0x9f),
    (0xad, 0xad),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x180e, 0x180e),
    (0x200b, 0x200f),
    (0x2028, 0x202e),
    (0x2060, 0x2064),
    (0x2066, 0x206f),
    (0xfeff, 0xfeff),
    (0xfff9, 0xfffb),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0001, 0xe0001),
    (0xe0020, 0xe007f),
    // Noncharacters of the first plane.
    (0xfdd0, 0xfdef),
];

/// Generates bytes, and characters of which a third are control, invisible or combining ones.
fn foreign() -> impl Strategy<Value = Vec<u8>> {
    let steering = prop::sample::select(STEERING.to_vec()).prop_flat_map(|(from, to)| from..=to);
    let steering = steering.prop_map(|number| char::from_u32(number).unwrap_or(' '));
    let marks = prop::sample::select(vec![
        '\u{301}',
        '\u{20dd}',
        '\u{1161}',
        '\u{fe0f}',
        '\u{e0100}',
        '\u{3164}',
    ]);
    let mixed = prop::collection::vec(prop_oneof![any::<char>(), steering, marks], 0..60);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        mixed.prop_map(|chars| chars.into_iter().collect::<String>().into_bytes()),
    ]
}

fn steers(c: char) -> bool {
    STEERING.iter().any(|&(from, to)| (from..=to).contains(&u32::from(c)))
}

proptest! {
    #[test]
    fn cleaned_text_has_no_control_characters(bytes in foreign()) {
        let text = String::from_utf8_lossy(&bytes);
        let cleaned = clean(&text);
        prop_assert!(!cleaned.contains(steers) && !cleaned.contains(is_harmful), "{:?}", cleaned);
        prop_assert_eq!(cleaned.chars().count(), text.chars().count());
        prop_assert_eq!(clean(&cleaned), cleaned.clone());
        let runs = cleaned.split(|c| !is_mark(c)).map(|run| run.chars().count());
        prop_assert!(runs.max().unwrap_or(0) <= MARKS_MAX && !cleaned.starts_with(is_mark), "{:?}", cleaned);
        let line = clean_line(&bytes, 30);
        prop_assert!(!line.contains(steers) && line.chars().count() <= 30, "{:?}", line);
    }
}
