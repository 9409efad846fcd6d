//! The driver's policy in force, in words.

use gpumem_probe::UvmPolicy;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::wrap::width;

/// Draws the policy in a line: the driver's, or that of the model behind a simulated device.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, simulated: bool) {
    let policy = screen.model.world().managed.sample.policy;
    let text = match policy {
        _ if simulated => "Simulated, with the driver's defaults: prefetch and thrashing detection on".to_owned(),
        None => "The driver's policy is not known.".to_owned(),
        Some(policy) => words(&policy, area.width.saturating_sub(1)),
    };
    let line = Line::styled(clip(&format!(" {text}"), area.width), screen.theme.ink(Ink::Dim));
    screen.render(line, area);
}

/// Returns the policy in words. What the driver does not tell is left out, and so is what has no room.
fn words(policy: &UvmPolicy, room: u16) -> String {
    let mut parts = Vec::new();
    match (policy.prefetch, policy.prefetch_threshold) {
        (Some(false), _) => parts.push("prefetch off".to_owned()),
        (Some(true), Some(percent)) => parts.push(format!("prefetch on (from {percent} %)")),
        (Some(true), None) => parts.push("prefetch on".to_owned()),
        (None, _) => {}
    }
    match (policy.thrashing, policy.thrashing_threshold, policy.thrashing_lapse) {
        (Some(false), ..) => parts.push("thrashing not detected".to_owned()),
        (Some(true), Some(times), Some(lapse)) => parts.push(format!("thrashing: {times} moves in {lapse} µs")),
        (Some(true), ..) => parts.push("thrashing detected".to_owned()),
        (None, ..) => {}
    }
    parts.extend(policy.access_counters.map(|mode| match mode {
        0 => "access counters off".to_owned(),
        1.. => "access counters migrate".to_owned(),
        _ => "access counters: ATS only".to_owned(),
    }));
    parts.extend(policy.hmm_disabled.map(|off| match off {
        true => "HMM off".to_owned(),
        false => "HMM on".to_owned(),
    }));
    let all = |parts: &[String]| format!("Driver's policy: {}", parts.join(" · "));
    let fits = |count: &usize| width(&all(&parts[..*count])) <= room;
    let count = (1..=parts.len()).rev().find(fits).unwrap_or(parts.len());
    all(&parts[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_of_a_default_driver_is_in_words() {
        let policy = UvmPolicy {
            prefetch: Some(true),
            prefetch_threshold: Some(51),
            thrashing: Some(true),
            thrashing_threshold: Some(3),
            thrashing_lapse: Some(500),
            access_counters: Some(-1),
            hmm_disabled: Some(false),
            ats: Some(true),
        };
        assert_eq!(
            words(&policy, 120),
            "Driver's policy: prefetch on (from 51 %) · thrashing: 3 moves in 500 µs · access counters: ATS only · HMM on"
        );
        let off = UvmPolicy {
            prefetch: Some(false),
            thrashing: Some(false),
            ..UvmPolicy::default()
        };
        assert_eq!(
            words(&policy, 80),
            "Driver's policy: prefetch on (from 51 %) · thrashing: 3 moves in 500 µs"
        );
        assert_eq!(
            words(&off, 80),
            "Driver's policy: prefetch off · thrashing not detected"
        );
    }
}
