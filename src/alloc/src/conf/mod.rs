//! Configurations as text: `GPUMEM_ALLOC_CONF`.
//!
//! The syntax, the names and their meanings are those of PyTorch's `PYTORCH_CUDA_ALLOC_CONF` (`c10/core/AllocatorConfig.cpp`):
//! `option:value,option:value`, lists in brackets (`roundup_power2_divisions:[256:1,512:2,>:8]`), spaces anywhere, of an option
//! that is named twice the last. [`OPTIONS`] is the one list of them: what is read, what errors say, `--conf help` and the table of this
//! crate's README come from it.
//!
//! What PyTorch reads is read. What of it has no effect here, alone or beside others, is a [`Note`] of the configuration
//! ([`Config::without_effect`]); options of ours that contradict one another are errors, and so is what cannot be read. What only shows on
//! a device is judged when the allocator is made ([`Config::check`]).

mod effect;
mod error;
mod lex;
mod listing;
mod lists;
mod note;
mod options;
mod torch;
mod values;

use std::str::FromStr;

pub use error::ConfError;
pub use listing::{listing, markdown};
pub use note::Note;
pub use options::{ConfOption, OPTIONS, Origin};

use crate::config::{Config, SegmentMode};
use crate::error::Error;
use crate::publish::Publish;
use error::Bad;

/// The environment variable that [`Config::from_env`] reads.
pub const VARIABLE: &str = "GPUMEM_ALLOC_CONF";

/// A configuration that is being read.
#[derive(Debug)]
struct Draft {
    config: Config,
    /// The option that is being read.
    reading: &'static ConfOption,
    /// MiB of the segments that small requests share in PyTorch.
    shared_segment: u64,
    segments: Option<SegmentMode>,
    /// What was said and where.
    expandable: Option<(bool, usize)>,
    /// Whether it is to publish.
    publish: Option<bool>,
    job: Option<(String, usize)>,
}

impl Config {
    /// The defaults with what the environment variable `GPUMEM_ALLOC_CONF` says.
    ///
    /// # Errors
    /// As [`parse`](Config::parse).
    pub fn from_env() -> Result<Config, ConfError> {
        let Some(text) = std::env::var_os(VARIABLE) else {
            return Ok(Config::default());
        };
        let text = text.into_string().map_err(|_| ConfError::not_text())?;
        Config::parse(&text).map_err(ConfError::of_variable)
    }

    /// The defaults with what a text says: see [`conf`](crate::conf).
    ///
    /// ```
    /// use gpumem_alloc::{Config, SegmentMode};
    ///
    /// let config = Config::parse("segments:plain,budget_mb:4096")?;
    /// assert_eq!((config.segments, config.budget), (SegmentMode::Plain, Some(4 << 30)));
    /// let wrong = Config::parse("segments:plane").unwrap_err();
    /// assert_eq!((wrong.column, wrong.option), (10, Some("segments")));
    /// # Ok::<(), gpumem_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    /// What cannot be read, is not known or contradicts something else, with its place in the text.
    pub fn parse(text: &str) -> Result<Config, ConfError> {
        let mut draft = Draft::new();
        let mut there = Vec::new();
        for given in lex::options(text)? {
            let known = options::find(&given.name).map_err(Bad::into_error)?;
            note::forget(&mut draft.config.notes, known.name);
            draft.reading = known;
            (known.read)(&mut draft, &given).map_err(|bad| bad.of(known.name))?;
            there.push((known.name, given.name.column));
        }
        let mut config = draft.finish()?;
        let names: Vec<&str> = there.iter().map(|(name, _)| *name).collect();
        effect::settle(&mut config, &names);
        together(&config, &there)?;
        Ok(config)
    }

    /// The same with other segments, whatever was said of them. What only plain ones have is left out with others, and noted.
    #[must_use = "it is returned, not changed"]
    pub fn with_segments(mut self, segments: SegmentMode) -> Config {
        self.segments = segments;
        if matches!(segments, SegmentMode::Virtual | SegmentMode::Stitched) {
            effect::leave_to_plain(&mut self, &format!("{} segments", segments.name()));
        }
        self
    }

    /// What of the text that it was read from has no effect, or another one than in PyTorch: for whoever wrote it. The budget counts that it
    /// has now.
    pub fn without_effect(&self) -> Vec<Note> {
        let mut notes = self.notes.clone();
        if self.garbage_collection_threshold.is_some() && !self.has_budget() {
            let reason = "no effect without a budget: set budget_mb or per_process_memory_fraction";
            note::note(&mut notes, "garbage_collection_threshold", reason);
        }
        notes
    }
}

/// Checks what was given together, by the names that it has there.
fn together(config: &Config, there: &[(&'static str, usize)]) -> Result<(), ConfError> {
    // By what was given: a program sets fields for whatever segments it may have, and each has a value.
    let chunk = there.iter().rfind(|(name, _)| *name == "max_chunk_mb");
    if let Some((option, column)) = chunk.filter(|_| config.segments_on(true) == SegmentMode::Plain) {
        let reason = "means nothing with plain segments, which have no chunks: leave it out, or what only they can";
        let (column, reason) = (*column, reason.to_owned());
        return Err(Bad { column, reason }.of(option));
    }
    let Err(Error::Config { setting, reason }) = config.check() else {
        return Ok(());
    };
    let names = |option: &str| option.strip_suffix("_mb").unwrap_or(option) == setting;
    match there.iter().rfind(|(option, _)| names(option)) {
        Some((option, column)) => Err(Bad {
            column: *column,
            reason,
        }
        .of(option)),
        // What is wrong is said by whoever makes an allocator of it.
        None => Ok(()),
    }
}

impl FromStr for Config {
    type Err = ConfError;

    fn from_str(text: &str) -> Result<Config, ConfError> {
        Config::parse(text)
    }
}

impl Draft {
    fn new() -> Draft {
        Draft {
            config: Config::default(),
            reading: &OPTIONS[0],
            shared_segment: 20,
            segments: None,
            expandable: None,
            publish: None,
            job: None,
        }
    }

    /// Notes something of the option that is being read.
    fn note(&mut self, reason: impl Into<String>) {
        note::note(&mut self.config.notes, self.reading.name, reason);
    }

    /// What no option decides alone.
    fn finish(mut self) -> Result<Config, ConfError> {
        // As it likes leaves it to the other option.
        let chosen = match self.expandable {
            Some(_) => self.segments.filter(|mode| *mode != SegmentMode::Auto),
            None => self.segments,
        };
        self.config.segments = match (chosen, self.expandable) {
            (Some(mode), Some((expandable, column))) if expandable == (mode == SegmentMode::Plain) => {
                let reason = format!("contradicts segments:{}: leave one of them out", mode.name());
                return Err(Bad { column, reason }.of("expandable_segments"));
            }
            (Some(mode), _) => mode,
            (None, Some((false, _))) => SegmentMode::Plain,
            (None, Some(_)) if matches!(self.config.segments, SegmentMode::Auto | SegmentMode::Plain) => {
                SegmentMode::Virtual
            }
            (None, _) => self.config.segments,
        };
        match (self.publish, self.job, &mut self.config.publish) {
            (Some(false), Some((_, column)), _) => {
                let reason = "labels what is published, and publish:off publishes nothing".to_owned();
                return Err(Bad { column, reason }.of("job"));
            }
            (Some(false), None, publish) => *publish = Publish::Off,
            (_, Some((job, _)), Publish::On(options)) => options.job = job,
            _ => {}
        }
        Ok(self.config)
    }
}

#[cfg(test)]
mod cases_tests;
#[cfg(test)]
mod refused_tests;
#[cfg(test)]
mod tests;
