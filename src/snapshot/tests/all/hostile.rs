//! Truncated, damaged and hostile files.

use gpumem_snapshot::{PickleError, ReadError, Snapshot};
use proptest::prelude::*;

use crate::common::{SMALL, gzip, json, pickle, real_path, small, with_value};

/// Checks that a snapshot that was read can be used.
fn use_it(snapshot: &Snapshot) {
    snapshot.check();
    snapshot.unknown_keys();
    for device in 0..snapshot.device_traces.len() {
        snapshot.requests(device).count();
    }
    let written = pickle(snapshot);
    assert_eq!(pickle(&Snapshot::from_bytes(&written).unwrap()), written);
    // JSON cannot represent every value.
    drop(snapshot.write_json(std::io::sink()));
}

/// Reads a file strictly, and as far as possible. If the strict reader accepts it, both results are equal.
fn read_both_ways(bytes: &[u8]) {
    let strict = Snapshot::from_bytes(bytes);
    let lenient = Snapshot::from_damaged(bytes);
    if let Ok((snapshot, damage)) = &lenient {
        use_it(snapshot);
        assert!(damage.cut.is_none() || snapshot.segments.is_empty());
    }
    if let Ok(snapshot) = strict {
        let (read, damage) = lenient.unwrap();
        assert_eq!(pickle(&read), pickle(&snapshot));
        assert_eq!((damage.odd_entries, damage.cut), (0, None));
    }
}

#[test]
fn truncated_pickle_error_names_the_position() {
    let whole = pickle(&small());
    for length in 1..whole.len() {
        match Snapshot::from_bytes(&whole[..length]) {
            Err(ReadError::Pickle { offset, kind }) => {
                assert!(matches!(kind, PickleError::Truncated { .. }), "{length}: {kind}");
                assert!(offset <= length as u64, "{offset} of {length}");
            }
            other => panic!("{length}: {other:?}"),
        }
    }
    assert!(matches!(
        Snapshot::from_bytes(b""),
        Err(ReadError::Format("the file is empty"))
    ));
}

#[test]
fn truncated_json_and_gzip_are_errors() {
    let whole = json(&small()).to_string();
    for length in 1..whole.len() {
        match Snapshot::from_bytes(&whole.as_bytes()[..length]) {
            Err(ReadError::Json(error)) => assert!(error.is_eof(), "{length}: {error}"),
            other => panic!("{length}: {other:?}"),
        }
    }
    let whole = gzip(&pickle(&small()));
    assert!(Snapshot::from_bytes(&whole).is_ok());
    for length in 2..whole.len() {
        let error = Snapshot::from_bytes(&whole[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Gzip { .. }), "{length}: {error}");
    }
}

#[test]
fn truncated_real_file_error_names_the_position() {
    let whole = std::fs::read(real_path()).unwrap();
    for length in (2..whole.len()).step_by(whole.len() / 20) {
        let error = Snapshot::from_bytes(&whole[..length]).unwrap_err();
        assert!(matches!(error, ReadError::Gzip { .. }), "{length}: {error}");
    }
    let mut bytes = Vec::new();
    Snapshot::from_bytes(&whole).unwrap().write_pickle(&mut bytes).unwrap();
    for length in (1..bytes.len()).step_by(bytes.len() / 20) {
        match Snapshot::from_bytes(&bytes[..length]) {
            // The offset is that of the last opcode; the longest ones are texts.
            Err(ReadError::Pickle { offset, .. }) => {
                assert!(
                    (length as u64).saturating_sub(60) <= offset && offset <= length as u64,
                    "{offset} of {length}"
                );
            }
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    let whole = pickle(&small());
    for place in 0..whole.len() {
        for flip in [
            0x01,
            0x80,
            0xff,
            whole[place] ^ b'.',
            whole[place] ^ b'(',
            whole[place] ^ b'h',
        ] {
            let mut bytes = whole.clone();
            bytes[place] ^= flip;
            read_both_ways(&bytes);
        }
    }
    for place in 0..SMALL.len() {
        for new in b"\"09-,:]}[{ne" {
            let mut bytes = SMALL.as_bytes().to_vec();
            bytes[place] = *new;
            read_both_ways(&bytes);
        }
    }
}

/// Generates opcodes, mostly with valid arguments.
fn opcodes() -> impl Strategy<Value = Vec<u8>> {
    let plain = prop::sample::select(b"(0]})N\x88\x85\x86\x87\x94aesutld2".to_vec()).prop_map(|byte| vec![byte]);
    let number = (0..8u8).prop_map(|number| vec![b'h', number]);
    let key = prop::sample::select(vec![
        "segments", "blocks", "frames", "size", "state", "action", "name", "history",
    ]);
    let key = key.prop_map(|key| [&[0x8c, key.len() as u8], key.as_bytes()].concat());
    let class = prop::sample::select(vec!["ccollections\nOrderedDict\n", ")R", "cbuiltins\nlist\n", "R"]);
    let class = class.prop_map(|class| class.as_bytes().to_vec());
    let raw = prop::collection::vec(any::<u8>(), 1..4);
    let one = prop_oneof![8 => plain, 3 => number, 3 => key, 2 => class, 1 => raw];
    prop::collection::vec(one, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_sequence_of_opcodes_does_harm(opcodes in opcodes()) {
        let cut = [b"\x80\x04}(\x8c\x0ddevice_traces]](", &opcodes[..]].concat();
        for bytes in [with_value(&opcodes), [b"\x80\x04", &opcodes[..], b"."].concat(), cut] {
            read_both_ways(&bytes);
        }
    }
}
