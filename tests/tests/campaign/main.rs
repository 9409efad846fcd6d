//! The mutation campaign: nobody can freeze, blind or fool the dashboard.
//!
//! Thousands of channels and inputs that are nearly real are read in this process and by the program. None may crash it, hold it up, write to
//! the terminal, or have it show figures that cannot be true. What the words of a channel come to is decided by an oracle that shares no code
//! with the reader.
//!
//! - The corpus is real channels, made fresh by a publisher (`bases.rs`), and mutants that were worth keeping (`corpus.txt`), which are tried
//!   first.
//! - A mutant is a line of text (`mutant.rs`). One that fails is printed as its line: appended to the corpus it is tried for ever.
//! - A run is seeded, so that it can be done again. A short one is a part of `cargo test`; a long one is
//!   `GPUMEM_CAMPAIGN=36000 cargo test --release -p gpumem-tests --test campaign -- --nocapture`, for that many channels and a sixth as many
//!   inputs. `GPUMEM_CAMPAIGN_SEED` tries others.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod bases;
mod channels;
mod document;
mod hostile;
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
use mutant::Mutant;
use settings::Settings;

/// Mutants that are made at a time.
const AT_ONCE: u64 = 400;

#[test]
fn mutated_channels_are_survived_and_never_believed_wrongly() {
    let settings = Settings::from_environment();
    let start = Instant::now();
    let mut channels = Channels::new();
    let mut random = Random::new(settings.seed);
    let mut left = settings.channels;
    while left > 0 {
        let some = left.min(AT_ONCE);
        let mutants: Vec<Mutant> = (0..some).map(|_| hostile::mutant(&mut random, channels.bases())).collect();
        channels.try_all(&mutants);
        left -= some;
    }
    println!("seed {}, {:?}: {:?}", settings.seed, start.elapsed(), channels.tally);
    channels.finish();
}
