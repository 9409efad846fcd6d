//! Files that ask for too many resources: values shared, nested or packed a million times.

use gpumem_snapshot::{Limits, ReadError, Snapshot, Value};

use crate::common::{SMALL, gzip, pickle, read_value, small, with_value};

/// A tuple of two references to the same tuple of two, and so on.
fn laughs(levels: u8) -> Vec<u8> {
    let mut opcodes = b")\x94".to_vec();
    for level in 0..levels {
        opcodes.extend([b'h', level, 0x86, 0x94]);
    }
    opcodes
}

#[test]
fn shared_values_are_not_expanded() {
    // Reasonable sharing is preserved: a million values in 200 bytes.
    let snapshot = Snapshot::from_bytes(&with_value(&laughs(20))).unwrap();
    assert!(pickle(&snapshot).len() < 200);
    let error = read_value(&laughs(30)).unwrap_err();
    assert!(matches!(error, ReadError::Shared { .. }), "{error}");
    let error = read_value(&laughs(40)).unwrap_err();
    assert_eq!(error.to_string(), "\"x\": expected at most 32 levels, found more");
}

#[test]
fn value_that_contains_itself_is_an_error() {
    let itself = "\"x\": expected a value that ends, found one that holds itself";
    assert_eq!(read_value(b"]\x94h\x00a").unwrap_err().to_string(), itself);
    assert_eq!(read_value(b"}\x94K\x01h\x00s").unwrap_err().to_string(), itself);
    // A list that contains itself twice would be visited 2^32 times.
    assert_eq!(read_value(b"]\x94(]h\x00ah\x00h\x00e").unwrap_err().to_string(), itself);
    let of_segments = b"\x80\x04}\x8c\x08segments]\x94h\x00as.";
    let error = Snapshot::from_bytes(of_segments).unwrap_err();
    assert_eq!(error.to_string(), "segments[0]: expected a dict, found a list");
}

#[test]
fn million_levels_are_an_error_not_a_stack_overflow() {
    let mut opcodes = vec![b']'; 1_000_000];
    opcodes.extend(vec![b'a'; 999_999]);
    let error = read_value(&opcodes).unwrap_err();
    assert_eq!(error.to_string(), "\"x\": expected at most 32 levels, found more");
    let mut text = br#"{"segments": [], "x": "#.to_vec();
    text.extend(vec![b'['; 1_000_000]);
    let error = Snapshot::from_bytes(&text).unwrap_err();
    assert!(
        error.to_string().starts_with("JSON: recursion limit exceeded"),
        "{error}"
    );
    // Shared values may contain shared values, each seen before the one above it.
    let mut opcodes = b"](]\x94".to_vec();
    for level in 0..40 {
        opcodes.extend([b'h', level, 0x85, 0x94]);
    }
    opcodes.push(b'e');
    let error = read_value(&opcodes).unwrap_err();
    assert_eq!(error.to_string(), "\"x\": expected at most 32 levels, found more");
}

/// A list with `count` references to a memo entry.
fn times(memo: u8, count: usize) -> Vec<u8> {
    [b"](".as_slice(), &[b'h', memo].repeat(count), b"e"].concat()
}

#[test]
fn segment_shared_a_million_times_is_bounded() {
    let block = b"}(\x8c\x04sizeM\x00\x02\x8c\x05state\x8c\x08inactiveu\x940";
    let segment = [
        b"}(\x8c\x07addressK\x00\x8c\x0atotal_sizeK\x00\x8c\x06blocks".as_slice(),
        &times(0, 1000),
        b"u\x940",
    ];
    let file = [
        b"\x80\x04".as_slice(),
        block,
        &segment.concat(),
        b"}\x8c\x08segments",
        &times(1, 100_000),
        b"s.",
    ];
    let error = Snapshot::from_bytes(&file.concat()).unwrap_err();
    assert!(matches!(error, ReadError::Memory { .. }), "{error}");
}

#[test]
fn event_shared_a_million_times_is_bounded() {
    let entry = [b"}\x8c\x01k\x940(".as_slice(), &b"h\x00N".repeat(30_000), b"u\x940"].concat();
    let file = [
        b"\x80\x04".as_slice(),
        &entry,
        b"}\x8c\x0ddevice_traces]",
        &times(1, 30_000),
        b"as.",
    ];
    let error = Snapshot::from_bytes(&file.concat()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "device_traces[0][0].action: expected this key, which every snapshot has, found nothing"
    );
    let with_action = file.concat();
    let with_action = [&with_action[..9], b"\x8c\x06action\x8c\x08snapshot", &with_action[9..]].concat();
    let error = Snapshot::from_bytes(&with_action).unwrap_err();
    assert!(matches!(error, ReadError::Shared { .. }), "{error}");
}

#[test]
fn call_stack_of_many_events_is_kept_once() {
    let frame = b"}(\x8c\x04name\x8c\x01f\x8c\x08filename\x8c\x01g\x8c\x04lineK\x01u\x940";
    let entry = [
        b"}(\x8c\x06action\x8c\x08snapshot\x8c\x06frames".as_slice(),
        &times(0, 100_000),
        b"u\x940",
    ];
    let file = [
        b"\x80\x04".as_slice(),
        frame,
        &entry.concat(),
        b"}\x8c\x0ddevice_traces]",
        &times(1, 100_000),
        b"as.",
    ];
    let snapshot = Snapshot::from_bytes(&file.concat()).unwrap();
    assert_eq!(
        (snapshot.device_traces[0].len(), snapshot.tables.stacks()),
        (100_000, 2)
    );
    // 10^10 frames, written as 10^5 of them.
    assert!(pickle(&snapshot).len() < 5_000_000);
}

#[test]
fn repeated_json_values_are_shared() {
    assert_eq!((small().tables.stacks(), small().tables.all_frames().count()), (2, 1));
}

/// The unpacked real file takes less than a third of its limit, so the limits are not too tight.
#[test]
fn real_file_takes_a_third_of_its_limit() {
    let mut bytes = Vec::new();
    let real = std::fs::read(crate::common::real_path()).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&real[..]), &mut bytes).unwrap();
    let all = Limits::default().memory_ratio * bytes.len() as u64;
    let third = Limits {
        memory: all / 3 + (1 << 20),
        ..Limits::default()
    };
    assert!(Snapshot::from_bytes_within(&bytes, &third).is_ok());
}

#[test]
fn memory_limit_error_names_the_position() {
    let limits = Limits {
        memory: 1 << 20,
        ..Limits::default()
    };
    let said = |bytes: &[u8]| Snapshot::from_bytes_within(bytes, &limits).unwrap_err().to_string();
    let too_much = "the content takes more than 1048576 bytes of memory, as much as any snapshot may take: record fewer events \
                    (max_entries of _record_memory_history())";
    let list = |item: &[u8]| with_value(&[b"](", &item.repeat(20_000)[..], b"e"].concat());
    // The limit is reached at the 16,385th object, including the lists and the dict around them: the table of 32 bytes
    // each would double.
    assert_eq!(said(&list(b"]")), format!("pickle, byte 16401: {too_much}"));
    // These take little memory before they are converted to values.
    let numbers: Vec<u8> = (0..20_000u16)
        .flat_map(|n| [b"M".as_slice(), &n.to_le_bytes()].concat())
        .collect();
    assert_eq!(
        said(&with_value(&[b"](", &numbers[..], b"e"].concat())),
        format!("\"x\": {too_much}")
    );
    let events = "{\"action\": \"snapshot\"},\n".repeat(20_000);
    let error = said(format!("{{\"device_traces\": [[\n{events}").as_bytes());
    assert_eq!(
        error,
        format!("device_traces[0][4096], before line 4099, column 0: {too_much}")
    );
    let lists = "[], ".repeat(40_000);
    let error = said(format!("{{\"x\":\n[{lists}").as_bytes());
    assert_eq!(error, format!("the snapshot, before line 2, column 65539: {too_much}"));
}

/// Shared bytes are visited once; visiting each reference would be 20 GB.
#[test]
fn shared_bytes_are_visited_once() {
    let bytes = [b"B".as_slice(), &200_000u32.to_le_bytes(), &[b'x'; 200_000], b"\x94"].concat();
    let value = [b"](", &bytes[..], &b"h\x00".repeat(100_000), b"e"].concat();
    let snapshot = Snapshot::from_bytes(&with_value(&value)).unwrap();
    assert!(matches!(snapshot.tables.get_value(snapshot.extra[0].1), Value::List(items) if items.len() == 100_001));
}

#[test]
fn limits_are_enforced() {
    let limits = Limits {
        input: 1 << 20,
        ..Limits::default()
    };
    let bomb = gzip(&vec![b' '; 2 << 20]);
    assert!(bomb.len() < 20_000);
    let error = Snapshot::from_bytes_within(&bomb, &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the snapshot is larger than 1048576 bytes once unpacked, the most that is read of any: record fewer events (max_entries of \
         _record_memory_history())"
    );
    // Highly compressed content may be read after unpacking.
    let spaces = vec![b' '; 70 << 20];
    let bomb = gzip(&spaces);
    let (packed, least) = (bomb.len() as u64, 64 << 20);
    let dense = Limits {
        gzip_ratio: 1,
        ..Limits::default()
    };
    let error = Snapshot::from_bytes_within(&bomb, &dense).unwrap_err();
    assert!(
        matches!(error, ReadError::Packed { packed: p, limit } if p == packed && limit == least + packed),
        "{error}"
    );
    let said = error.to_string();
    assert!(
        said.contains("compressed to") && said.contains("unpack it first (gzip -d)"),
        "{said}"
    );
    let unpacked = Snapshot::from_bytes_within(&spaces, &dense).unwrap_err();
    assert!(
        matches!(unpacked, ReadError::Format(_) | ReadError::Json(_)),
        "{unpacked}"
    );
    let large = vec![b' '; (1 << 20) + 1];
    let error = Snapshot::from_bytes_within(&large, &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the snapshot is larger than 1048576 bytes, the most that is read of any: record fewer events (max_entries of \
         _record_memory_history())"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &large).unwrap();
    let error = Snapshot::read_within(file.path(), &limits).unwrap_err();
    assert!(matches!(error, ReadError::TooLarge { unpacked: false, .. }), "{error}");
    let tight = Limits {
        memory: 500,
        ..Limits::default()
    };
    for bytes in [pickle(&small()), SMALL.as_bytes().to_vec()] {
        let error = Snapshot::from_bytes_within(&bytes, &tight).unwrap_err();
        assert!(matches!(error, ReadError::Memory { limit: 500, .. }), "{error}");
    }
    assert!(matches!(Snapshot::read("/nowhere".as_ref()), Err(ReadError::Io { .. })));
}
