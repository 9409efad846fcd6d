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
