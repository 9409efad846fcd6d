//! Whole texts and what becomes of each: a text, and indented below it its segments and notes, or its error.
#![allow(clippy::unwrap_used)]

use super::*;

/// The text with its verdict, as the files have it.
fn verdict(text: &str) -> String {
    let said = match Config::parse(text) {
        Ok(config) => {
            let notes = config.without_effect();
            let segments = format!("segments: {}", config.segments_on(true).name());
            let notes = notes.iter().map(|note| format!("\n    {note}"));
            segments + &notes.collect::<String>()
        }
        Err(error) => format!("error: {error}"),
    };
    format!("{text}\n    {said}\n")
}

#[track_caller]
fn come_out(file: &str) {
    let texts = file.lines().filter(|line| !line.starts_with("    "));
    let found: String = texts.map(verdict).collect();
    assert!(file == found, "{found}");
}

/// As people have them in `PYTORCH_CUDA_ALLOC_CONF`.
#[test]
fn settings_for_pytorch() {
    come_out(include_str!("cases/real.txt"));
}

/// What PyTorch's reading comes to where nobody would look for it, and options of ours beside PyTorch's.
#[test]
fn further_settings() {
    come_out(include_str!("cases/further.txt"));
}

/// A budget may come from elsewhere than the text.
#[test]
fn a_threshold_has_an_effect_with_any_budget() {
    let config = Config::parse("garbage_collection_threshold:0.8").unwrap();
    assert_eq!(
        (config.without_effect().len(), config.segments_on(true)),
        (1, SegmentMode::Stitched)
    );
    let config = Config {
        budget: Some(1 << 30),
        ..config
    };
    assert_eq!(
        (config.without_effect().len(), config.segments_on(true)),
        (0, SegmentMode::Plain)
    );
    config.check().unwrap();
}

#[test]
fn segments_that_are_chosen_later_are_as_those_of_the_text() {
    let told = Config::parse("max_split_size_mb:64,max_non_split_rounding_mb:30,segments:plain").unwrap();
    let plain = told.clone().with_segments(SegmentMode::Plain);
    assert_eq!((plain.max_split_size, plain.notes.len()), (Some(64 << 20), 0));
    let stitched = told.with_segments(SegmentMode::Stitched);
    assert_eq!(stitched.notes.len(), 1);
    assert_eq!(
        stitched.notes[0].options,
        ["max_split_size_mb", "max_non_split_rounding_mb"]
    );
    stitched.check().unwrap();
}
