//! The notice at the top of the Overview when a source fails.

use gpumem_probe::NvmlState;
use ratatui::text::{Line, Span};

use crate::model::{Demo, DemoPhase, Model};
use crate::view::theme::{Ink, Theme};
use crate::words;
use crate::wrap::wrap;

/// A problem, and what the user can do about it.
struct Notice {
    /// A warning has a mark.
    ink: Ink,
    what: String,
    /// What to do; empty if there is nothing.
    hint: String,
}

/// Returns the lines of the notice and a blank line, or none if nothing is wrong.
pub(super) fn lines(model: &Model, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let Some(Notice { ink, what, hint }) = Notice::of(model) else {
        return Vec::new();
    };
    let room = width.saturating_sub(4);
    let what = wrap(&what, room).into_iter().map(|line| (line, Ink::Strong));
    let hint = wrap(&hint, room).into_iter().map(|line| (line, Ink::Dim));
    let lines = what.chain(hint).chain([(String::new(), Ink::Plain)]).enumerate();
    let line = |(i, (text, look))| {
        let mark = match ink {
            Ink::Warning if i == 0 => Span::styled(theme.glyph(ink).to_string(), theme.ink(ink)),
            _ => Span::raw(" "),
        };
        Line::from_iter([
            Span::raw(" "),
            mark,
            Span::raw(" "),
            Span::styled(text, theme.ink(look)),
        ])
    };
    lines.map(line).collect()
}

impl Notice {
    fn new(ink: Ink, what: impl Into<String>, hint: impl Into<String>) -> Notice {
        let (what, hint) = (what.into(), hint.into());
        Notice { ink, what, hint }
    }

    fn of(model: &Model) -> Option<Notice> {
        let none = model.world().devices.is_empty();
        Some(match &model.world().nvml {
            NvmlState::Failed { error, hint } => {
                Notice::new(Ink::Warning, format!("NVML fails: {error}"), words::sentence(hint))
            }
            NvmlState::Starting if none && model.setup.only_simulated() => nothing_simulated(model),
            NvmlState::Starting if none => Notice::new(Ink::Dim, "Asking the driver ...", ""),
            NvmlState::Missing if none => {
                let what = match &model.setup.nvml {
                    Some(file) => format!("GPUMEM_NVML names {file}, which is not on this machine."),
                    None => "No NVIDIA driver on this machine (libnvidia-ml.so.1 is not installed).".to_owned(),
                };
                Notice::new(Ink::Warning, what, without_driver(model))
            }
            NvmlState::Ready if let Some(missing) = model.missing_devices() => Notice::new(
                Ink::Warning,
                words::sentence(&missing),
                "gpumem-tui without --device shows all.",
            ),
            NvmlState::Ready if none => Notice::new(
                Ink::Plain,
                "The driver answers and lists no GPU.",
                "In a container, ask for one (docker run --gpus all). gpumem-tui doctor looks further.",
            ),
            _ => return None,
        })
    }
}

/// Returns what can be seen without a driver, or what prevents it.
fn without_driver(model: &Model) -> String {
    match model.demo.as_ref().and_then(|demo| demo.unpublished.as_ref()) {
        Some(why) => {
            format!("Programs on a simulated device cannot be seen here: {why}. gpumem-tui doctor looks further.")
        }
        None => "gpumem-tui demo train --device sim shows everything on a simulated device; gpumem-tui doctor says what is missing."
            .to_owned(),
    }
}

/// Returns why there is no simulated device when only those were asked for. A demo that cannot create its channel still runs,
/// but cannot be seen.
fn nothing_simulated(model: &Model) -> Notice {
    match &model.demo {
        Some(demo) if let Some(why) = &demo.unpublished => Notice::new(
            Ink::Warning,
            "The simulated training run does not publish: nothing of it can be seen.",
            format!("{why}. gpumem-tui doctor looks further."),
        ),
        Some(Demo {
            phase: DemoPhase::Failed(why),
            ..
        }) => Notice::new(Ink::Warning, "The simulated training run failed.", why),
        Some(demo) if demo.running() => Notice::new(Ink::Dim, "Starting a simulated training run ...", ""),
        _ => Notice::new(Ink::Dim, "Nothing is simulated now.", "Key 7 starts a demo."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::fixture;

    #[test]
    fn failure_has_a_mark_and_a_hint() {
        let shown_text = |width| -> Vec<String> {
            let lines = lines(&fixture::failing(), Theme::default(), width);
            lines.iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown_text(200)[0], " ▲ NVML fails: Driver/library version mismatch");
        assert!(shown_text(200)[1].starts_with("   The driver was updated"));
        assert_eq!(shown_text(200)[2..], ["   "]);
        for width in 4..60 {
            let shown_text = shown_text(width);
            assert!(
                shown_text.iter().all(|line| crate::wrap::width(line) <= width.max(3)),
                "{shown_text:?}"
            );
            assert_eq!(
                shown_text.last().map(String::as_str),
                Some(if width == 4 { " ▲ " } else { "   " })
            );
        }
        assert!(lines(&fixture::h100(), Theme::default(), 80).is_empty());
    }
}
