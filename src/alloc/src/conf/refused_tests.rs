//! What cannot be read, and what is said about it.
#![allow(clippy::unwrap_used)]

use super::*;

fn refused(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let cases = [
        (
            "max_splt_size_mb:20",
            "column 1: there is no option \"max_splt_size_mb\": did you mean max_split_size_mb?",
        ),
        (
            "budget_mb:8, max_split_size:20",
            "column 14: there is no option \"max_split_size\": did you mean max_split_size_mb?",
        ),
        (
            "qwertyuiop:1",
            "column 1: there is no option \"qwertyuiop\": `gpumem-tui replay --conf help` lists the options",
        ),
        (
            "max_split_size_mb:19",
            "column 19: max_split_size_mb must be at least 20, not 19",
        ),
        (
            "max_split_size_mb:half",
            "column 19: max_split_size_mb takes a whole number of MiB, not \"half\"",
        ),
        (
            "budget_mb:512MB",
            "column 11: budget_mb takes a whole number of MiB, not \"512MB\"",
        ),
        (
            "budget_mb:99999999999999999",
            "column 11: budget_mb must be less than 17592186044416, not 99999999999999999",
        ),
        ("budget_mb:[1:2]", "column 11: budget_mb takes one value, not a list"),
        (
            "budget_mb",
            "column 10: expected a colon and a value behind the option, found the end",
        ),
        ("budget_mb:", "column 11: expected a value, found the end"),
        ("budget_mb:,", "column 11: expected a value, found ','"),
        (
            "budget_mb:1:2",
            "column 12: expected a comma between options, found ':'",
        ),
        (":1", "column 1: expected the name of an option, found ':'"),
        (
            "garbage_collection_threshold:1.0",
            "column 30: garbage_collection_threshold takes a number above 0 and below 1, not \"1.0\"",
        ),
        (
            "budget_fraction:nan",
            "column 17: budget_fraction takes a number above 0 and at most 1, not \"nan\"",
        ),
        (
            "expandable_segments:true",
            "column 21: expandable_segments takes True or False, not \"true\"",
        ),
        (
            "segments:virtul",
            "column 10: segments takes auto or plain or virtual or stitched, not \"virtul\"",
        ),
        (
            "max_chunk_mb:3",
            "column 14: max_chunk_mb takes a power of two, not \"3\"",
        ),
        (
            "foo:1",
            "column 1: there is no option \"foo\": `gpumem-tui replay --conf help` lists the options",
        ),
        (
            "roundup_power2_divisions:[64:8",
            "column 31: expected a comma or the list's closing bracket, found the end",
        ),
        (
            "roundup_power2_divisions:[64:3]",
            "column 30: roundup_power2_divisions takes powers of two, or 0 for none, not \"3\"",
        ),
        (
            "roundup_power2_divisions:[65:4]",
            "column 27: roundup_power2_divisions takes sizes in MiB that are powers of two, not \"65\"",
        ),
        (
            "roundup_power2_divisions:0",
            "column 26: roundup_power2_divisions takes a power of two, not \"0\"",
        ),
        (
            "publish:off,job:x",
            "column 13: job labels what is published, and publish:off publishes nothing",
        ),
        (
            "segments:virtual,expandable_segments:False",
            "column 18: expandable_segments contradicts segments:virtual: leave one of them out",
        ),
        (
            "history:[events:99999999]",
            "column 17: history (events) takes a number of events, at most 67108864, not \"99999999\"",
        ),
        (
            "history:[stacks:some]",
            "column 17: history (stacks) takes none or alloc or all, not \"some\"",
        ),
        (
            "history:[stack:all]",
            "column 10: history takes events and stacks, not \"stack\"",
        ),
        (
            "monitor:yes",
            "column 9: monitor takes none or warn or release or compact, not \"yes\"",
        ),
        (
            "monitor:[ratio:50]",
            "column 16: monitor (ratio) takes a number above 0 and below 1, not \"50\"",
        ),
        (
            "monitor:[ratio:0.3,below:0.4]",
            "column 9: monitor has an episode end (below) at a higher ratio than it begins",
        ),
        (
            "monitor:[seconds:-1]",
            "column 18: monitor (seconds) takes a number of seconds from 0 to 2^64, not \"-1\"",
        ),
        (
            "monitor:[every_ms:0]",
            "column 19: monitor (every_ms) takes at least 1 ms, not \"0\"",
        ),
        (
            "monitor:[ratios:0.3]",
            "column 10: monitor takes action, of, ratio, below, seconds, least_mb and every_ms, not \"ratios\"",
        ),
        (
            "b\u{1b}[2J:1",
            "column 1: there is no option \"b\u{fffd}\": `gpumem-tui replay --conf help` lists the options",
        ),
        (
            "job[2J:1",
            "column 4: expected a colon and a value behind the option, found '['",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected, "{text:?}");
    }
    let hostile = refused(&format!("\u{1b}]0;x\u{7}{}:1", "y".repeat(5000)));
    assert!(!hostile.contains('\u{1b}') && hostile.len() < 200, "{hostile}");
}

/// By the names that they have in the text, and where.
#[test]
fn options_that_do_not_go_together_are_named() {
    for (text, column, option, why) in [
        (
            "gpu_direct_rdma:True,segments:plain",
            1,
            "gpu_direct_rdma",
            "means nothing with plain segments",
        ),
        (
            "segments:plain,max_chunk_mb:4",
            16,
            "max_chunk_mb",
            "means nothing with plain segments",
        ),
        (
            "max_chunk_mb:4,expandable_segments:False",
            1,
            "max_chunk_mb",
            "means nothing with plain segments",
        ),
    ] {
        let error = Config::parse(text).unwrap_err();
        assert_eq!((error.column, error.option), (column, Some(option)), "{text}");
        assert!(error.reason.starts_with(why), "{error}");
    }
}
