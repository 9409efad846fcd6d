//! The mutation campaign: no file or input can freeze the dashboard, hide other programs from it, or make it show false figures.
//!
//! Thousands of channels and inputs that are nearly real are read in this process and by the program. None may crash it, delay it, write
//! escape sequences to the terminal, or make it show figures that cannot be true. An oracle that shares no code with the reader decides
//! what a channel says.
//!
//! - The corpus is real channels, made in each run by a publisher (`bases.rs`), and mutants that were worth keeping (`corpus.txt`), which are
//!   tried first.
//! - A mutant is a line of text (`mutant.rs`). The line of one that fails is printed. Appended to the corpus it is tried in every run.
//! - A run is seeded, so that it can be repeated. A short one is a part of `cargo test`; a long one is
//!   `GPUMEM_CAMPAIGN=36000 cargo test --release -p gpumem-tui --test load campaign -- --nocapture`, for that many channels and a sixth as many
//!   inputs. `GPUMEM_CAMPAIGN_SEED` tries others.

mod bases;
mod channels;
mod document;
mod hostile;
mod inputs;
mod judge;
mod mutant;
mod oracle;
mod program;
mod settings;
mod text;
mod words;

use std::time::Instant;

use channels::Channels;
use gpumem_tests::Random;
use judge::Verdict;
use mutant::Mutant;
use oracle::Claim;
use settings::Settings;

use crate::shared;

/// Mutants with different outcomes: for each the outcome, and the line that makes the mutant.
const CORPUS: &str = include_str!("corpus.txt");
/// How many mutants are made at a time.
const AT_ONCE: u64 = 400;

#[test]
fn mutated_channels_are_survived_and_never_believed_wrongly() {
    let _turn = shared();
    let settings = Settings::from_environment();
    let start = Instant::now();
    let mut channels = Channels::new();
    let mut random = Random::new(settings.seed);
    let mut left = settings.channels;
    while left > 0 {
        let some = left.min(AT_ONCE);
        let mutants: Vec<Mutant> = (0..some)
            .map(|_| hostile::mutant(&mut random, channels.bases()))
            .collect();
        channels.try_all(&mutants);
        left -= some;
    }
    println!("seed {}, {:?}: {:?}", settings.seed, start.elapsed(), channels.tally);
    channels.finish();
}

#[test]
fn mutated_inputs_are_read_or_refused_in_time() {
    let _turn = shared();
    let settings = Settings::from_environment();
    let some = settings.inputs.div_ceil(4);
    let random = &mut Random::new(settings.seed);
    type Try = fn(&mut Random, u64) -> inputs::Tally;
    let kinds: [(&str, Try); 4] = [
        ("terminal", inputs::terminal_bytes),
        ("snapshots", inputs::snapshots),
        ("traces", inputs::traces),
        ("configurations", inputs::configurations),
    ];
    for (kind, try_some) in kinds {
        let start = Instant::now();
        let tally = try_some(random, some);
        println!("seed {}, {kind}, {:?}: {tally:?}", settings.seed, start.elapsed());
    }
}

/// The reader, the program and the oracle agree on each base. Otherwise a mutant's outcome would mean nothing.
#[test]
fn the_bases_are_sound_before_they_are_mutated() {
    let _turn = shared();
    let mut channels = Channels::new();
    let names: Vec<&str> = channels.bases().iter().map(|base| base.name).collect();
    for (base, name) in channels.bases().iter().zip(&names) {
        let claims = oracle::ask(&base.bytes).unwrap().claims;
        let devices = [("empty", 0), ("two", 2)].iter().find(|(known, _)| known == name);
        assert_eq!(claims.len(), devices.map_or(1, |(_, devices)| *devices), "{name}");
        let sound =
            |claim: &Claim| matches!(claim, Claim::Sound(figures) if (figures.allocated > 0) == (*name != "idle"));
        assert!(claims.iter().all(sound), "{name}: {claims:?}");
    }
    let untouched = names.iter().map(|name| Mutant {
        base: (*name).to_owned(),
        steps: Vec::new(),
    });
    let verdicts = channels.try_all(&untouched.collect::<Vec<_>>());
    assert_eq!(verdicts, vec![Verdict::Sound; names.len()]);
    channels.finish();
}

#[test]
fn the_mutants_of_the_corpus_have_the_same_outcome_as_before() {
    let _turn = shared();
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut channels = Channels::new();
    let (mut expected, mut mutants) = (Vec::new(), Vec::new());
    for line in lines {
        let (verdict, mutant) = line.split_once(' ').unwrap();
        expected.push((verdict, line));
        mutants.push(mutant.parse::<Mutant>().unwrap());
        assert_eq!(
            mutants.last().map(Mutant::to_string).as_deref(),
            Some(mutant),
            "a mutant is written as it was read"
        );
    }
    let verdicts = channels.try_all(&mutants);
    for ((expected, line), verdict) in expected.into_iter().zip(verdicts) {
        let got = match verdict {
            _ if expected == "survived" => "survived",
            Verdict::Refused => "refused",
            Verdict::Unreadable => "unreadable",
            Verdict::Inconsistent => "inconsistent",
            Verdict::Sound => "sound",
        };
        assert_eq!(got, expected, "{line}");
    }
    channels.finish();
}
