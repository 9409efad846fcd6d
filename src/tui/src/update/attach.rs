//! Attaches to the selected process, after a question.

use crate::event::Effect;
use crate::model::{Model, Popup, Severity};

use super::toast;

/// Asks whether to attach to the selected process, or says why not.
pub(super) fn ask(model: &mut Model) -> Vec<Effect> {
    if model.setup.read_only {
        return toast(
            model,
            Severity::Info,
            "--readonly: the dashboard attaches to no process",
        );
    }
    let text = match model.attachable().map(|process| process.pid) {
        Some(pid) if model.attaching.contains(&pid) => format!("{pid}: it is being attached to"),
        Some(pid) => {
            model.ui.popup = Some(Popup::Attach { pid });
            return vec![Effect::Draw];
        }
        None => match model.selected_process() {
            Some(process) => format!("{} is not attached to: {}", process.pid, process.state_text()),
            None => "no process is selected".to_owned(),
        },
    };
    toast(model, Severity::Info, text)
}

/// Attaches to a process.
pub(super) fn start(model: &mut Model, pid: u32) -> Vec<Effect> {
    model.attaching.insert(pid);
    model.not_attached.remove(&pid);
    vec![Effect::Attach { pid }, Effect::Draw]
}

/// Takes the result. Why a process could not be attached to is shown in its place, too.
pub(super) fn end(model: &mut Model, pid: u32, result: Result<String, String>) -> Vec<Effect> {
    model.attaching.remove(&pid);
    match result {
        Ok(said) => toast(model, Severity::Info, said),
        Err(why) => {
            let text = format!("cannot attach to {pid}: {why}");
            model.not_attached.insert(pid, why);
            toast(model, Severity::Warning, text)
        }
    }
}
