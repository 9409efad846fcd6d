//! `demo fragmentation` from end to end on the simulated device.

use gpumem_demo::protocol::Kind;
use gpumem_demo::{BudgetError, DemoError, End, Ended, Fix, Fragmentation, MIN_BUDGET, RunArgs, Sizes, exit_code};
use gpumem_text::units::MIB;

use crate::common::{args, play, play_into, steered};

/// Returns the demo with its default fix.
fn demo() -> Fragmentation {
    Fragmentation::default()
}

#[test]
fn every_fix_makes_the_failed_request_succeed() {
    for fix in Fix::ALL {
        let ran = play(Fragmentation { fix }, &args(), None);
        let outcome = ran.outcome();
        assert_eq!(outcome.failed_before, Some(true), "{fix:?}");
        assert_eq!(outcome.succeeded_after, Some(true), "{fix:?}");
        assert_eq!(outcome.fix.as_deref(), Some(fix.name()));
        assert_eq!(outcome.patterns_verified, Some(true), "{fix:?}");
        assert!(outcome.words_checked > 0);
        assert_eq!(outcome.reserved_at_end, 0, "{fix:?} left memory behind");
        assert_eq!(exit_code(&ran.ended), 0);
        let ids: Vec<_> = ran.steps().iter().map(|s| s.id.as_str()).collect();
        let fix_id = format!("fix-{}", fix.name());
        assert_eq!(
            ids,
            [
                "fill",
                "free-every-other",
                "request-fails",
                &fix_id,
                "request-again",
                "verify"
            ]
        );
        assert!(
            ran.steps()
                .iter()
                .enumerate()
                .all(|(i, s)| s.step == i as u64 + 1 && s.steps == 6)
        );
    }
}

/// What the demo shows depends on its sizes, segments and budget.
#[test]
fn options_without_effect_are_refused() {
    let with_conf = |conf: &str| RunArgs {
        conf: Some(conf.parse().unwrap()),
        ..args()
    };
    for conf in [
        "segments:plain",
        "budget_mb:256",
        "release_on_oom:True,max_split_size_mb:20",
        "max_chunk_mb:4",
    ] {
        let ran = play(demo(), &with_conf(conf), None);
        assert!(
            matches!(&ran.ended, Err(DemoError::Argument { argument: "--conf", .. })),
            "{conf}: {:?}",
            ran.ended
        );
        assert_eq!(exit_code(&ran.ended), 2, "{conf}");
    }
    let ran = play(demo(), &with_conf("publish:off,history:on,monitor:warn"), None);
    assert_eq!(exit_code(&ran.ended), 0, "{:?}", ran.ended);
}

/// The figures of every step agree with its text.
#[test]
fn figures_of_every_step_match_its_text() {
    let ran = play(demo(), &args(), None);
    let sizes = Sizes::for_budget(MIN_BUDGET);
    let freed: u64 = sizes.freed().sum();

    let fill = &ran.step("fill").stats;
    assert_eq!(
        (fill.allocated, fill.reserved, fill.cached),
        (sizes.total(), sizes.total(), 0)
    );
    assert_eq!(fill.external_fragmentation, None);

    let holes = &ran.step("free-every-other").stats;
    assert_eq!(
        (holes.reserved, holes.cached, holes.free_total),
        (sizes.total(), freed, freed)
    );
    let largest = sizes.freed().max().unwrap();
    assert_eq!(holes.largest_free, largest);
    let fragmentation = 1.0 - largest as f64 / holes.free_total as f64;
    assert!((holes.external_fragmentation.unwrap() - fragmentation).abs() < 1e-9);

    let fails = ran.step("request-fails");
    let oom = fails.oom.as_ref().unwrap();
    assert_eq!(
        (oom.requested, oom.largest_free, oom.free_total),
        (sizes.request, largest, freed)
    );
    assert_eq!(fails.stats.ooms, holes.ooms + 1);
    assert_eq!(fails.stats.reserved, holes.reserved, "a failed request changes nothing");
    assert_eq!(
        fails.choices.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        Fix::ALL.map(Fix::name)
    );
    let default: Vec<&str> = fails
        .choices
        .iter()
        .filter(|c| c.default)
        .map(|c| c.name.as_str())
        .collect();
    assert_eq!(default, ["remap"], "the default of `next` is marked");

    let joined = &ran.step("fix-remap").stats;
    assert!(joined.largest_free >= sizes.request, "the holes were joined");
    assert_eq!(
        (joined.reserved, joined.allocated),
        (holes.reserved, holes.allocated),
        "nothing was taken or given"
    );

    let again = &ran.step("request-again").stats;
    assert_eq!(again.allocated, holes.allocated + sizes.request);
    assert_eq!(again.peak_reserved, sizes.total(), "the budget was kept");
}

#[test]
fn release_returns_the_holes_and_workspace_avoids_them() {
    // Blocks from 10 MiB on have their own chunks, so that holes share no chunk with live blocks.
    let budget = 832 * MIB;
    let sizes = Sizes::for_budget(budget);
    let kept: u64 = sizes.kept().map(|(_, taken)| taken).sum();
    let args = RunArgs {
        budget: Some(budget),
        ..args()
    };
    let released = steered(demo(), &args, "next\nnext\nfix release\nnext\nnext\n");
    assert_eq!(released.step("fix-release").stats.reserved, kept);
    assert_eq!(released.step("request-again").stats.reserved, kept + sizes.request);
    let workspace = steered(demo(), &args, "next\nnext\nfix workspace\nnext\nnext\n");
    let end = &workspace.step("request-again").stats;
    assert_eq!(
        (end.reserved, end.free_total),
        (kept + sizes.request, 0),
        "no hole is left behind"
    );
}

#[test]
fn every_fix_works_at_odd_budgets() {
    for budget in [170 * MIB + 12345, 260 * MIB] {
        for fix in Fix::ALL {
            let ran = play(
                Fragmentation { fix },
                &RunArgs {
                    budget: Some(budget),
                    ..args()
                },
                None,
            );
            assert!(ran.outcome().as_promised(), "{fix:?} at {budget}: {:?}", ran.outcome());
            assert_eq!(ran.start().budget, Some(budget));
            assert!(ran.steps().iter().all(|s| s.stats.peak_reserved <= budget));
        }
    }
}

#[test]
fn impossible_budget_is_a_budget_error() {
    for budget in [1, MIN_BUDGET - 1, 1 << 40, u64::MAX] {
        let ran = play(
            demo(),
            &RunArgs {
                budget: Some(budget),
                ..args()
            },
            None,
        );
        assert!(matches!(
            &ran.ended,
            Err(DemoError::Budget(
                BudgetError::TooSmall { .. } | BudgetError::TooLargeToSimulate { .. }
            ))
        ));
        assert_eq!(exit_code(&ran.ended), 2);
        let [gpumem_demo::protocol::Body::Error { message, exit_code: 2 }] = ran.lines.as_slice() else {
            panic!("{:?}", ran.lines);
        };
        assert!(message.starts_with("a budget of "), "{message}");
    }
}

#[test]
fn steered_demo_follows_next_and_the_chosen_fix() {
    let ran = steered(demo(), &args(), "next\nnext\nfix workspace\nnext\nnext\nnext\n");
    assert_eq!(ran.outcome().fix.as_deref(), Some("workspace"));
    assert!(ran.outcome().as_promised());
    assert!(ran.notices().is_empty());
    assert_eq!(ran.start().kind, Some(Kind::Stepped));
}

#[test]
fn invalid_input_is_answered_and_changes_nothing() {
    let input = "what?\nfix remap\nnext\nnext\nfix duct-tape\nnext\nnext\nnext\nnext\n";
    let ran = steered(demo(), &args(), input);
    let notices = ran.notices();
    assert_eq!(notices.len(), 3, "{notices:?}");
    assert!(
        notices[0].contains("unknown command") && notices[0].contains("next"),
        "{notices:?}"
    );
    assert!(
        notices[1].contains("fix remap") && notices[1].contains("nothing at this point"),
        "{notices:?}"
    );
    assert!(
        notices[2].contains("duct-tape") && notices[2].contains("workspace"),
        "{notices:?}"
    );
    assert!(ran.outcome().as_promised());
    assert_eq!(ran.outcome().fix.as_deref(), Some("remap"), "next takes the default");
}

#[test]
fn demo_ends_at_once_on_quit_or_end_of_input() {
    let gone = steered(demo(), &args(), "next\n");
    assert_eq!(gone.steps().len(), 2);
    assert_eq!(gone.ended.as_ref().ok(), Some(&Ended::Early(End::ParentGone)));
    let quit = steered(demo(), &args(), "next\nquit\nnext\nnext\nnext\nnext\n");
    assert_eq!(quit.steps().len(), 2);
    assert_eq!(quit.ended.as_ref().ok(), Some(&Ended::Early(End::Quit)));
    assert_eq!((exit_code(&gone.ended), exit_code(&quit.ended)), (0, 0));
}

/// A writer whose reader closes it after one line.
struct Gone(usize);

impl std::io::Write for Gone {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                Ok(bytes.len())
            }
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn closed_output_ends_the_demo_quietly() {
    let ended = play_into(&mut Gone(2), demo(), &args(), None);
    assert!(matches!(ended, Err(DemoError::OutputClosed)));
    assert_eq!(exit_code(&ended), 0);
}

#[test]
fn text_has_simulated_and_the_outcome() {
    let mut out = Vec::new();
    let text_args = RunArgs { json: false, ..args() };
    let ended = play_into(&mut out, demo(), &text_args, None);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(exit_code(&ended), 0);
    assert!(text.starts_with("SIMULATED "), "{text}");
    assert!(text.contains("out of GPU memory: 32.0 MiB requested"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.ends_with("succeeded after it; every pattern was intact; all memory was given back"),
        "{text}"
    );
    // Large numbers have group separators.
    let (compared, _) = words.split_once(" words of 8 bytes").unwrap();
    let compared = compared.rsplit(' ').next().unwrap();
    assert!(compared.len() > 4 && compared.contains(','), "{compared}");
    // The second line is left out because it has a path.
    assert!(text.lines().skip(2).all(|l| l.chars().count() <= 100), "{text}");
}

/// The dashboard draws the maps of all steps at one scale, so the plan must hold, whichever fix is chosen.
#[test]
fn maps_of_all_steps_cover_at_most_what_was_planned() {
    for fix in Fix::ALL {
        let ran = play(Fragmentation { fix }, &args(), None);
        let planned = ran.start().map_bytes.unwrap();
        let mut ends: Vec<(u64, i32)> = vec![];
        for step in ran.steps() {
            let held: u64 = step
                .map
                .iter()
                .filter(|block| !block.free)
                .map(|block| block.size)
                .sum();
            let free: u64 = step.map.iter().filter(|block| block.free).map(|block| block.size).sum();
            assert_eq!(
                (held, free),
                (step.stats.allocated, step.stats.free_total),
                "{}",
                step.id
            );
            assert!(step.map.windows(2).all(|two| two[0].addr + two[0].size <= two[1].addr));
            ends.extend(
                step.map
                    .iter()
                    .flat_map(|block| [(block.addr, 1), (block.addr + block.size, -1)]),
            );
        }
        ends.sort_unstable();
        let (mut open, mut covered) = (0, 0);
        for two in ends.windows(2) {
            open += two[0].1;
            covered += if open > 0 { two[1].0 - two[0].0 } else { 0 };
        }
        assert!(covered <= planned, "{fix:?}: {covered} of {planned}");
        assert!(
            fix != Fix::Workspace || covered + 20 * MIB >= planned,
            "the plan is not too large"
        );
    }
}

#[test]
fn headline_of_the_failure_has_the_figures_that_matter() {
    let args = RunArgs {
        budget: Some(512 * MIB),
        ..args()
    };
    let ran = play(demo(), &args, None);
    let fails = ran.step("request-fails");
    assert_eq!(fails.headline, "172 MiB free, largest hole 76 MiB, need 126 MiB");
    assert!(
        ran.steps()
            .iter()
            .all(|step| !step.headline.is_empty() && !step.summary.is_empty())
    );
}
