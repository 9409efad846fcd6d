//! Which samples cause a redraw.

use std::time::Duration;

use gpumem_channel::BlockState::{Allocated, Free};

use super::sample::*;
use crate::event::{Effect, Event};
use crate::model::{Model, Nanos, SECOND, SourceId, Taken, View};
use crate::update::update;

/// A machine that has not changed for ten seconds, and the channel of its publisher.
fn quiet(view: View) -> (Model, gpumem_channel::Snapshot) {
    let publisher = channel(11, &[&[(GIB, Allocated), (GIB, Free)]]);
    let snapshot = (*publisher.snapshot).clone();
    let mut model = model();
    for second in 1..=10 {
        let at = second * SECOND;
        update(&mut model, at, nvml(at, 5 * GIB, &[(11, 2 * GIB)]));
        update(&mut model, at, channels(at, vec![publisher.clone()]));
    }
    model.ui.view = view;
    (model, snapshot)
}

/// Feeds the same samples again at a second. Returns whether anything was drawn.
fn same_again(model: &mut Model, second: Nanos, snapshot: &gpumem_channel::Snapshot) -> bool {
    let at = second * SECOND;
    let mut publisher = channel(11, &[&[(GIB, Allocated), (GIB, Free)]]);
    publisher.snapshot = std::sync::Arc::new(snapshot.clone());
    let first = update(model, at, nvml(at, 5 * GIB, &[(11, 2 * GIB)]));
    let second = update(model, at, channels(at, vec![publisher]));
    [first, second].concat().contains(&Effect::DrawSoon)
}

#[test]
fn quiet_overview_is_drawn_every_fifth_second() {
    for view in [View::Overview, View::Demo] {
        let (mut model, snapshot) = quiet(view);
        let drawn = (11..=21).filter(|&s| same_again(&mut model, s, &snapshot));
        assert_eq!(drawn.collect::<Vec<_>>(), [15, 20], "{view:?}");
    }
}

#[test]
fn timeline_is_drawn_with_every_sample() {
    let (mut model, snapshot) = quiet(View::Timeline);
    assert!((11..=14).all(|s| same_again(&mut model, s, &snapshot)));
}

#[test]
fn blocks_are_drawn_when_the_shown_age_changes() {
    let (mut model, snapshot) = quiet(View::Blocks);
    // The blocks are as old as the clock, and ages below a minute are shown in seconds.
    assert!((11..=14).all(|s| same_again(&mut model, s, &snapshot)));
    for second in 55..=61 {
        same_again(&mut model, second, &snapshot);
    }
    assert!((62..=64).all(|s| !same_again(&mut model, s, &snapshot)));
}

type Change = fn(Nanos) -> Event;

#[test]
fn changed_samples_are_drawn() {
    let changes: [(&str, Change); 5] = [
        ("the driver's count", |at| nvml(at, 5 * GIB + MIB, &[(11, 2 * GIB)])),
        ("a process's bytes", |at| nvml(at, 5 * GIB, &[(11, 2 * GIB + MIB)])),
        ("who runs a process", |at| processes(at, &[(11, "ana", 0)])),
        ("a process comes", |at| nvml(at, 5 * GIB, &[(11, 2 * GIB), (12, 0)])),
        ("a publisher's blocks", |at| {
            channels(at, vec![channel(11, &[&[(GIB / 2, Allocated), (GIB, Free)]])])
        }),
    ];
    for (what, event) in changes {
        let (mut model, _) = quiet(View::Overview);
        let at = 11 * SECOND;
        assert_eq!(update(&mut model, at, event(at)), [Effect::DrawSoon], "{what}");
    }
}

#[test]
fn source_that_answers_again_is_drawn_without_changes() {
    let (mut model, _) = quiet(View::Overview);
    // The other source was sampled meanwhile; the driver is late.
    let at = 14 * SECOND;
    model
        .live
        .times
        .note(SourceId::Channels, Taken::new(at, Duration::from_secs(1)));
    assert_eq!(update(&mut model, at, Event::Tick), [Effect::DrawSoon]);
    assert_eq!(
        update(&mut model, at, nvml(at, 5 * GIB, &[(11, 2 * GIB)])),
        [Effect::DrawSoon]
    );
}

#[test]
fn look_up_without_changes_only_updates_its_time() {
    let (mut model, _) = quiet(View::Overview);
    let at = |second: Nanos| second * SECOND;
    update(&mut model, at(11), processes(at(11), &[(11, "ana", 0)]));
    let again = update(&mut model, at(12), processes(at(12), &[(11, "ana", 0)]));
    assert_eq!(again, []);
    assert_eq!(model.live.times.of(SourceId::Processes), Some(at(12)));
}
