#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Allocator;
use crate::device::{self, SimConfig};
use crate::history::{History, Stacks};
use crate::monitor::{Action, Measure, MonitorConfig};
use crate::rounding::Divisions;

const MIB: u64 = 1 << 20;

fn read(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| unreachable!("{text}: {error}"))
}

#[test]
fn nothing_said_is_the_default() {
    for text in [
        "",
        " ",
        "\t\n",
        "backend:native,",
        "large_segment_size_mb:20",
        "max_split_size_mb:64,max_split_size_mb:18446744073709551615",
        "large_segment_size_mb:12,large_segment_size_mb:20",
    ] {
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
         budget_mb:1024,budget_fraction:0.25,segments:plain,release_on_oom:False,job: my run 7 ,",
    );
    assert_eq!(
        (config.max_split_size, config.max_non_split_rounding),
        (Some(40 * MIB), 30 * MIB)
    );
    assert_eq!(
        (config.garbage_collection_threshold, config.budget_fraction),
        (Some(0.5), Some(0.25))
    );
    assert_eq!(
        (config.budget, read("max_chunk_mb:8").max_chunk),
        (Some(1024 * MIB), 8 * MIB)
    );
    assert_eq!((config.segments, config.release_on_oom), (SegmentMode::Plain, false));
    assert!(matches!(&config.publish, Publish::On(options) if options.job == "my run 7"));
    assert!(matches!(read("publish:off").publish, Publish::Off));
    let rdma = ["gpu_direct_rdma:True", "gpu_direct_rdma:False", ""].map(|text| read(text).gpu_direct_rdma);
    assert_eq!(rdma, [Some(true), Some(false), None]);
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
        ("segments:auto,expandable_segments:True", SegmentMode::Virtual),
        ("expandable_segments:False,segments:auto", SegmentMode::Plain),
        ("segments:stitched", SegmentMode::Stitched),
        ("expandable_segments:True,segments:stitched", SegmentMode::Stitched),
        ("segments:plain,expandable_segments:False", SegmentMode::Plain),
    ];
    for (text, mode) in cases {
        assert_eq!(read(text).segments, mode, "{text}");
    }
}

#[test]
fn a_monitor_is_a_word_or_a_list() {
    let text = |text: &str| format!("{:?}", read(text).monitor.unwrap());
    let usual = MonitorConfig::default();
    assert_eq!(text("monitor:warn"), format!("{usual:?}"));
    assert!(read("monitor:none").monitor.is_none() && read("monitor:warn,monitor:none").monitor.is_none());
    // The defaults as they are documented.
    let told = OPTIONS.iter().find(|option| option.name == "monitor").unwrap().about;
    let list = &told[told.find('[').unwrap()..=told.find(']').unwrap()];
    let same = MonitorConfig {
        below: Some(0.45),
        ..usual.clone()
    };
    assert_eq!(text(&format!("monitor:{list}")), format!("{same:?}"));
    assert!((usual.above * 0.9 - 0.45).abs() < 1e-9);
    let other = MonitorConfig {
        measure: Measure::Cached,
        action: Action::Compact,
        lasting: Duration::from_millis(2500),
        above: 0.75,
        least: 0,
        every: Duration::from_millis(20),
        ..usual
    };
    let list = "monitor:[of:cached, action:compact, seconds:2.5, ratio:0.75, least_mb:0, every_ms:20]";
    assert_eq!(text(list), format!("{other:?}"));
}

#[test]
fn a_history_is_a_word_or_a_list() {
    assert_eq!(read("history:on").history, History::ON);
    assert_eq!(read("history:on,history:off").history, History::Off);
    assert_eq!(read("history:[events:200000, stacks:alloc]").history, History::ON);
    let little = History::On {
        max_events: 10,
        stacks: Stacks::None,
    };
    assert_eq!(read("history:[stacks:none,events:10]").history, little);
    let allocator = Allocator::new(device::sim(SimConfig::default()), read("history:on,publish:off")).unwrap();
    assert!(allocator.history().is_some());
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

/// Each option can be given as its documentation says, and each has the name it is found by.
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
        let takes_any = ["job", "expandable_segments_reserve"].contains(&option.name);
        assert!(takes_any || any.is_err_and(|whose| whose == Some(option.name)));
        assert!(listing().contains(option.name) && markdown().contains(option.name));
        let default = Config::parse(&format!("{}:{}", option.name, option.default));
        let has_one = option.name != "job" && option.default != "-";
        if let Some(config) = default.ok().filter(|_| has_one) {
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
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    assert!(
        readme.contains(&markdown()),
        "put this into src/alloc/README.md:\n{}",
        markdown()
    );
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
