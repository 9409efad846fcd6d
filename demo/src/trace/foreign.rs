//! Recognises files that are not traces. People have many files about memory, and some look like traces.

use super::error::Problem;
use super::lines::MARK;

/// How to get a readable file instead.
const SNAPSHOT: &str = "a memory snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes";
const LOG: &str = "the log of allocations is the CSV file that rmm.enable_logging(log_file_name=FILE) writes";
const TRACES: &str =
    "a trace is RMM's log, a memory snapshot of PyTorch's, or a CSV file with the header op,id,bytes,stream";

/// How far into a file its distinctive word may be, in bytes.
const NEAR: usize = 4096;

/// Recognises a file by its unpacked beginning, if it is a known format that is not read.
pub(super) fn named(head: &[u8]) -> Option<Problem> {
    let text = head.strip_prefix(MARK).unwrap_or(head).trim_ascii_start();
    let problem = |(is, instead)| Problem::Foreign { is, instead };
    compressed(head)
        .or_else(|| wide(head))
        .or_else(|| binary(head).map(problem))
        .or_else(|| words(text).map(problem))
        .or_else(|| json(text).map(problem))
}

fn compressed(head: &[u8]) -> Option<Problem> {
    match head {
        [0x1f, 0x8b, ..] => Some(Problem::CompressedTwice),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Problem::CompressedBy("zstd")),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Problem::CompressedBy("xz")),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Problem::CompressedBy("bzip2")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(Problem::CompressedBy("lz4")),
        _ => None,
    }
}

/// Recognises UTF-16 and UTF-32 by a byte order mark or by zero bytes.
fn wide(head: &[u8]) -> Option<Problem> {
    match head {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] | [1..=0x7f, 0, 0, 0, ..] | [0, 0, 0, 1..=0x7f, ..] => {
            Some(Problem::Wide("UTF-32"))
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=0x7f, 0, 1..=0x7f, ..] | [1..=0x7f, 0, 1..=0x7f, 0, ..] => {
            Some(Problem::Wide("UTF-16"))
        }
        _ => None,
    }
}

fn binary(head: &[u8]) -> Option<(&'static str, &'static str)> {
    /// The pickled number with which files of torch.save began before PyTorch 1.6.
    const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    if head.starts_with(b"PK\x03\x04") {
        let saved = near(head, b"data.pkl");
        return Some(match saved {
            true => (
                "a zip archive, as torch.save makes them",
                "take the pickle out of it (unzip -p FILE '*/data.pkl' > snapshot.pickle), or write the snapshot with pickle.dump",
            ),
            false => ("a zip archive", "unpack it first (unzip)"),
        });
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(("a tar archive", "unpack it first (tar -xf)"));
    }
    if !head.is_empty() && head.iter().all(|byte| *byte == 0) {
        return Some(("full of zeros", "it was not written or copied completely"));
    }
    let known: [(&[u8], _); 11] = [
        (LEGACY, ("what torch.save wrote before PyTorch 1.6", SNAPSHOT)),
        (b"7z\xbc\xaf\x27\x1c", ("a 7z archive", "unpack it first (7z x)")),
        (
            b"SQLite format 3\0",
            ("an SQLite database, as Nsight Systems exports them", TRACES),
        ),
        (b"PAR1", ("a Parquet file", TRACES)),
        (b"\x89HDF", ("an HDF5 file", TRACES)),
        (b"\x93NUMPY", ("an array of NumPy's", TRACES)),
        (b"\x89PNG", ("a picture", TRACES)),
        (b"\xff\xd8\xff", ("a picture", TRACES)),
        (b"GIF8", ("a picture", TRACES)),
        (b"%PDF", ("a PDF document", TRACES)),
        (b"\x7fELF", ("a program or a library", TRACES)),
    ];
    let oldest: [&[u8]; 4] = [b"(d", b"}q", b"(lp", b"]q"];
    if oldest.iter().any(|begin| head.starts_with(begin)) {
        return Some((
            "a pickle of protocol 0 or 1, and only 2 to 5 can be read",
            "write it again (pickle.dump(snapshot, file, protocol=4))",
        ));
    }
    let found = known.into_iter().find(|(begin, _)| head.starts_with(begin));
    found.map(|(_, what)| what)
}

fn words(text: &[u8]) -> Option<(&'static str, &'static str)> {
    if text.starts_with(b"version https://git-lfs.github.com/") {
        return Some((
            "a Git LFS pointer and not the file itself",
            "get the file (git lfs pull)",
        ));
    }
    if text.first() == Some(&b'<') {
        let head = text[..text.len().min(NEAR)].to_ascii_lowercase();
        return Some(match (near(&head, b"<html"), near(&head, b"<!doctype html")) {
            (false, false) => ("XML", TRACES),
            _ if near(&head, b"add_local_files") || near(&head, b"memoryviz") => (
                "an HTML page of PyTorch's memory viewer",
                "pass the snapshot that it was made from",
            ),
            _ => (
                "an HTML page",
                "a download may need a login, or the address of the file itself",
            ),
        });
    }
    if is_debug_log(text) {
        return Some(("RMM's debug log, which has no blocks", LOG));
    }
    if text.starts_with(b"time,op,current thread,") {
        return Some((
            "the log of thread states of Spark RAPIDS, which has no allocations",
            "the log of allocations is what spark.rapids.memory.gpu.debug=STDERR has written there",
        ));
    }
    None
}

/// Checks for lines such as `[ 24740][16:33:00:198816][info  ] ...`.
fn is_debug_log(text: &[u8]) -> bool {
    let Some(rest) = text.strip_prefix(b"[") else {
        return false;
    };
    let id = rest.trim_ascii_start();
    let digits = id.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0
        && id[digits..].strip_prefix(b"][").is_some_and(|time| {
            let time = &time[..time.len().min(9)];
            time.iter().filter(|byte| **byte == b':').count() >= 2
        })
}

fn json(text: &[u8]) -> Option<(&'static str, &'static str)> {
    let chrome = ("a Chrome trace, as torch.profiler exports them", SNAPSHOT);
    match text.first()? {
        b'{' => {
            // Only the first word counts, because the texts of a snapshot may have any word.
            let at = |word: &[u8]| text.windows(word.len()).position(|found| found == word);
            let words: [&[u8]; 6] = [
                b"\"segments\"",
                b"\"device_traces\"",
                b"\"traceEvents\"",
                b"\"allocated_bytes.",
                b"\"active.",
                b"\"allocation.",
            ];
            let first = (0..words.len()).filter_map(|word| Some((at(words[word])?, word))).min();
            match first?.1 {
                0 | 1 => None,
                2 => Some(chrome),
                _ => Some(("JSON of torch.cuda.memory_stats(), which has no allocations", SNAPSHOT)),
            }
        }
        b'[' => {
            let item = text[1..].trim_ascii_start();
            let number = item.strip_prefix(b"[").map(|list| list.trim_ascii_start());
            if matches!(number.and_then(<[u8]>::first), Some(b'0'..=b'9' | b'-')) {
                return Some((
                    "a memory timeline of torch.profiler (export_memory_timeline), which has no addresses",
                    SNAPSHOT,
                ));
            }
            let event = item.starts_with(b"{") && near(item, b"\"ph\"") && !near(item, b"\"blocks\"");
            event.then_some(chrome)
        }
        _ => None,
    }
}

/// Checks whether a word is near the beginning.
fn near(text: &[u8], word: &[u8]) -> bool {
    let text = &text[..text.len().min(NEAR)];
    text.windows(word.len()).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(head: &[u8]) -> String {
        named(head).map_or_else(String::new, |problem| problem.to_string())
    }

    /// Formats without a file in `tests/data/cases`.
    #[test]
    fn files_are_recognised_by_their_beginning() {
        for (head, expected) in [
            (&b"PK\x03\x04\x14\0notes.txt"[..], "is a zip archive: "),
            (
                b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M",
                "is what torch.save wrote before PyTorch 1.6: ",
            ),
            (b"7z\xbc\xaf\x27\x1c", "is a 7z archive: "),
            (b"SQLite format 3\0", "is an SQLite database"),
            (b"PAR1\x15", "is a Parquet file: "),
            (b"\x89PNG\r\n", "is a picture: "),
            (b"%PDF-1.7", "is a PDF document: "),
            (b"\x7fELF\x02", "is a program or a library: "),
            (b"\0\0\0", "is full of zeros: "),
            (b"<html><body>Sign in", "is an HTML page: a download"),
            (b"\xef\xbb\xbf\n<?xml version='1.0'?>", "is XML: "),
            (b"[{\"name\": \"x\", \"ph\": \"X\"}", "is a Chrome trace"),
            (b"{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", "is a Chrome trace"),
        ] {
            assert!(is(head).starts_with(expected), "{head:?}: {}", is(head));
        }
    }

    /// Only the first word counts, whatever follows.
    #[test]
    fn traces_are_not_mistaken_for_other_files() {
        for head in [
            &b"{\"segments\": [], \"x\": \"\\\"traceEvents\\\"\"}"[..],
            b"{\"device_traces\": [[]], \"traceEvents\": 1}",
            b"[{\"device\": 0, \"blocks\": [{\"ph\": 1}]}]",
            b"{\"x\": 1}",
            b"[]",
            b"[1",
            b"{",
            b"",
            b"Thread,Time,Action,Pointer,Size,Stream",
            b"op,id,bytes,stream",
            b"\x80\x04}",
        ] {
            assert_eq!(is(head), "", "{head:?}");
        }
    }
}
