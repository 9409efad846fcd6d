//! The labels that distinguish simulated from real devices.

use super::fixture;
use super::gallery::drawn;
use super::rules::SIZES;
use super::screens::text;
use crate::model::{Colors, Model, View};

/// Returns a simulated device alone on the machine, and one selected beside a real GPU.
fn both_simulated() -> [Model; 2] {
    let alone = fixture::simulated();
    let mut beside = fixture::several();
    let other = &beside.live.processes[4];
    beside.ui.process = Some(other.id);
    beside.ui.device = Some(other.id.device);
    beside.map = alone.map.clone();
    beside.demo = alone.demo.clone();
    [alone, beside]
}

#[test]
fn every_view_labels_simulated_devices() {
    for view in [View::Overview, View::Blocks, View::Timeline, View::Demo] {
        for mut model in both_simulated() {
            model.ui.view = view;
            for (w, h) in SIZES {
                let (buffer, _) = drawn(model.clone(), w, h, Colors::Mono, false);
                assert!(
                    text(&buffer).contains("SIMULATED"),
                    "{view:?} at {w}x{h}:\n{}",
                    text(&buffer)
                );
            }
        }
    }
}

/// The label is shorter in the smallest terminals, and never cut.
#[test]
fn simulated_devices_are_labelled_at_every_size() {
    let cut = |text: &str| {
        let words = text.split(|c: char| !c.is_alphabetic());
        let whole = ["SIM", "SIMULATED"];
        words.filter(|w| w.starts_with("SIM")).any(|w| !whole.contains(&w))
    };
    for view in [View::Overview, View::Blocks, View::Timeline, View::Demo] {
        for (mut model, least) in both_simulated().into_iter().zip([3, 5]) {
            model.ui.view = view;
            for (w, h) in (least..=90).flat_map(|w| [2, 3, 4, 5, 8, 10, 13, 20, 24, 31].map(|h| (w, h))) {
                let (buffer, _) = drawn(model.clone(), w, h, Colors::Mono, false);
                let text = text(&buffer);
                assert!(text.contains("SIM") && !cut(&text), "{view:?} at {w}x{h}:\n{text}");
            }
        }
    }
}

#[test]
fn simulated_process_is_labelled_beside_real_ones() {
    let [_, mut beside] = both_simulated();
    beside.ui.view = View::Overview;
    let pid = beside.selected_process().unwrap().pid.to_string();
    for w in 24..=200 {
        let (buffer, _) = drawn(beside.clone(), w, 40, Colors::Mono, false);
        let text = text(&buffer);
        let row = text
            .lines()
            .find(|line| line.trim_start_matches(['│', ' ']).starts_with(&pid));
        let row = row.unwrap_or_else(|| panic!("at {w}:\n{text}"));
        assert!(row.contains("SIM"), "at {w}: {row}");
    }
}

#[test]
fn real_gpu_is_never_labelled_simulated() {
    for view in [View::Overview, View::Blocks, View::Timeline] {
        let mut model = fixture::h100();
        model.ui.view = view;
        let (buffer, _) = drawn(model, 120, 40, Colors::Mono, false);
        assert!(!text(&buffer).contains("SIMULATED"));
    }
}
