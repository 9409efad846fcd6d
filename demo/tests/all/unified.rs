//! `demo unified` on the simulated device.

use gpumem_demo::protocol::{Measure, Step};
use gpumem_demo::{DemoError, MIN_BUDGET, RunArgs, Unified, UnifiedFix, exit_code};
use gpumem_text::units::MIB;

use crate::common::{Ran, args, play, steered};

const SIZE: u64 = 256 * MIB;
const BLOCKS: u64 = SIZE / (2 * MIB);

/// Runs the demo with its default size.
fn ran(fix: UnifiedFix) -> Ran {
    let args = RunArgs { budget: None, ..args() };
    play(
        Unified {
            fix,
            ..Unified::default()
        },
        &args,
        None,
    )
}

/// Returns bytes to the GPU and to the CPU, and faults of the CPU and of the GPU.
fn figures(step: &Step) -> Vec<[u64; 4]> {
    let of = |m: &Measure| [m.to_gpu, m.to_cpu, m.cpu_faults, m.gpu_faults].map(Option::unwrap);
    step.measures.iter().map(of).collect()
}

#[test]
fn each_topic_moves_exactly_what_the_driver_would_move() {
    let ran = ran(UnifiedFix::Tiles);
    assert_eq!((ran.start().budget, ran.start().steps), (Some(SIZE), 13));
    let (pages, six) = (SIZE / 4096, 6 * BLOCKS);
    assert_eq!(
        figures(ran.step("first-touch")),
        [[0, 0, 0, pages], [SIZE, 0, 0, pages], [SIZE, 0, 0, 0], [0; 4]]
    );
    let three = [3 * SIZE, 3 * SIZE, 3 * six, 3 * pages];
    let ping_pong = figures(ran.step("ping-pong"));
    assert_eq!(ping_pong[0], three);
    assert!(ping_pong[1][3] < 20, "a bouncing page is pinned: {ping_pong:?}");
    assert_eq!(figures(ran.step("prefetch")), [three, [3 * SIZE, 3 * SIZE, 0, 0]]);
    assert_eq!(
        figures(ran.step("preferred-location")),
        [
            three,
            // The GPU's mapping of a block is whole after its first batch of faults.
            [0, 0, 0, 256 * BLOCKS],
            [3 * SIZE, 3 * SIZE, 0, 0],
            [0; 4]
        ]
    );
    assert_eq!(figures(ran.step("read-mostly")), [three, [SIZE, 0, 0, pages]]);
}

#[test]
fn working_set_that_does_not_fit_misses_every_block() {
    let ran = ran(UnifiedFix::Tiles);
    let [fits, thrashes] = &ran.step("does-not-fit").measures[..] else {
        panic!("two measures")
    };
    assert_eq!((fits.to_gpu, fits.evicted), (Some(SIZE), Some(0)));
    let room = 102 * 2 * MIB;
    assert_eq!(thrashes.to_gpu, Some(4 * SIZE));
    assert_eq!(thrashes.evicted, Some(4 * SIZE - room));
    assert!(thrashes.ns > 4 * fits.ns, "{thrashes:?}");
}

#[test]
fn both_fixes_make_it_fast_again() {
    let (room, half) = (102 * 2 * MIB, SIZE / 2);
    for (fix, to_gpu, evicted) in [(UnifiedFix::Tiles, SIZE, 2 * half - room), (UnifiedFix::Split, room, 0)] {
        let ran = ran(fix);
        let [before, after] = &ran.step(&format!("fix-{}", fix.name())).measures[..] else {
            panic!("two measures")
        };
        assert_eq!((after.to_gpu, after.evicted), (Some(to_gpu), Some(evicted)), "{fix:?}");
        assert!(before.ns > 3 * after.ns, "{fix:?}: {before:?} {after:?}");
        let outcome = ran.outcome();
        assert_eq!(outcome.fix.as_deref(), Some(fix.name()));
        assert_eq!((outcome.steps_done, outcome.reserved_at_end), (13, 0));
        assert!(outcome.as_promised() && outcome.patterns_verified.is_none());
    }
}

#[test]
fn question_comes_before_its_answer_and_is_no_answer() {
    let ran = steered(Unified::default(), &args(), &"next\n".repeat(11));
    let steps = ran.steps();
    assert_eq!(steps.len(), 12, "it waits for a fix");
    for pair in steps.chunks(2) {
        let [question, answer] = pair else {
            panic!("an odd step")
        };
        assert_eq!(question.id, format!("{}-question", answer.id));
        assert!(question.title.starts_with("Guess: ") && question.measures.is_empty());
        assert!(answer.detail.starts_with("Modelled: "), "{}", answer.detail);
        assert!(!answer.detail.contains("key 5"), "nothing is seen of a model");
    }
    assert_eq!(steps[11].choices.len(), 2);
    assert_eq!(ran.start().budget, Some(MIN_BUDGET), "the budget bounds the memory");
}

#[test]
fn chosen_fix_is_applied() {
    let ran = steered(
        Unified::default(),
        &args(),
        &("next\n".repeat(11) + "fix nap\nfix split\nnext\n"),
    );
    assert_eq!(ran.notices(), ["\"nap\" is not a fix: say tiles or split"]);
    assert_eq!(ran.outcome().fix.as_deref(), Some("split"));
}

#[test]
fn size_is_at_most_a_gibibyte_and_within_the_budget() {
    let with = |size: u64| {
        let size = Some(size);
        play(
            Unified {
                size,
                ..Unified::default()
            },
            &args(),
            None,
        )
    };
    assert_eq!(with(17 * MIB).start().budget, Some(18 * MIB), "whole blocks");
    for (size, said) in [
        (2048 * MIB, "--size: say something from 16.0 MiB to 1.0 GiB"),
        (0, "--size: say something from 16.0 MiB to 1.0 GiB"),
        (
            512 * MIB,
            "512 MiB of managed memory are more than the budget of 128 MiB: ask for less (--size)",
        ),
    ] {
        let ended = with(size).ended;
        assert_eq!(exit_code(&ended), 2);
        let error: DemoError = ended.unwrap_err();
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn text_has_the_numbers_and_no_figures_of_an_empty_allocator() {
    let mut out = Vec::new();
    let args = RunArgs { json: false, ..args() };
    crate::common::play_into(&mut out, Unified::default(), &args, None).unwrap();
    let text = String::from_utf8(out).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("384 MiB to the GPU, 384 MiB to the CPU"), "{text}");
    assert!(!words.contains("largest free block"), "{text}");
}
