//! Tests of the single opcodes of pickle. The long literals were written by Python 3.11's `pickle.dumps`.

use gpumem_snapshot::{ReadError, Snapshot};

use crate::common::{VALUE_AT, read_value, repr};

#[test]
fn every_protocol_gives_the_same_values() {
    let protocols: [&[u8]; 3] = [
        b"\x80\x03}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02}q\x03(X\x07\x00\x00\x00addressq\x04M\x00\x10X\x0a\x00\x00\x00total_sizeq\x05M\x00\x02X\x06\x00\x00\x00blocksq\x06]q\x07}q\x08(X\x04\x00\x00\x00sizeq\x09M\x00\x02X\x05\x00\x00\x00stateq\x0aX\x08\x00\x00\x00inactiveq\x0bh\x04M\x00\x10uauaX\x0d\x00\x00\x00device_tracesq\x0c]q\x0d]q\x0eaX\x01\x00\x00\x00xq\x0f]q\x10(N\x88\x89K\x01J\xff\xff\xff\xffJp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00G?\xf8\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00aq\x11X\x02\x00\x00\x00\xc3\xa9q\x12C\x02\x00\xffq\x13)K\x01\x85q\x14K\x01K\x02\x86q\x15K\x01K\x02K\x03\x87q\x16(K\x01K\x02K\x03K\x04tq\x17}q\x18X\x01\x00\x00\x00kq\x19}q\x1aseu.",
        b"\x80\x04\x95\xed\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08segments\x94]\x94}\x94(\x8c\x07address\x94M\x00\x10\x8c\x0atotal_size\x94M\x00\x02\x8c\x06blocks\x94]\x94}\x94(\x8c\x04size\x94M\x00\x02\x8c\x05state\x94\x8c\x08inactive\x94h\x04M\x00\x10uaua\x8c\x0ddevice_traces\x94]\x94]\x94a\x8c\x01x\x94]\x94(N\x88\x89K\x01J\xff\xff\xff\xffJp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00G?\xf8\x00\x00\x00\x00\x00\x00\x8c\x01a\x94\x8c\x02\xc3\xa9\x94C\x02\x00\xff\x94)K\x01\x85\x94K\x01K\x02\x86\x94K\x01K\x02K\x03\x87\x94(K\x01K\x02K\x03K\x04t\x94}\x94\x8c\x01k\x94}\x94seu.",
        b"\x80\x05\x95\xed\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08segments\x94]\x94}\x94(\x8c\x07address\x94M\x00\x10\x8c\x0atotal_size\x94M\x00\x02\x8c\x06blocks\x94]\x94}\x94(\x8c\x04size\x94M\x00\x02\x8c\x05state\x94\x8c\x08inactive\x94h\x04M\x00\x10uaua\x8c\x0ddevice_traces\x94]\x94]\x94a\x8c\x01x\x94]\x94(N\x88\x89K\x01J\xff\xff\xff\xffJp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00G?\xf8\x00\x00\x00\x00\x00\x00\x8c\x01a\x94\x8c\x02\xc3\xa9\x94C\x02\x00\xff\x94)K\x01\x85\x94K\x01K\x02\x86\x94K\x01K\x02K\x03\x87\x94(K\x01K\x02K\x03K\x04t\x94}\x94\x8c\x01k\x94}\x94seu.",
    ];
    for bytes in protocols {
        let snapshot = Snapshot::from_bytes(bytes).unwrap();
        assert_eq!(
            (snapshot.segments[0].address, snapshot.segments[0].blocks[0].size),
            (4096, 512)
        );
        assert_eq!(snapshot.device_traces, [[]]);
        assert_eq!(
            repr(&snapshot, snapshot.extra[0].1),
            "[None, True, False, 1, -1, 70000, 1099511627776, -9223372036854775808, 18446744073709551615, 1.5, 'a', 'é', \
             b[0, 255], (), (1), (1, 2), (1, 2, 3), (1, 2, 3, 4), {'k': {}}]"
        );
    }
}

#[test]
fn opcodes_of_plain_values_are_read() {
    let cases: [(&[u8], &str); 37] = [
        (b"N", "None"),
        (b"\x88", "True"),
        (b"\x89", "False"),
        (b"K\xff", "255"),
        (b"M\xff\xff", "65535"),
        (b"J\x00\x00\x00\x80", "-2147483648"),
        (b"\x8a\x00", "0"),
        (b"\x8a\x01\xff", "-1"),
        (b"\x8a\x02\xff\x00", "255"),
        (b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"),
        (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00", "9223372036854775808"),
        (b"\x8b\x01\x00\x00\x00\x80", "-128"),
        (b"G\xbf\xf0\x00\x00\x00\x00\x00\x00", "-1.0"),
        (b"\x8c\x02\xc3\xa9", "'é'"),
        (b"X\x01\x00\x00\x00a", "'a'"),
        (b"\x8d\x01\x00\x00\x00\x00\x00\x00\x00a", "'a'"),
        // A lone surrogate, which Python uses for file names that are not UTF-8.
        (b"\x8c\x04a\xed\xb2\x80", "'a\u{fffd}\u{fffd}\u{fffd}'"),
        (b"C\x01a", "b[97]"),
        (b"B\x01\x00\x00\x00a", "b[97]"),
        (b"\x8e\x01\x00\x00\x00\x00\x00\x00\x00a", "b[97]"),
        (b"]K\x01aK\x02a", "[1, 2]"),
        (b"](K\x01K\x02e", "[1, 2]"),
        (b"](e", "[]"),
        (b"(K\x01K\x02l", "[1, 2]"),
        (b")", "()"),
        (b"(t", "()"),
        (b"(K\x01t", "(1)"),
        (b"K\x01\x85", "(1)"),
        (b"}K\x01Ns", "{1: None}"),
        (b"}(u", "{}"),
        (b"(K\x01NK\x02Nd", "{1: None, 2: None}"),
        // Of equal keys the first determines the position and the last the value.
        (b"}(K\x01K\x0aK\x02K\x0bK\x01K\x0cu", "{1: 12, 2: 11}"),
        (b"]2a0N", "None"),
        (b"]K\x01q\x05a0h\x05", "1"),
        (b"]r\x07\x00\x00\x00K\x01aj\x07\x00\x00\x00\x86", "([1], [1])"),
        (b"(K\x01K\x021N", "None"),
        (b"(0\x95\x00\x00\x00\x00\x00\x00\x00\x00\x80\x02N", "None"),
    ];
    for (opcodes, expected) in cases {
        let shown = String::from_utf8_lossy(opcodes);
        assert_eq!(read_value(opcodes).unwrap(), expected, "{shown:?}");
    }
}

#[test]
fn opcodes_that_would_run_code_are_named_and_not_run() {
    let cases: [(&[u8], u64, &str); 14] = [
        (b"cos\nsystem\n", 0, "GLOBAL would import os.system; not run"),
        (b"(ios\nsystem\n", 1, "INST would import os.system; not run"),
        (
            b"\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R",
            17,
            "STACK_GLOBAL would import posix.system; not run",
        ),
        (
            b"\x8c\x03a\x1b]\x8c\x01b\x93",
            8,
            "STACK_GLOBAL would import a\\u{1b}].b; not run",
        ),
        (b"NN\x93", 2, "STACK_GLOBAL would run code; not run"),
        (b")R", 1, "REDUCE would run code; not run"),
        (b"}b", 1, "BUILD would run code; not run"),
        (b"(o", 1, "OBJ would run code; not run"),
        (b"\x81", 0, "NEWOBJ would run code; not run"),
        (b"\x92", 0, "NEWOBJ_EX would run code; not run"),
        (b"\x82\x01", 0, "EXT1 would run code; not run"),
        (b"\x83\x01\x00", 0, "EXT2 would run code; not run"),
        (b"P1\n", 0, "PERSID would run code; not run"),
        (b"NQ", 1, "BINPERSID would run code; not run"),
    ];
    check_errors(&cases);
}

/// They are read as plain dicts. A factory is never called.
#[test]
fn ordered_and_default_dicts_are_read_as_dicts() {
    for (opcodes, expected) in [
        (
            &b"ccollections\nOrderedDict\n)RX\x01\x00\x00\x00aK\x01s"[..],
            "{'a': 1}",
        ),
        (b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R", "{}"),
        (
            b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(X\x01\x00\x00\x00aK\x01u",
            "{'a': 1}",
        ),
        (b"ccollections\ndefaultdict\nN\x85R", "{}"),
        // A class that is not called is read as None.
        (b"cbuiltins\nint\n", "None"),
    ] {
        let shown = String::from_utf8_lossy(opcodes);
        assert_eq!(read_value(opcodes).unwrap(), expected, "{shown:?}");
    }
    check_errors(&[
        (b"cbuiltins\nlist\n)R", 16, "REDUCE would run code; not run"),
        (
            b"ccollections\nOrderedDict\n](K\x01e\x85R",
            31,
            "REDUCE would run code; not run",
        ),
        (b"ccollections\nOrderedDict\nNR", 26, "REDUCE would run code; not run"),
        (b"ccollections\nOrderedDict\n(R", 26, "REDUCE would run code; not run"),
        (
            b"ccollections\nCounter\n",
            0,
            "GLOBAL would import collections.Counter; not run",
        ),
        (b"cbuiltins\neval\n", 0, "GLOBAL would import builtins.eval; not run"),
    ]);
}

#[test]
fn invalid_pickle_errors_name_position_and_reason() {
    let cases: [(&[u8], u64, &str); 25] = [
        (b"\x8f", 0, "EMPTY_SET is not used by snapshots and not supported"),
        (b"I1\n", 0, "INT is not used by snapshots and not supported"),
        (
            b"\x96\x01\x00\x00\x00\x00\x00\x00\x00x",
            0,
            "BYTEARRAY8 is not used by snapshots and not supported",
        ),
        (b"\x97", 0, "NEXT_BUFFER is not used by snapshots and not supported"),
        (b"\xff", 0, "0xff is no opcode"),
        (b"\x80\x06", 0, "protocol 6 is not known, 2 to 5 are"),
        (b"h\x05", 0, "nothing is kept under number 5"),
        (b"j\x00\x00\x01\x00", 0, "nothing is kept under number 65536"),
        (b"Nr\xff\xff\xff\xff", 1, "nothing is kept under number 4294967295"),
        (b"(\x94", 1, "MEMOIZE finds too little on the stack"),
        (b"(a", 1, "APPEND finds too little on the stack"),
        (b"(\x85", 1, "TUPLE1 finds too little on the stack"),
        (b"(N\x87", 2, "TUPLE3 finds too little on the stack"),
        (b"(NNs", 3, "SETITEM finds too little on the stack"),
        (b"}(Nu", 3, "SETITEMS finds too little on the stack"),
        (b"(Nd", 2, "DICT finds too little on the stack"),
        (b"(2", 1, "DUP finds too little on the stack"),
        (b"NNa", 2, "APPEND expects a list"),
        (b")Na", 2, "APPEND expects a list"),
        (b"N(e", 2, "APPENDS expects a list"),
        (b"]NNs", 3, "SETITEM expects a dict"),
        (b"N(u", 2, "SETITEMS expects a dict"),
        (
            b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01",
            0,
            "an integer of 9 bytes does not fit 64 bits",
        ),
        (b"\x8b\xff\xff\xff\x7f", 0, "cut off: 2147483645 more bytes expected"),
        (
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
            0,
            "cut off: 18446744073709551613 more bytes expected",
        ),
    ];
    check_errors(&cases);
}

fn check_errors(cases: &[(&[u8], u64, &str)]) {
    for (opcodes, at, expected) in cases {
        let shown = String::from_utf8_lossy(opcodes);
        match read_value(opcodes) {
            Err(ReadError::Pickle { offset, kind }) => {
                assert_eq!(
                    (offset - VALUE_AT, kind.to_string().as_str()),
                    (*at, *expected),
                    "{shown:?}"
                );
            }
            other => assert_eq!(format!("{other:?}"), *expected, "{shown:?}"),
        }
    }
}
