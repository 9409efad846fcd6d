//! A replay to be looked at: its pace, what can be said to it, and what it says.

use std::collections::BTreeSet;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpumem_demo::{DemoError, End, Ended, Replay, RunArgs};

use crate::common::{Ran, play, steered};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/llm_serving_2000.csv.gz");

fn replay(speed: &str, passes: u64) -> Replay {
    Replay {
        trace: Some(TRACE.into()),
        speed: speed.parse().ok(),
        passes,
        ..Replay::default()
    }
}

/// On the whole of a simulated device, as JSON.
fn args() -> RunArgs {
    RunArgs {
        budget: None,
        ..crate::common::args()
    }
}

fn budget(bytes: u64) -> RunArgs {
    RunArgs {
        budget: Some(bytes),
        ..args()
    }
}

fn steered_args() -> RunArgs {
    RunArgs { steer: true, ..args() }
}

#[test]
fn passes_are_replayed_and_all_memory_is_given_back() {
    let ran = play(replay("max", 3), &args(), None);
    assert!(ran.start().simulated && ran.start().channel.is_some());
    // A pass is a step.
    assert_eq!((ran.start().steps, ran.outcome().steps_done), (3, 3));
    assert!(ran.steps().iter().all(|step| step.steps == 3));
    assert_eq!(ran.steps()[0].step, 1);
    let last = *ran.steps().last().unwrap();
    assert_eq!((last.step, &*last.title), (3, "Pass 3, 100 % of 2,000 operations"));
    assert!(last.stats.allocated > 0 && last.stats.reserved >= last.stats.allocated);
    assert!(
        last.detail.contains("llm_serving_2000.csv.gz: As fast as it goes."),
        "{}",
        last.detail
    );
    assert_eq!(ran.outcome().reserved_at_end, 0);
}

#[test]
fn a_pace_is_kept() {
    let began = Instant::now();
    let ran = play(replay("4000", 1), &args(), None);
    assert!(
        began.elapsed() >= Duration::from_millis(450),
        "2,000 operations at 4,000 a second"
    );
    assert!(matches!(ran.ended, Ok(Ended::Done(_))));
}

/// By the clock: nothing is lost where passes end, and there are many ends.
#[test]
fn a_pace_is_kept_over_passes() {
    let folder = tempfile::tempdir().unwrap();
    let short = Replay {
        trace: Some(short_trace(folder.path())),
        ..replay("2000", 100)
    };
    let began = Instant::now();
    let ran = play(short, &args(), None);
    let took = began.elapsed();
    assert_eq!(ran.outcome().steps_done, 100);
    assert!(
        (Duration::from_millis(950)..Duration::from_millis(1600)).contains(&took),
        "100 times 20 operations at 2,000 a second took {took:?}"
    );
}

/// 20 operations.
fn short_trace(folder: &Path) -> PathBuf {
    let rows = |row: fn(usize) -> String| (0..10).map(row).collect::<String>();
    let (allocs, frees) = (rows(|n| format!("a,{n},4096,0\n")), rows(|n| format!("f,{n}\n")));
    let path = folder.join("short.csv");
    std::fs::write(&path, format!("op,id,bytes,stream\n{allocs}{frees}")).unwrap();
    path
}

fn titles(ran: &Ran) -> Vec<&str> {
    ran.steps().iter().map(|step| step.title.as_str()).collect()
}

/// Input that comes after a while.
struct Later(Duration, Cursor<&'static str>);

impl Read for Later {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(std::mem::take(&mut self.0));
        self.1.read(buffer)
    }
}

/// A second in is 1 % of this trace, and its tenth 20 s away.
#[test]
fn how_far_it_is_is_told_every_second_and_when_it_is_told_to_quit() {
    let quit = Later(Duration::from_millis(2600), Cursor::new("quit\n"));
    let ran = play(replay("20", 0), &steered_args(), Some(Box::new(BufReader::new(quit))));
    assert_eq!(ran.ended.as_ref().unwrap(), &Ended::Early(End::Quit));
    let told = titles(&ran);
    let percent = |n: u32| format!("Pass 1, {n} % of 2,000 operations");
    assert_eq!(told[..2], [percent(0), percent(1)], "{told:?}");
    assert!(
        told.len() >= 4 && told[told.len() - 2] != told[told.len() - 1],
        "{told:?}"
    );
    let last = *ran.steps().last().unwrap();
    assert!(last.stats.reserved > 0, "the figures are those of now");
}

#[test]
fn a_pass_that_takes_a_while_is_told_when_it_begins_and_ends() {
    let ran = play(replay("1600", 2), &args(), None);
    let told = titles(&ran);
    let of = |percent: &str| format!("Pass {percent} % of 2,000 operations");
    let ends = told.iter().position(|told| *told == of("1, 100")).unwrap();
    assert_eq!(told[ends + 1], of("2, 0"), "{told:?}");
    assert_eq!(told.last().unwrap(), &of("2, 100"));
    assert!(ran.steps()[ends].stats.allocated > ran.steps()[ends + 1].stats.allocated);
    // Many short ones are not.
    let began = Instant::now();
    let ran = play(replay("max", 40), &args(), None);
    let fast = titles(&ran);
    assert!(fast.len() as u64 <= 3 + 3 * began.elapsed().as_secs(), "{fast:?}");
    all_but_the_last_told_to_the_end(&ran);
    assert!(fast.last().unwrap().contains("Pass 40, 100 % of"), "{fast:?}");
}

/// No pass of which anything was told is left behind as if it had ended somewhere.
fn all_but_the_last_told_to_the_end(ran: &Ran) {
    for two in ran.steps().windows(2) {
        if two[0].step != two[1].step {
            assert!(two[0].title.contains(", 100 % of"), "{:?}", titles(ran));
        }
    }
}

#[test]
fn passes_that_take_a_moment_are_told_every_second() {
    let folder = tempfile::tempdir().unwrap();
    for (speed, trace) in [("max", TRACE.into()), ("2000", short_trace(folder.path()))] {
        let demo = Replay {
            trace: Some(trace),
            ..replay(speed, 0)
        };
        let quit = Later(Duration::from_millis(2600), Cursor::new("quit\n"));
        let ran = play(demo, &steered_args(), Some(Box::new(BufReader::new(quit))));
        assert_eq!(ran.ended.as_ref().unwrap(), &Ended::Early(End::Quit));
        // At its beginning, after one second, after two, and when it was told to quit.
        let passes = |ran: &Ran| ran.steps().iter().map(|step| step.step).collect::<BTreeSet<_>>();
        assert!(passes(&ran).len() >= 4, "{speed}: {:?}", titles(&ran));
        assert!(titles(&ran).len() <= 8, "{speed}: {:?}", titles(&ran));
        all_but_the_last_told_to_the_end(&ran);
    }
}

#[test]
fn it_does_what_it_is_told() {
    let ran = steered(
        replay("1", 0),
        &args(),
        "faster\nfaster\nslower\npause\nspeed 7\npause\nhurry\nnext\nspeed max\nquit\n",
    );
    let told: Vec<&str> = ran.steps().iter().map(|step| step.detail.as_str()).collect();
    assert_eq!(
        ran.steps()[0].title,
        "Pass 1, 0 % of 2,000 operations",
        "there is something to read from the beginning"
    );
    let expected = [
        "1 operation a second.",
        "2 operations a second.",
        "4 op",
        "2 op",
        "It stands",
        "It stands",
        "7 op",
        "As fast",
        // How far it came when it was told to quit.
        "As fast",
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.contains(&format!(": {expected}")), "{told}");
    }
    for step in ran.steps() {
        assert_eq!(step.halted, step.detail.contains("It stands still"), "{step:?}");
    }
    let notices = ran.notices();
    assert!(
        notices[0].contains("\"hurry\"") && notices.iter().all(|notice| notice.contains("say speed N")),
        "{notices:?}"
    );
    assert_eq!(ran.ended.unwrap(), Ended::Early(End::Quit));
    let ran = steered(replay("max", 0), &args(), "");
    assert_eq!(ran.ended.unwrap(), Ended::Early(End::ParentGone));
}

#[test]
fn too_little_memory_is_told_and_the_replay_goes_on() {
    let ran = play(replay("max", 1), &budget(256 << 20), None);
    let last = *ran.steps().last().unwrap();
    let oom = last.oom.as_ref().unwrap();
    assert!(
        oom.requested > 0 && oom.reserved <= 256 << 20 && oom.report.contains("budget"),
        "{oom:?}"
    );
    assert!(
        last.detail.contains("Requests that found too little memory so far: "),
        "{}",
        last.detail
    );
    assert!(last.stats.reserved <= 256 << 20);
}

/// What is larger, and set aside for small requests or another stream's, is not what the request lacked.
#[test]
fn the_largest_free_block_is_told_as_the_report_tells_it() {
    for mib in [100, 150, 200, 250] {
        let ran = play(replay("max", 1), &budget(mib << 20), None);
        let oom = ran.steps().into_iter().rev().find_map(|step| step.oom.clone()).unwrap();
        let (unit, name) = if oom.largest_free < 1 << 20 {
            (1 << 10, "KiB")
        } else {
            (1 << 20, "MiB")
        };
        let largest = match oom.largest_free {
            0 => "none of it for such a request".to_owned(),
            bytes => format!("largest free block {:.1} {name}", bytes as f64 / f64::from(unit)),
        };
        assert!(oom.report.contains(&largest), "{oom:?}");
    }
}

/// The budget that a live replay tells first is the one that holds, if one does.
#[test]
fn the_smallest_budget_is_told() {
    for (limit, conf, told) in [
        (None, "", None),
        (None, "budget_mb:300", Some(300 << 20)),
        (Some(16 << 30), "budget_fraction:0.1", Some(8 << 30)),
        (Some(1 << 30), "budget_fraction:0.1", Some(1 << 30)),
    ] {
        let limited = RunArgs {
            budget: limit,
            conf: conf.parse().ok(),
            ..args()
        };
        assert_eq!(play(replay("max", 1), &limited, None).start().budget, told, "{conf}");
    }
}

#[test]
fn without_a_trace_there_is_nothing_to_replay() {
    for (trace, code) in [(None, 2), (Some("/nowhere".into()), 1)] {
        let ran = play(
            Replay {
                trace,
                ..replay("max", 1)
            },
            &args(),
            None,
        );
        let error: DemoError = ran.ended.unwrap_err();
        assert_eq!(error.exit_code(), code, "{error}");
    }
}
