//! Translates the child's output into the model's types, and cleans all text that will reach the terminal.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use gpumem_demo::protocol::{Body, Kind, Line, MapBlock, Outcome, Start, Stats, Step};
use gpumem_text::clean;

use crate::event::DemoEvent;
use crate::model::{Choice, Demo, DemoBlock, DemoKind, DemoOom, DemoOutcome, DemoStats, DemoStep};

/// Translates a line. Returns `None` for an empty one.
pub(super) fn line(text: &str) -> Option<DemoEvent> {
    if text.trim().is_empty() {
        return None;
    }
    if let Some(event) = super::hierarchy::line(text) {
        return Some(event);
    }
    Some(match Line::parse(text) {
        Ok(line) => body(line.body),
        Err(error) => DemoEvent::Failed(clean(&error.to_string())),
    })
}

fn body(body: Body) -> DemoEvent {
    match body {
        Body::Start(start) => DemoEvent::Start(Box::new(started(&start))),
        Body::Step(step) => {
            let choice = |c: &gpumem_demo::protocol::Choice| Choice {
                name: clean(&c.name),
                title: clean(&c.title),
                default: c.default,
            };
            let choices = step.choices.iter().map(choice).collect();
            DemoEvent::Step(Box::new(stepped(&step)), choices)
        }
        Body::Notice { message } => DemoEvent::Notice(clean(&message)),
        Body::Result { result } => DemoEvent::Result {
            ok: result.as_promised(),
            outcome: outcome(&result),
        },
        Body::Error { message, exit_code } => DemoEvent::GaveUp {
            text: clean(&message),
            exit_code,
        },
    }
}

fn started(start: &Start) -> Demo {
    Demo {
        device: clean(&start.device),
        simulated: start.simulated,
        budget: start.budget,
        total_steps: start.steps,
        map_bytes: start.map_bytes,
        kind: Some(kind(start)),
        // If the channel could not be created, a complaint gives the reason, before or after this line.
        unpublished: start.channel.is_none().then(|| "it is told publish:off".to_owned()),
        ..Demo::default()
    }
}

/// Returns the kind of a demo. One that does not report its kind is stepped if it has a number of steps, so that no demo waits
/// forever.
fn kind(start: &Start) -> DemoKind {
    match (start.kind, start.steps) {
        (Some(Kind::Stepped), _) | (None, 1..) => DemoKind::Stepped,
        (Some(Kind::Paced), _) => DemoKind::Paced,
        (Some(Kind::Looping), _) | (None, 0) => DemoKind::Looping,
    }
}

fn stepped(step: &Step) -> DemoStep {
    DemoStep {
        number: step.step,
        title: clean(&step.title),
        headline: clean(&step.headline),
        summary: clean(&step.summary),
        detail: clean(&step.detail),
        stats: figures(&step.stats),
        verified: step.verified,
        oom: step.oom.as_ref().map(|oom| DemoOom {
            requested: oom.requested,
            free_total: oom.free_total,
            largest_free: oom.largest_free,
            report: oom.report.lines().map(clean).collect::<Vec<_>>().join("\n"),
        }),
        phases: step
            .phases
            .iter()
            .map(|phase| (clean(&phase.name), phase.allocated))
            .collect(),
        halted: step.halted,
        map: step.map.iter().map(block).collect(),
    }
}

fn block(block: &MapBlock) -> DemoBlock {
    DemoBlock {
        addr: block.addr,
        size: block.size,
        free: block.free,
    }
}

fn figures(stats: &Stats) -> DemoStats {
    DemoStats {
        allocated: stats.allocated,
        reserved: stats.reserved,
        cached: stats.cached,
        free_total: stats.free_total,
        largest_free: stats.largest_free,
        fragmentation: stats.external_fragmentation,
        ooms: stats.ooms,
    }
}

fn outcome(result: &Outcome) -> DemoOutcome {
    DemoOutcome {
        failed_before: result.failed_before,
        succeeded_after: result.succeeded_after,
        fix: result.fix.as_deref().map(clean),
        patterns_verified: result.patterns_verified,
    }
}

/// Translates a complaint that is reported while the child runs: the allocator's reason for having no channel.
pub(super) fn complaint(line: &str) -> Option<DemoEvent> {
    let why = line.strip_prefix("gpumem: not publishing: ")?;
    Some(DemoEvent::Unpublished(why.to_owned()))
}

/// Describes how a process ended.
pub(super) fn exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use gpumem_demo::protocol::SCHEMA;

    use super::*;

    #[test]
    fn step_is_translated_and_cleaned() {
        let step = Step {
            step: 3,
            title: "free \x1b[2J every other".into(),
            verified: Some(true),
            halted: true,
            ..Step::default()
        };
        let text = serde_json::to_string(&Line::new("fragmentation", Body::Step(Box::new(step)))).unwrap();
        let Some(DemoEvent::Step(step, choices)) = line(&text) else {
            panic!("{text}")
        };
        assert_eq!(
            (step.number, step.title.as_str(), step.verified, step.halted),
            (3, "free \u{fffd}[2J every other", Some(true), true)
        );
        assert!(choices.is_empty());
    }

    /// New demos need no change here. A kind that is missing or not known is ignored.
    #[test]
    fn demo_of_any_name_reports_its_kind() {
        use DemoKind::{Looping, Paced, Stepped};
        for (fields, expected) in [
            (r#""kind":"stepped","steps":0"#, Stepped),
            (r#""kind":"paced","steps":7"#, Paced),
            (r#""kind":"looping","steps":7"#, Looping),
            (r#""steps":6"#, Stepped),
            (r#""steps":0"#, Looping),
            (r#""kind":null,"steps":0"#, Looping),
            (r#""kind":"\u001b[2Jodd","steps":0"#, Looping),
            (r#""kind":{"stepped":[1]},"steps":6"#, Stepped),
        ] {
            let text = format!(r#"{{"schema":"{SCHEMA}","demo":"unknown","type":"start",{fields}}}"#);
            let Some(DemoEvent::Start(demo)) = line(&text) else {
                panic!("{text}")
            };
            assert_eq!(demo.kind, Some(expected), "{text}");
        }
    }

    #[test]
    fn unknown_output_fails_the_demo_with_a_reason() {
        for text in [
            "{}",
            "hello",
            &format!(r#"{{"schema":"{SCHEMA}","demo":"x","type":"later"}}"#),
        ] {
            assert!(
                matches!(line(text), Some(DemoEvent::Failed(why)) if !why.is_empty()),
                "{text}"
            );
        }
        assert!(line("  ").is_none());
    }

    #[test]
    fn exit_status_is_described() {
        assert_eq!(exit(ExitStatus::from_raw(9)), "it was killed by signal 9");
        assert_eq!(exit(ExitStatus::from_raw(3 << 8)), "it ended with exit code 3");
    }
}
