//! Attaching to a process that does not publish.

use super::sample::*;
use crate::event::{Effect, Event, Key};
use crate::model::*;

use super::super::update;

/// A model whose selected process is listed by NVML and does not publish.
fn unpublished() -> Model {
    let mut model = model();
    feed(&mut model, [nvml(SECOND, 9 * GIB, &[(77, 8 * GIB)])]);
    model
}

fn press(model: &mut Model, key: Key) -> Vec<Effect> {
    update(model, SECOND, Event::Key(key))
}

fn end(model: &mut Model, result: Result<&str, &str>) {
    let result = result.map(str::to_owned).map_err(str::to_owned);
    update(model, SECOND, Event::Attached { pid: 77, result });
}

#[test]
fn a_asks_once_and_enter_attaches() {
    let mut model = unpublished();
    press(&mut model, Key::Char('a'));
    assert_eq!(model.ui.popup, Some(Popup::Attach { pid: 77 }));
    assert!(!press(&mut model, Key::Esc).contains(&Effect::Attach { pid: 77 }));
    assert_eq!(model.ui.popup, None);
    press(&mut model, Key::Char('a'));
    assert!(press(&mut model, Key::Enter).contains(&Effect::Attach { pid: 77 }));
    // It is under way.
    press(&mut model, Key::Char('a'));
    assert_eq!(model.ui.popup, None);
    end(&mut model, Err("it has ended"));
    assert_eq!(model.not_attached.get(&77).map(String::as_str), Some("it has ended"));
    press(&mut model, Key::Char('a'));
    press(&mut model, Key::Enter);
    assert!(model.not_attached.is_empty(), "it is tried again");
    end(&mut model, Ok("77 publishes now"));
    assert!(model.attaching.is_empty() && model.not_attached.is_empty());
}

#[test]
fn publishers_and_simulated_processes_are_not_attached_to() {
    let mut model = model();
    feed(&mut model, [channels(SECOND, vec![channel(4, &[&[]])])]);
    assert!(model.attachable().is_none() && model.selected_process().is_some());
    press(&mut model, Key::Char('a'));
    assert_eq!(model.ui.popup, None);
    let mut nobody = Model::default();
    press(&mut nobody, Key::Char('a'));
    assert_eq!(nobody.ui.popup, None);
}

#[test]
fn readonly_attaches_to_nothing() {
    let mut model = unpublished();
    model.setup.read_only = true;
    press(&mut model, Key::Char('a'));
    assert_eq!(model.ui.popup, None);
    assert!(
        model
            .ui
            .toast
            .as_ref()
            .is_some_and(|toast| toast.text.contains("--readonly"))
    );
}
