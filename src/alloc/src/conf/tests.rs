#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::rounding::Divisions;

const MIB: u64 = 1 << 20;

fn read(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| unreachable!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn nothing_said_is_the_default() {
    for text in ["", " ", "\t\n", "backend:native", "release_lock_on_cudamalloc:True,"] {
        assert_eq!(
            format!("{:?}", read(text)),
            format!("{:?}", Config::default()),
            "{text:?}"
        );
    }
    assert!(Config::parse(",").is_err());
}

#[test]
fn every_option_is_read() {
    let config = read(
        "max_split_size_mb:40, max_non_split_rounding_mb : 30,garbage_collection_threshold:0.5,\
         budget_mb:1024,budget_fraction:0.25,segments:plain,max_chunk_mb:8,release_on_oom:False,job: my run 7 ,",
    );
    assert_eq!(
        (config.max_split_size, config.max_non_split_rounding),
        (Some(40 * MIB), 30 * MIB)
    );
    assert_eq!(
        (config.garbage_collection_threshold, config.budget_fraction),
        (Some(0.5), Some(0.25))
    );
    assert_eq!((config.budget, config.max_chunk), (Some(1024 * MIB), 8 * MIB));
    assert_eq!((config.segments, config.release_on_oom), (SegmentMode::Plain, false));
    assert!(matches!(&config.publish, Publish::On(options) if options.job == "my run 7"));
    assert!(matches!(read("publish:off").publish, Publish::Off));
    assert_eq!(read("per_process_memory_fraction:1").budget_fraction, Some(1.0));
    assert_eq!(
        read("budget_mb:5,budget_mb:7").budget,
        Some(7 * MIB),
        "the last one counts"
    );
    config.check().unwrap();
}

/// The spaces in words are PyTorch's idea.
#[test]
fn spaces_are_anywhere() {
    assert_eq!(read(" bud get_mb : 1 0 2 4 ").budget, Some(1024 * MIB));
}

#[test]
fn segments_have_two_names() {
    let cases = [
        ("expandable_segments:True", SegmentMode::Virtual),
        ("expandable_segments:False", SegmentMode::Plain),
        ("segments:stitched", SegmentMode::Stitched),
        ("expandable_segments:True,segments:stitched", SegmentMode::Stitched),
        ("segments:plain,expandable_segments:False", SegmentMode::Plain),
    ];
    for (text, mode) in cases {
        assert_eq!(read(text).segments, mode, "{text}");
    }
    assert_eq!(
        refused("segments:virtual,expandable_segments:False"),
        "column 18: expandable_segments contradicts segments:virtual: leave one of them out"
    );
    assert!(Config::parse("segments:plain,expandable_segments:True").is_err());
}

/// The values of PyTorch's own test (`c10/test/core/AllocatorConfig_test.cpp`): parts by MiB.
#[test]
fn lists_of_divisions_mean_what_they_mean_in_pytorch() {
    let cases: [(&str, &[(u64, u64)]); 3] = [
        (
            "[64:8,128:2,256:4,512:2,1024:4,>:1]",
            &[
                (32, 8),
                (64, 8),
                (128, 2),
                (256, 4),
                (512, 2),
                (1024, 4),
                (2048, 1),
                (4096, 1),
            ],
        ),
        (
            "[128:8,256:16,512:1,2048:8,>:2]",
            &[(64, 8), (128, 8), (256, 16), (512, 1), (1024, 0), (2048, 8), (4096, 2)],
        ),
        ("4", &[(64, 4), (256, 4), (2048, 4)]),
    ];
    for (text, expected) in cases {
        let divisions = read(&format!("roundup_power2_divisions:{text}")).roundup_power2_divisions;
        for (mib, parts) in expected {
            // Just above the power of two comes the first part, or the next multiple of 512 B where there are none.
            let part = if *parts > 1 { mib * MIB / parts } else { 512 };
            assert_eq!(divisions.round(mib * MIB + 1), mib * MIB + part, "{text} at {mib}");
        }
    }
    assert_eq!(
        read("roundup_power2_divisions:[]").roundup_power2_divisions,
        Divisions::default()
    );
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
            "max_split_size_mb:1.5",
            "column 19: max_split_size_mb takes a whole number of MiB, not \"1.5\"",
        ),
        (
            "max_split_size_mb:-5",
            "column 19: max_split_size_mb takes a whole number of MiB, not \"-5\"",
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
            "column 10: segments takes plain or virtual or stitched, not \"virtul\"",
        ),
        (
            "max_chunk_mb:3",
            "column 14: max_chunk_mb takes a power of two, not \"3\"",
        ),
        (
            "large_segment_size_mb:15",
            "column 23: large_segment_size_mb is always 20 here: leave it out",
        ),
        (
            "backend:cudaMallocAsync",
            "column 9: backend is native only: the driver's own pool (cudaMallocAsync) is another allocator",
        ),
        (
            "pinned_num_register_threads:8",
            "column 1: pinned_num_register_threads is about pinned host memory, which this allocator does not hand out: leave it out",
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
            "roundup_power2_divisions:[64:4,32:4]",
            "column 32: roundup_power2_divisions takes sizes from small to large, each once",
        ),
        (
            "roundup_power2_divisions:[>:4]",
            "column 27: roundup_power2_divisions needs a size before the rest (>)",
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
            "b\u{1b}[2J:1",
            "column 3: expected a colon and a value behind the option, found '['",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected, "{text:?}");
    }
    let hostile = refused(&format!("\u{1b}]0;x\u{7}{}:1", "y".repeat(5000)));
    assert!(!hostile.contains('\u{1b}') && hostile.len() < 200, "{hostile}");
}

/// Each option that is not refused can be given as its documentation says, and each has the name it is found by.
#[test]
fn the_list_is_complete() {
    for option in OPTIONS {
        assert!(
            !option.about.is_empty()
                && option
                    .name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
        );
        assert_eq!(
            OPTIONS.iter().filter(|other| other.name == option.name).count(),
            1,
            "{}",
            option.name
        );
        let any = Config::parse(&format!("{}:\u{1}", option.name)).map_err(|error| error.option);
        assert!(option.name == "job" || any.is_err_and(|whose| whose == Some(option.name)));
        assert!(listing().contains(option.name) && markdown().contains(option.name));
        let default = Config::parse(&format!("{}:{}", option.name, option.default));
        if let Some(config) = default.ok().filter(|_| option.name != "job") {
            assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()), "{option:?}");
        }
    }
    assert!(
        listing().lines().all(|line| line.chars().count() <= 80),
        "{}",
        listing()
    );
}

/// What the README tells is what is.
#[test]
fn the_readme_has_this_table() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    assert!(readme.contains(&markdown()), "put this into README.md:\n{}", markdown());
}

proptest! {
    /// Whatever is said, the answer is a configuration or an error that has a place.
    #[test]
    fn any_text_is_answered(text in "([a-z_:,\\[\\]>0-9. ]|\\PC){0,80}") {
        if let Err(error) = Config::parse(&text) {
            prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1, "{error}");
        }
    }

    #[test]
    fn any_value_of_any_option_is_answered(at in 0..OPTIONS.len(), value in "\\PC{0,20}") {
        let text = format!("{}:{value}", OPTIONS[at].name);
        if let Err(error) = Config::parse(&text) {
            prop_assert!(error.column <= text.chars().count() + 1, "{error}");
        }
    }
}
