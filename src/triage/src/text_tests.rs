#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn sizes_are_read_with_either_decimal_sign() {
    const GIB: u64 = 1 << 30;
    for (number, unit, expected) in [
        ("2.00", "gib", 2 * GIB),
        ("1024", "mib", GIB),
        ("1900,00", "mib", 1900 << 20),
        ("2,147,483,648", "bytes", 2 * GIB),
        ("1,024.50", "mib", (1024 << 20) + (1 << 19)),
        ("0,125", "gib", GIB / 8),
        ("0", "bytes", 0),
        ("12", "gb", 12 * GIB),
        ("3.", "b", 3),
        ("9223372036854775807", "bytes", i64::MAX as u64),
        ("99999999999999999999999", "gib", u64::MAX),
    ] {
        assert_eq!(bytes(number, unit), Some(expected), "{number} {unit}");
    }
    for number in ["", ".", ",", "1.2.3"] {
        assert_eq!(bytes(number, "gib"), None, "{number}");
    }
}

#[test]
fn prefixes_of_log_collectors_are_removed() {
    for (line, source, rank, time, rest) in [
        ("[rank3]: CUDA", "[rank3]", Some(3), None, "CUDA"),
        ("12: CUDA", "12", Some(12), None, "CUDA"),
        ("> > CUDA", "", None, None, "CUDA"),
        (
            "(EngineCore_DP0 pid=88) ERROR 10-02 11:00:44 [core.py:708] CUDA",
            "(EngineCore_DP0 pid=88)",
            None,
            Some("10-02 11:00:44"),
            "CUDA",
        ),
        (
            "2026-11-28T03:12:01.5Z stderr F [rank0]: CUDA",
            "[rank0]",
            Some(0),
            Some("2026-11-28T03:12:01.5"),
            "CUDA",
        ),
        ("worker-1  | CUDA", "worker-1", None, None, "CUDA"),
        (
            "Nov 28 03:12:01 node7 train[71]: CUDA",
            "",
            None,
            Some("Nov 28 03:12:01"),
            "CUDA",
        ),
        ("[ 1234.567890] CUDA", "", None, None, "CUDA"),
        ("CUDA: out", "", None, None, "CUDA: out"),
    ] {
        let (prefix, found) = split(line);
        let source_found = prefix.source.as_deref().unwrap_or_default();
        assert_eq!(
            (source_found, prefix.rank, prefix.time.as_deref(), found),
            (source, rank, time, rest),
            "{line}"
        );
    }
}

#[test]
fn lines_of_each_source_are_together_and_keep_their_numbers() {
    let log = Log::new("[rank0]: CUDA out\n[rank1]: other\n[rank0]: of mem\nory\n");
    let texts: Vec<_> = log.streams.iter().map(|stream| (stream.rank, &*stream.text)).collect();
    assert_eq!(texts, [(Some(0), "cudaoutofmemory"), (Some(1), "other")]);
    let first = &log.streams[0];
    let lines: Vec<_> = [0, 6, 7, 12, 14].map(|offset| log.number(first.line(offset))).to_vec();
    assert_eq!(lines, [1, 1, 3, 4, 4]);
}

/// A log that is cut keeps its beginning, its end and the numbers of its lines.
#[test]
fn long_log_keeps_both_ends_and_its_line_numbers() {
    let line = "step 1 loss 2.3\n";
    let lines = 3 * BYTES_MAX / line.len();
    let text = format!("begin\n{}end\n", line.repeat(lines));
    let excerpt = Excerpt::read(text.as_bytes()).unwrap();
    assert!(excerpt.text.len() <= BYTES_MAX + 1);
    assert!(excerpt.text.starts_with("begin\n") && excerpt.text.ends_with("end\n"));
    assert_eq!(excerpt.number(1), 1);
    assert_eq!(excerpt.number(excerpt.text.lines().count()), lines + 2);
    let short = Excerpt::read("a\nb".as_bytes()).unwrap();
    assert_eq!((short.text.as_str(), short.number(2)), ("a\nb", 2));
}

#[test]
fn sources_are_bounded_and_no_line_is_lost() {
    let text: String = (0..SOURCES_MAX + 50)
        .map(|pid| format!("(worker pid={pid}) memory\n"))
        .collect();
    let log = Log::new(&text);
    assert_eq!(log.streams.len(), SOURCES_MAX);
    let letters: usize = log.streams.iter().map(|stream| stream.text.len()).sum();
    assert_eq!(letters, (SOURCES_MAX + 50) * "memory".len());
}
