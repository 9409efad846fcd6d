//! A live replay: its pace, its commands and its output.

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

/// Returns the arguments for a whole simulated device, as JSON.
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
fn passes_are_replayed_and_all_memory_is_released() {
    let ran = play(replay("max", 3), &args(), None);
    assert!(ran.start().simulated && ran.start().channel.is_some());
    // Passes are steps.
    assert_eq!((ran.start().steps, ran.outcome().steps_done), (3, 3));
    assert!(ran.steps().iter().all(|step| step.steps == 3));
    assert_eq!(ran.steps()[0].step, 1);
    let last = *ran.steps().last().unwrap();
    assert_eq!((last.step, &*last.title), (3, "Pass 3, 100 % of 2,000 operations"));
    assert!(last.stats.allocated > 0 && last.stats.reserved >= last.stats.allocated);
    assert!(
        last.detail.contains("llm_serving_2000.csv.gz: At full speed."),
        "{}",
        last.detail
    );
    assert_eq!(ran.outcome().reserved_at_end, 0);
}

#[test]
fn pace_is_kept() {
    let began = Instant::now();
    let ran = play(replay("4000", 1), &args(), None);
    assert!(
        began.elapsed() >= Duration::from_millis(450),
        "2,000 operations at 4,000 a second"
    );
    assert!(matches!(ran.ended, Ok(Ended::Done(_))));
}

/// Many passes end within the time, and no time is lost at their ends.
#[test]
fn pace_is_kept_over_passes() {
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

/// Writes a trace of 20 operations.
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

/// Input that arrives after a delay.
struct Later(Duration, Cursor<&'static str>);

impl Read for Later {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(std::mem::take(&mut self.0));
        self.1.read(buffer)
    }
}

/// One second is 1 % of this trace, and a tenth of it takes 20 s.
#[test]
fn progress_is_reported_every_second_and_on_quit() {
    let quit = Later(Duration::from_millis(2600), Cursor::new("quit\n"));
    let ran = play(replay("20", 0), &steered_args(), Some(Box::new(BufReader::new(quit))));
    assert_eq!(ran.ended.as_ref().unwrap(), &Ended::Early(End::Quit));
    let reports = titles(&ran);
    let percent = |n: u32| format!("Pass 1, {n} % of 2,000 operations");
    assert_eq!(reports[..2], [percent(0), percent(1)], "{reports:?}");
    assert!(
        reports.len() >= 4 && reports[reports.len() - 2] != reports[reports.len() - 1],
        "{reports:?}"
    );
    let last = *ran.steps().last().unwrap();
    assert!(last.stats.reserved > 0, "the figures are current");
}

#[test]
fn long_pass_is_reported_at_its_begin_and_end() {
    let ran = play(replay("1600", 2), &args(), None);
    let reports = titles(&ran);
    let of = |percent: &str| format!("Pass {percent} % of 2,000 operations");
    let ends = reports.iter().position(|reports| *reports == of("1, 100")).unwrap();
    assert_eq!(reports[ends + 1], of("2, 0"), "{reports:?}");
    assert_eq!(reports.last().unwrap(), &of("2, 100"));
    assert!(ran.steps()[ends].stats.allocated > ran.steps()[ends + 1].stats.allocated);
    // Not all of many short passes are reported.
    let began = Instant::now();
    let ran = play(replay("max", 40), &args(), None);
    let fast = titles(&ran);
    assert!(fast.len() as u64 <= 3 + 3 * began.elapsed().as_secs(), "{fast:?}");
    assert_passes_end(&ran);
    assert!(fast.last().unwrap().contains("Pass 40, 100 % of"), "{fast:?}");
}

/// Checks that every reported pass but the last is reported at its end.
fn assert_passes_end(ran: &Ran) {
    for two in ran.steps().windows(2) {
        if two[0].step != two[1].step {
            assert!(two[0].title.contains(", 100 % of"), "{:?}", titles(ran));
        }
    }
}

#[test]
fn short_passes_are_reported_every_second() {
    let folder = tempfile::tempdir().unwrap();
    for (speed, trace) in [("max", TRACE.into()), ("2000", short_trace(folder.path()))] {
        let demo = Replay {
            trace: Some(trace),
            ..replay(speed, 0)
        };
        let quit = Later(Duration::from_millis(2600), Cursor::new("quit\n"));
        let ran = play(demo, &steered_args(), Some(Box::new(BufReader::new(quit))));
        assert_eq!(ran.ended.as_ref().unwrap(), &Ended::Early(End::Quit));
        // At the beginning, after one and two seconds, and on quit.
        let passes = |ran: &Ran| ran.steps().iter().map(|step| step.step).collect::<BTreeSet<_>>();
        assert!(passes(&ran).len() >= 4, "{speed}: {:?}", titles(&ran));
        assert!(titles(&ran).len() <= 8, "{speed}: {:?}", titles(&ran));
        assert_passes_end(&ran);
    }
}

#[test]
fn commands_are_executed() {
    let ran = steered(
        replay("1", 0),
        &args(),
        "faster\nfaster\nslower\npause\nspeed 7\npause\nhurry\nnext\nspeed max\nquit\n",
    );
    let reports: Vec<&str> = ran.steps().iter().map(|step| step.detail.as_str()).collect();
    assert_eq!(
        ran.steps()[0].title,
        "Pass 1, 0 % of 2,000 operations",
        "the first report comes at once"
    );
    let expected = [
        "1 operation a second.",
        "2 operations a second.",
        "4 op",
        "2 op",
        "It stands",
        "It stands",
        "7 op",
        "At full",
        // The progress on quit.
        "At full",
    ];
    assert_eq!(reports.len(), expected.len(), "{reports:?}");
    for (reports, expected) in reports.iter().zip(expected) {
        assert!(reports.contains(&format!(": {expected}")), "{reports}");
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
fn replay_goes_on_after_failed_requests() {
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

/// Larger blocks that are reserved for small requests or another stream are left out: the request could not use them.
#[test]
fn largest_free_block_is_that_of_the_report() {
    for mib in [100, 150, 200, 250] {
        let ran = play(replay("max", 1), &budget(mib << 20), None);
        let oom = ran.steps().into_iter().rev().find_map(|step| step.oom.clone()).unwrap();
        let largest = match oom.largest_free {
            0 => "none of it for such a request".to_owned(),
            bytes => format!("largest free block {}", gpumem_text::units::bytes_to_pib(bytes)),
        };
        assert!(oom.report.contains(&largest), "{oom:?}");
    }
}

/// The first line of a live replay has the budget that applies, if any.
#[test]
fn smallest_budget_is_reported() {
    for (limit, conf, budget) in [
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
        assert_eq!(play(replay("max", 1), &limited, None).start().budget, budget, "{conf}");
    }
}

#[test]
fn missing_trace_is_an_argument_error() {
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
