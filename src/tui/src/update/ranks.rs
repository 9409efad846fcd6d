//! The popup that shows the ranks of the selected process's job side by side.

use crate::event::Effect;
use crate::model::{Model, Popup, Process, Severity};

use super::{overview, toast};

/// Opens the popup, or says why there is nothing to compare.
pub(super) fn open(model: &mut Model) -> Vec<Effect> {
    let Some(process) = model.selected_process() else {
        return Vec::new();
    };
    if model.selected_job().is_none() {
        let text = why_none(process, &model.world().name_of(process));
        return toast(model, Severity::Info, text);
    }
    model.ui.popup = Some(Popup::Ranks);
    vec![Effect::Draw]
}

fn why_none(process: &Process, name: &str) -> String {
    match process.rank {
        _ if !process.state.alive() => format!("{name} has ended: r compares the ranks of a job that runs"),
        Some(rank) => format!("{name} is rank {rank}, and no other rank of its job is known here"),
        None => format!("{name} has no rank: r compares the ranks of a distributed job"),
    }
}

/// Selects the rank that `to` returns, given the place of the selected rank and that of the last.
pub(super) fn select(model: &mut Model, to: impl Fn(usize, usize) -> usize) {
    let target = model.selected_job().and_then(|(job, rank)| {
        let last = job.ranks.len().saturating_sub(1);
        Some(job.ranks.get(to(job.place(rank), last))?.id)
    });
    if target.is_some() {
        overview::select_process(model, target);
    }
}
