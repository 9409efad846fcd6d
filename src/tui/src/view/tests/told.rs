//! What is said of what is missing, hidden or too long.

use super::fixture;
use super::gallery::drawn;
use super::rules::at_80x24;
use super::screens::text;
use crate::model::*;

#[test]
fn a_black_box_whose_blocks_are_not_read_yet_says_so() {
    let mut model = fixture::h100();
    model.ui.view = View::Blocks;
    model.map = None;
    model.live.processes[0].state = ProcessState::Died;
    let told = at_80x24(&model);
    assert!(told.contains("4121 died (black box): its map is being read."), "{told}");
    model.frozen = Some(Box::new(model.live.clone()));
    assert!(at_80x24(&model).contains("when p resumes"));
}

#[test]
fn where_nobody_publishes_the_timeline_knows_of_no_events() {
    let mut model = fixture::h100();
    model.ui.view = View::Timeline;
    model.live.devices[0].history.marks.clear();
    let told = |model: &Model| {
        let text = text(&drawn(model.clone(), 120, 40, Colors::Mono, false).0);
        let line = text.lines().find(|line| line.contains("No "));
        line.unwrap_or_default().trim_matches(['│', ' ']).to_owned()
    };
    assert_eq!(
        told(&model),
        "No event in this span: nobody who publishes took or returned memory."
    );
    model.live.past = model.live.processes[3..].iter().map(|p| p.id).collect();
    model.live.processes.drain(..2);
    model.ui.process = None;
    model.rows = vec![0];
    assert_eq!(
        told(&model),
        "No process here publishes events: what is taken and returned is not known."
    );
}
