//! Logs that were rewritten by other programs, are truncated, or have invalid rows.
#![allow(clippy::unwrap_used)]

use super::tests::{OURS, alloc, free, read};

/// They may be at most half of all rows.
#[test]
fn invalid_rows_are_left_out_and_counted() {
    let good = "a,1,5,0\nf,1\n";
    let trace = read(format!("{OURS}{good}odd\n\n\nodder\n")).unwrap();
    assert_eq!((trace.ops.len(), trace.odd.rows, trace.odd.cut), (2, 2, None));
    assert_eq!(trace.odd.first, "line 4, column 1: found \"odd\"; expected a or f");
    let refused = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(
        refused(&format!("{OURS}{good}odd\nodd\nodd\n")),
        "line 4, column 1: found \"odd\"; expected a or f; 3 of 5 rows are invalid, too many to replay the rest"
    );
    assert_eq!(
        refused(&format!("{OURS}a,1,0,0\nodd\n")),
        "line 3, column 1: found \"odd\"; expected a or f"
    );
    // Output of a program may be long and contain escape sequences.
    let trace = read(format!(
        "{OURS}{good}{}\n\x1b[31m\u{202e}\na,1,6,0\n",
        "x".repeat(1 << 20)
    ))
    .unwrap();
    assert_eq!((trace.ops.len(), trace.odd.rows), (3, 2));
    let long = "line 4, column 4097: the line is longer than 4096 bytes; expected its end";
    assert_eq!(trace.odd.first, long);
    let trace = read(format!("{OURS}{good}\x1b[31m\u{202e}\na,1,6,0\n")).unwrap();
    let escaped = "line 4, column 1: found \"\\u{1b}[31m\\u{202e}\"; expected a or f";
    assert_eq!(trace.odd.first, escaped);
    assert_eq!(
        refused(&format!("{OURS}{good}{}\n", "x".repeat((1 << 20) + 1))),
        "line 4, column 1048577: the line is longer than 1,048,576 bytes; expected its end"
    );
}

/// pandas, spreadsheets and people rewrite logs with other columns.
#[test]
fn columns_are_found_by_their_names() {
    let plain = read(format!("{OURS}a,7,100,3\nf,7\n")).unwrap();
    for text in [
        "op;id;bytes;stream\na;7;100;3\nf;7;;\n",
        "op\tid\tbytes\tstream\na\t7\t100\t3\nf\t7\n",
        ",op,id,bytes,stream\n0,a,7,100.0,3.0\n1,f,7,,\n",
        "\"OP\",\"Id\",\"bytes\",\"stream\"\n\"a\",\"7\",\"100\",\"3\"\n\"f\",\"7\"\n",
        "stream, bytes, op, id\n3, 100, a, 7\n,, f, 7\n",
        "\n\n op , id , bytes , stream \n a , 7 , 100 , 3 \n\n f , 7 \n\n",
    ] {
        assert_eq!(read(text).unwrap(), plain, "{text}");
    }
}

/// A program may print something before its log begins.
#[test]
fn header_is_found_after_other_lines() {
    let rows = "a,1,5,0\nf,1\n";
    let trace = read(format!("loading\n\ndone\n{OURS}{rows}")).unwrap();
    assert_eq!((trace.ops.len(), trace.odd.rows), (2, 2));
    assert!(
        trace.odd.first.starts_with("line 1, column 1: found \"loading\""),
        "{:?}",
        trace.odd
    );
    let before = |lines: usize| read(format!("{}{OURS}{rows}", "x\n".repeat(lines)));
    assert!(before(999).is_ok() && before(1000).is_err());
}

/// Blocks left by one log are freed before the next begins, which has its own ids.
#[test]
fn logs_in_sequence_are_separate_programs() {
    let (one, two) = ("a,1,100,0\na,2,50,0\na,3,0,0\n", "a,2,20,1\nf,2\na,1,30,0\n");
    let trace = read(format!("{OURS}{one}\u{feff}{OURS}{two}")).unwrap();
    let expected = [
        alloc(0, 0, 100),
        alloc(1, 0, 50),
        free(0),
        free(1),
        alloc(1, 1, 20),
        free(1),
        alloc(1, 0, 30),
    ];
    assert_eq!(trace.ops, expected);
    assert_eq!((trace.odd.more_logs, trace.assumed, trace.slots), (1, 2, 2));
    assert_eq!(
        (trace.peak_requested, trace.live_blocks, trace.live_bytes),
        (150, 1, 30)
    );
}
