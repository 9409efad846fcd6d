#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

const TORCH: &str = "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 100.19 MiB is \
    free. Including non-PyTorch memory, this process has 79.05 GiB memory in use. Of the allocated memory 78.00 GiB is allocated by \
    PyTorch, and 140.00 MiB is reserved by PyTorch but unallocated.";

#[test]
fn message_is_the_same_however_its_lines_are_broken() {
    let whole = triage(TORCH);
    assert_eq!(whole.verdict, Verdict::Exhausted);
    for width in [1, 7, 40, 80] {
        let letters: Vec<char> = TORCH.chars().collect();
        let broken: Vec<String> = letters.chunks(width).map(|line| line.iter().collect()).collect();
        let report = triage(&broken.join("\n"));
        assert_eq!(
            (report.verdict, report.figures),
            (whole.verdict, whole.figures.clone()),
            "{width}"
        );
    }
}

#[test]
fn first_failure_in_time_is_the_cause() {
    let text = "2026-11-28T03:12:09Z [rank0]: RuntimeError: CUDA error: out of memory\n\
                2026-11-28T03:12:04Z [rank5]: DataLoader worker (pid 71) is killed by signal: Bus error.\n\
                2026-11-28T03:12:08Z [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    let report = triage(text);
    let evidence = report.evidence.unwrap();
    assert_eq!(
        (
            report.verdict,
            report.allocator,
            evidence.rank,
            evidence.line,
            report.further
        ),
        (Verdict::SharedMemory, Allocator::SharedMemory, Some(5), 2, 2)
    );
}

#[test]
fn what_is_missing_is_said_with_how_to_get_it() {
    let report = triage("RuntimeError: CUDA error: out of memory");
    assert_eq!(
        (report.verdict, report.allocator),
        (Verdict::Incomplete, Allocator::Unknown)
    );
    assert!(report.missing.len() >= 3, "{:?}", report.missing);
    assert!(!report.fixes.is_empty());
}

#[test]
fn every_verdict_that_can_be_helped_has_a_fix_and_a_line_to_type() {
    for (figures, verdict) in [
        ((8, 80, 4, 60, 12), Verdict::Fragmentation),
        ((8, 80, 4, 74, 1), Verdict::Exhausted),
        ((90, 80, 70, 1, 0), Verdict::RequestTooLarge),
        ((8, 80, 4, 10, 1), Verdict::OtherProcess),
        ((8, 80, 40, 30, 1), Verdict::NotCapacity),
        ((8, 80, 81, 30, 1), Verdict::Inconsistent),
    ] {
        let gib = |size: u64| Some(size << 30);
        let report = triage_figures(
            Figures {
                requested: gib(figures.0),
                total: gib(figures.1),
                free: gib(figures.2),
                allocated: gib(figures.3),
                unallocated: gib(figures.4),
                ..Figures::default()
            },
            false,
        );
        assert_eq!(report.verdict, verdict);
        assert!(!report.fixes.is_empty(), "{verdict:?}");
        let typed = report.fixes.iter().any(|fix| fix.line.is_some());
        assert!(typed || verdict == Verdict::RequestTooLarge, "{verdict:?}");
    }
}

#[test]
fn quotes_are_cleaned_and_cut() {
    let report = triage(&format!(
        "\x1b[31m\x1b]0;title\x07CUDA out of memory\x1b[2J{}",
        "x".repeat(10_000)
    ));
    let quote = report.evidence.unwrap().text;
    assert!(quote.chars().count() <= 161 && !quote.contains('\x1b'), "{quote}");
}

/// Pieces of messages, which random texts are put together from: whole messages are not found by chance.
fn piece() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        TORCH,
        "CUDA out of memory. Tried to allocate ",
        "99999999999999999999999999 GiB",
        "GPU 0 has a total capacity of ",
        " of which ",
        " is free. ",
        "Process 4294967296 has ",
        " memory in use. ",
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate ",
        "Limit: 18446744073709551615 InUse: 18446744073709551615",
        "OOM when allocating tensor with shape[99999999999,99999999999] and type float",
        "Device 0 OOM 99999999999999999999 / 1",
        "Out of memory allocating 99,999,999,999,999,999,999,999 bytes (allocated so far: 1 bytes, limit set to: 0 bytes)",
        "\n[rank3]: ",
        "\n2026-11-28T03:12:01Z ",
        "\n{\"log\":\"\\n",
        "retrying with batch size ",
        "NVRM: Xid (PCI:0000:01:00): 79",
    ];
    prop_oneof![
        4 => proptest::sample::select(KNOWN).prop_map(str::to_owned),
        1 => ".{0,20}",
        1 => "[0-9]{1,25}(\\.[0-9]{1,3})? ?([KMGT]iB|bytes)",
    ]
}

proptest! {
    #[test]
    fn no_text_panics(pieces in proptest::collection::vec(piece(), 0..12)) {
        let text = pieces.concat();
        let report = triage(&text);
        prop_assert!(report.evidence.is_some() || report.verdict == Verdict::Nothing);
        prop_assert!(report.evidence.is_none_or(|evidence| evidence.line >= 1 && evidence.line <= text.lines().count()));
    }
}

/// Databases number their transactions by the word that the driver has for its errors.
#[test]
fn xid_of_a_database_is_no_fault_of_a_card() {
    assert_eq!(
        triage("LOG:  checkpoint starting: xid: 79, wal").verdict,
        Verdict::Nothing
    );
    assert_eq!(
        triage("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.").verdict,
        Verdict::Hardware
    );
}

/// A traceback behind a rank's line need not be that rank's.
#[test]
fn line_without_a_prefix_is_of_nobody() {
    let report = triage(&format!("[rank7]: step 12 loss 0.3\n{TORCH}"));
    let evidence = report.evidence.unwrap();
    assert_eq!((evidence.rank, evidence.source, evidence.line), (None, None, 2));
    assert_eq!(report.verdict, Verdict::Exhausted);
}
