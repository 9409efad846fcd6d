//! Reading traces, and the errors for other files.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

pub(super) const OURS: &str = "op,id,bytes,stream\n";
pub(super) const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

pub(super) fn read(text: impl AsRef<[u8]>) -> Result<Trace, Problem> {
    Trace::read(text.as_ref())
}

pub(super) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn alloc(slot: u32, stream: u16, bytes: u64) -> Op {
    Op::Alloc { slot, stream, bytes }
}

pub(super) fn free(slot: u32) -> Op {
    Op::Free { slot }
}

/// Added to the errors of compressed files.
const PACKED: &str = "; the file is compressed and may be damaged (gzip -t tells)";

#[test]
fn rows_become_operations_on_reused_slots() {
    let text = "op,id,bytes,stream\r\na,7,100,0\r\na,900000000000,50,3\r\nf,7\r\na,8,0,0\r\na,9,10,3\r\nf,8,,\r\n\r\n";
    for bytes in [
        text.as_bytes().to_vec(),
        text.replace('\r', "").into(),
        gzip(text.as_bytes()),
        format!("\u{feff}{text}").into(),
    ] {
        let trace = read(&bytes).unwrap();
        assert_eq!(trace.ops, [alloc(0, 0, 100), alloc(1, 1, 50), free(0), alloc(0, 1, 10)]);
        assert_eq!((trace.slots, &trace.streams[..]), (2, &[0, 3][..]));
        assert_eq!((trace.peak_requested, trace.zero_sized), (150, 1));
        assert_eq!((trace.live_blocks, trace.live_bytes), (2, 60));
        assert_eq!(trace.compressed, bytes.starts_with(&[0x1f]));
    }
}

/// Every message names the position and what was expected there.
#[test]
fn errors_name_line_and_column() {
    let ours = [
        ("x,1,2,3", "line 2, column 1: found \"x\"; expected a or f"),
        ("a", "line 2, column 2: the line ends; expected the id of a block"),
        ("a,1", "line 2, column 4: the line ends; expected a size in bytes"),
        (
            "a,1,2",
            "line 2, column 6: the line ends; expected the number of a stream",
        ),
        ("a,1,,0", "line 2, column 5: nothing here; expected a size in bytes"),
        ("a,1,12x,0", "line 2, column 5: found \"12x\"; expected a size in bytes"),
        ("a,1,-5,0", "line 2, column 5: found \"-5\"; expected a size in bytes"),
        ("a,1,5.5,0", "line 2, column 5: found \"5.5\"; expected a size in bytes"),
        ("a,1,.0,0", "line 2, column 5: found \".0\"; expected a size in bytes"),
        (
            "a,1,5,0,9",
            "line 2, column 9: found \"9\"; expected the end of the line",
        ),
        (
            "a,1,18446744073709551616,0",
            "line 2, column 5: \"18446744073709551616\" does not fit into 64 bits; expected a size in bytes",
        ),
        (
            "a,1,18446744073709551615,0\na,2,1,0",
            "line 3, column 5: the sum of all live blocks does not fit into 64 bits; expected a smaller size",
        ),
        (
            "a,1,5,0\na,1,5,0",
            "line 3, column 3: id 1 is live already; expected one that is not, or its free first",
        ),
        (
            "a,1,0,0\na,1,5,0",
            "line 3, column 3: id 1 is live already; expected one that is not, or its free first",
        ),
        (
            "f,4",
            "line 2, column 3: id 4 is not live (never allocated, or freed before); expected one that is",
        ),
        (
            "a,4,1,0\nf,4\nf,4",
            "line 4, column 3: id 4 is not live (never allocated, or freed before); expected one that is",
        ),
        ("f,4,1", "line 2, column 5: found \"1\"; expected the end of the line"),
    ];
    let rmm = [
        (
            "1,2",
            "line 2, column 4: the line ends; expected allocate, free, deallocate or allocate failure",
        ),
        (
            "1,2,grow,0x1,2,0",
            "line 2, column 5: found \"grow\"; expected allocate, free, deallocate or allocate failure",
        ),
        // The first invalid field is reported.
        (
            "1,2,explode,zz,ten,0",
            "line 2, column 5: found \"explode\"; expected allocate, free, deallocate or allocate failure",
        ),
        (
            "1,2,allocate,zz,ten,0",
            "line 2, column 14: found \"zz\"; expected an address such as 0x7f8a40000000",
        ),
        (
            "1,2,allocate,(nil),2,0",
            "line 2, column 14: found \"(nil)\"; expected an address such as 0x7f8a40000000",
        ),
        (
            "1,2,allocate,0xfg,2,0",
            "line 2, column 14: found \"0xfg\"; expected an address such as 0x7f8a40000000",
        ),
        (
            "1,2,allocate,0x12345678123456781,2,0",
            "line 2, column 14: \"0x12345678123456781\" does not fit into 64 bits; expected an address such as 0x7f8a40000000",
        ),
        (
            "1,2,allocate,0x1,2,",
            "line 2, column 20: nothing here; expected a stream handle in hexadecimal",
        ),
        (
            "1,2,free,0x10,2,0\n1,2,free,0x10,2,0",
            "line 3, column 10: the block at 0x10 is not live (never allocated, or freed before); expected one that is",
        ),
        (
            "1,2,allocate,0x7,64,0\n1,2,free,0x7,32,0",
            "line 3, column 14: frees 32 bytes of the block at 0x7, where 64 were allocated; expected these",
        ),
    ];
    let all = ours.map(|(rows, said)| (OURS, rows, said)).into_iter();
    for (header, rows, said) in all.chain(rmm.map(|(rows, said)| (RMM, rows, said))) {
        for (end, is_open) in [("\n", false), ("\r\n", false), ("", true)] {
            let text = format!("{header}{rows}{end}");
            let line = text.lines().count();
            for (bytes, doubt) in [(text.as_bytes().to_vec(), ""), (gzip(text.as_bytes()), PACKED)] {
                match read(bytes) {
                    // The file has no other row, or all are invalid.
                    Err(error) => assert_eq!(error.to_string(), format!("{said}{doubt}"), "{text}"),
                    Ok(Trace { odd, .. }) if odd.sizes > 0 => assert_eq!((&*odd.first_size, odd.sizes), (said, 1)),
                    // The last line of a killed program has no line end.
                    Ok(Trace { odd, .. }) if is_open && said.starts_with(&format!("line {line},")) => {
                        assert_eq!(odd.cut, Some(format!("it ends within line {line}")), "{text}");
                        assert_eq!((odd.rows, &*odd.first), (0, ""));
                    }
                    Ok(Trace { odd, .. }) => assert_eq!((&*odd.first, odd.rows), (said, 1), "{text}"),
                }
            }
        }
    }
}

/// A member of a gzip file may be empty, even the first.
#[test]
fn gzip_files_of_several_members_are_read() {
    let rows = [OURS, "a,1,5,0\n", "", "f,1\n"]
        .map(|part| gzip(part.as_bytes()))
        .concat();
    let trace = read([gzip(b""), rows].concat()).unwrap();
    assert_eq!(
        (&trace.ops[..], trace.compressed),
        (&[alloc(0, 0, 5), free(0)][..], true)
    );
}

#[test]
fn files_that_are_not_traces_are_errors() {
    let headers = "expected the header \"op,id,bytes,stream\" or \"Thread,Time,Action,Pointer,Size,Stream\" (without Thread and Time, too), or a snapshot of PyTorch's";
    for (bytes, said) in [
        (
            &b"a,1,2,0\n"[..],
            format!("line 1, column 1: found \"a,1,2,0\"; {headers}"),
        ),
        (
            b"\xff\x80\xfe\n",
            format!("is a binary file of an unknown kind; {headers}"),
        ),
        (b"ab\0\x01", format!("is a binary file of an unknown kind; {headers}")),
        (
            b"\0\0\0\0\0",
            "is full of zeros: it was not written or copied completely".to_owned(),
        ),
        (
            b"\x1b[31m",
            format!("line 1, column 1: found \"\\u{{1b}}[31m\"; {headers}"),
        ),
        (b"", "is empty: a trace begins with a header line".to_owned()),
        (b"\n\n", "is empty: a trace begins with a header line".to_owned()),
        (
            &[b'x'; 5000],
            format!("line 1, column 1: found \"{}\"...; {headers}", "x".repeat(48)),
        ),
    ] {
        assert_eq!(read(bytes).unwrap_err().to_string(), said);
        let packed = read(gzip(bytes)).unwrap_err().to_string();
        let more = if said.starts_with("line") { PACKED } else { "" };
        assert_eq!(packed, format!("{said}{more}"));
    }
    let error = Trace::open(Path::new("/nowhere/to be\x1b found"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("/nowhere/to be\u{fffd} found: cannot be read: "),
        "{error}"
    );
}

/// Their bytes are not read as text.
#[test]
fn other_formats_are_named_in_the_error() {
    let text = format!("{OURS}a,1,5,0\n");
    let twice = read(gzip(&gzip(text.as_bytes()))).unwrap_err();
    assert!(matches!(twice, Problem::CompressedTwice), "{twice}");
    for (begin, name) in [
        (&b"\x28\xb5\x2f\xfd\x04\x58"[..], "zstd"),
        (b"\xfd7zXZ\0\0\x04", "xz"),
        (b"BZh91AY&SY", "bzip2"),
        (b"\x04\x22\x4d\x18\x64", "lz4"),
    ] {
        let said = read(begin).unwrap_err().to_string();
        let expected = format!("is compressed by {name}, and only gzip can be read: unpack it first ({name} -d)");
        assert_eq!(said, expected);
    }
    for mark in ["", "\u{feff}"] {
        let units = || mark.encode_utf16().chain(text.encode_utf16());
        let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
        let characters = || mark.chars().chain(text.chars()).map(u32::from);
        let wide: [Vec<u8>; 2] = [
            characters().flat_map(u32::to_le_bytes).collect(),
            characters().flat_map(u32::to_be_bytes).collect(),
        ];
        let all = [(&little, "UTF-16"), (&big, "UTF-16"), (&gzip(&little), "UTF-16")];
        for (bytes, name) in all.into_iter().chain(wide.iter().map(|bytes| (bytes, "UTF-32"))) {
            let said = read(bytes).unwrap_err();
            assert!(matches!(said, Problem::Wide(of) if of == name), "{name}: {said}");
        }
    }
    // Errors of PyTorch's formats come from the crate that reads them.
    for (begin, what) in [
        (&b"PK\x03\x04"[..], "zip archive"),
        (b"(dp0\nVsegments", "protocol 0 or 1"),
        (b"}q\x00(X", "protocol 0 or 1"),
    ] {
        let said = read(begin).unwrap_err().to_string();
        assert!(said.contains(what), "{said}");
    }
}

/// It is read up to the last complete line. Data before damage is not trusted.
#[test]
fn truncated_gzip_file_is_read_up_to_its_last_line() {
    let rows: Vec<String> = (0..50_000)
        .map(|id| format!("a,{id},{},0\n", id * 7919 % 5000 + 1))
        .collect();
    let all = read(format!("{OURS}{}", rows.concat())).unwrap();
    let whole = gzip(format!("{OURS}{}", rows.concat()).as_bytes());
    for len in [whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        let trace = read(&whole[..len]).unwrap();
        let lines = 1 + trace.ops.len();
        assert!(trace.ops[..] == all.ops[..lines - 1] && lines > 20_000, "{lines}");
        let said = format!("the compressed data ends early, after line {lines}");
        assert_eq!((trace.odd.cut, trace.odd.rows), (Some(said), 0));
    }
    for len in [3, 12] {
        match read(&whole[..len]) {
            Err(Problem::Damaged { line: 0, .. }) => {}
            other => panic!("{len} of {}: {other:?}", whole.len()),
        }
    }
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x55;
    assert!(read(&damaged).is_err());
    assert_eq!(read(&whole).unwrap().ops.len(), 50_000);
}

/// A few kB unpack to megabytes of zeros, line ends or operations, which must cost neither memory nor time.
#[test]
fn decompression_bomb_takes_little_memory() {
    for (part, parts) in [("\0", 20_000_000), ("\n", 20_000_000), ("a,1,9,0\nf,1\n", 3_000_000)] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(OURS.as_bytes()).unwrap();
        for _ in 0..10 {
            encoder.write_all(part.repeat(parts / 10).as_bytes()).unwrap();
        }
        encoder.write_all(b"x").unwrap();
        let said = read(encoder.finish().unwrap()).unwrap_err();
        match (part, &said) {
            ("\0", _) => {
                let long = "line 2, column 1048577: the line is longer than 1,048,576 bytes; expected its end";
                assert_eq!(said.to_string(), format!("{long}{PACKED}"));
            }
            (_, Problem::Packed { rows, .. }) => assert!(*rows < 6_000_000, "{said}"),
            _ => panic!("{part:?}: {said}"),
        }
    }
}

#[test]
fn refused_requests_do_not_count_towards_the_peak() {
    let trace = read(format!("{OURS}a,1,10,0\na,2,100,0\nf,2\na,3,20,0\nf,1\na,4,15,0\n")).unwrap();
    assert_eq!(trace.peak_requested, 110);
    assert_eq!(trace.peak_requested_without(&[]), 110);
    assert_eq!(trace.peak_requested_without(&[1]), 35);
    assert_eq!(trace.peak_requested_without(&[0, 1]), 35);
    assert_eq!(trace.peak_requested_without(&[0, 1, 3, 5]), 0);
}

proptest! {
    /// Reading any bytes ends without a panic.
    #[test]
    fn arbitrary_bytes_do_not_panic(rows in "[af0-9,\n\r x]{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200), rmm in any::<bool>()) {
        let header = if rmm { RMM } else { OURS };
        let _ = read(format!("{header}{rows}"));
        let _ = read([header.as_bytes(), &bytes].concat());
        let _ = read([&[0x1f, 0x8b, 8], &bytes[..]].concat());
    }

    /// Random rows, with invalid ones and headers among them, give a trace that can be replayed and adds up.
    #[test]
    fn traces_of_random_rows_add_up(
        rows in prop::collection::vec((0..9u8, 1u64..6, prop::sample::select(vec![0u64, 1, 7, 1 << 62, u64::MAX]), 0u64..4), 0..60),
        rmm in any::<bool>(),
        cut in 0usize..9,
    ) {
        let header = if rmm { RMM } else { OURS };
        let row = |(kind, id, bytes, stream): &(u8, u64, u64, u64)| match (kind, rmm) {
            (0, _) => header.to_owned(),
            (1, _) => "loading\n".to_owned(),
            (2..=4, true) => format!("1,2,free,0x{id:x},{bytes},{stream}\n"),
            (2..=4, false) => format!("f,{id}\n"),
            (_, true) => format!("1,2,allocate,0x{id:x},{bytes},{stream}\n"),
            (_, false) => format!("a,{id},{bytes},{stream}\n"),
        };
        let text = header.to_owned() + &rows.iter().map(row).collect::<String>();
        let Ok(trace) = read(&text[..text.len() - cut]) else { return Ok(()) };
        let (mut live, mut now, mut peak) = (vec![0u64; trace.slots], 0u64, 0);
        for op in &trace.ops {
            match *op {
                Op::Alloc { slot, stream, bytes } => {
                    prop_assert!(bytes > 0 && usize::from(stream) < trace.streams.len());
                    prop_assert_eq!(std::mem::replace(&mut live[slot as usize], bytes), 0);
                    now = now.checked_add(bytes).unwrap();
                    peak = peak.max(now);
                }
                Op::Free { slot } => {
                    let bytes = std::mem::take(&mut live[slot as usize]);
                    prop_assert!(bytes > 0);
                    now -= bytes;
                }
            }
        }
        let blocks = live.iter().filter(|bytes| **bytes > 0).count() as u64;
        prop_assert_eq!((trace.peak_requested, trace.live_bytes, trace.live_blocks), (peak, now, blocks));
    }

    /// Sizes, streams and lifetimes of the operations are those of a naive reader.
    #[test]
    fn operations_match_a_naive_reader(choices in prop::collection::vec((0u64..8, 0u64..1000, 0u64..3), 0..100)) {
        let (mut text, mut live) = (OURS.to_owned(), std::collections::BTreeMap::new());
        let (mut peak, mut expected) = (0, Vec::new());
        for (id, bytes, stream) in choices {
            if let Some(bytes) = live.remove(&id) {
                text += &format!("f,{id}\n");
                expected.extend((bytes > 0).then_some((bytes, None)));
            } else {
                text += &format!("a,{id},{bytes},{stream}\n");
                live.insert(id, bytes);
                expected.extend((bytes > 0).then_some((bytes, Some(stream))));
            }
            peak = peak.max(live.values().sum());
        }
        let trace = read(&text).unwrap();
        let mut slots = vec![0; trace.slots];
        let found: Vec<_> = trace.ops.iter().map(|op| match *op {
            Op::Alloc { slot, stream, bytes } => {
                assert_eq!(std::mem::replace(&mut slots[slot as usize], bytes), 0, "the slot is taken");
                (bytes, Some(trace.streams[usize::from(stream)]))
            }
            Op::Free { slot } => (std::mem::take(&mut slots[slot as usize]), None),
        }).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(trace.peak_requested, peak);
        prop_assert_eq!(trace.live_bytes, live.values().sum::<u64>());
    }
}
