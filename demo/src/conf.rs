//! What the allocators of these programs are told: by their user, or by the environment's `GPUMEM_ALLOC_CONF`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{StringValueParser, TypedValueParser, ValueParserFactory};
use clap::{Arg, Command, Error};
use gpumem_alloc::{ConfError, Config, Options, Publish, SegmentMode, conf};

/// A configuration as text, and what it says.
#[derive(Clone, Debug)]
pub struct Conf {
    text: String,
    config: Config,
}

impl FromStr for Conf {
    type Err = ConfError;

    fn from_str(text: &str) -> Result<Conf, ConfError> {
        let text = text.to_owned();
        Config::parse(&text).map(|config| Conf { text, config })
    }
}

impl Conf {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The options there are, for a terminal.
    pub fn help() -> String {
        conf::listing()
    }
}

/// Reads `--conf TEXT`; `help` prints the list and ends the program.
#[derive(Clone, Copy, Debug)]
pub struct ConfParser;

impl TypedValueParser for ConfParser {
    type Value = Conf;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Conf, Error> {
        if value == "help" {
            let list = Command::new("conf").override_help(Conf::help());
            list.try_get_matches_from(["conf", "--help"])?;
        }
        let read = |text: String| text.parse::<Conf>();
        StringValueParser::new().try_map(read).parse_ref(command, arg, value)
    }
}

impl ValueParserFactory for Conf {
    type Parser = ConfParser;

    fn value_parser() -> ConfParser {
        ConfParser
    }
}

/// How our allocator takes memory for large blocks; see [`SegmentMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments(pub(crate) SegmentMode);

impl Segments {
    /// What the command line takes.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

impl FromStr for Segments {
    type Err = String;

    fn from_str(text: &str) -> Result<Segments, String> {
        let found = SegmentMode::ALL.into_iter().find(|mode| mode.name() == text);
        found.map(Segments).ok_or_else(|| {
            let names = SegmentMode::ALL.map(SegmentMode::name).join(", ");
            format!("{text:?} is no kind of segments; there are {names}")
        })
    }
}

/// Whether a program that is told this, or by the environment, publishes. What is wrong with it is told when it begins.
pub fn publishes(user: Option<&Conf>) -> bool {
    let config = match user {
        Some(conf) => Ok(conf.config.clone()),
        None => Config::from_env(),
    };
    !matches!(
        config,
        Ok(Config {
            publish: Publish::Off,
            ..
        })
    )
}

/// Whether there is nothing in it but what a demo takes that shows what its own sizes, segments and budget come to.
pub(crate) fn is_of_publishing(conf: &Conf) -> bool {
    let usual = Config::default();
    let Config {
        publish: _,
        history: _,
        monitor: _,
        notes: _,
        budget,
        budget_fraction,
        segments,
        max_chunk,
        max_split_size,
        max_non_split_rounding,
        roundup_power2_divisions,
        garbage_collection_threshold,
        release_on_oom,
        cross_stream_reuse,
        streams_may_end_untold: _,
        gpu_direct_rdma,
    } = &conf.config;
    budget.is_none()
        && budget_fraction.is_none()
        && max_split_size.is_none()
        && garbage_collection_threshold.is_none()
        && *segments == usual.segments
        && *max_chunk == usual.max_chunk
        && *max_non_split_rounding == usual.max_non_split_rounding
        && *roundup_power2_divisions == usual.roundup_power2_divisions
        && *release_on_oom == usual.release_on_oom
        && *cross_stream_reuse == usual.cross_stream_reuse
        && *gpu_direct_rdma == usual.gpu_direct_rdma
}

/// The configuration of an allocator that publishes in a directory, under a label unless another one was asked for; with these segments
/// in place of what it says of them.
pub(crate) fn told(
    user: Option<&Conf>,
    segments: Option<Segments>,
    dir: Option<PathBuf>,
    label: String,
) -> Result<Config, ConfError> {
    let config = match (user, segments) {
        // What means nothing with them is refused as if all were said in one place, where the last one counts.
        (Some(conf), Some(segments)) => {
            let ends = conf.text.trim_end();
            let comma = if ends.is_empty() || ends.ends_with(',') {
                ""
            } else {
                ","
            };
            Config::parse(&format!("{}{comma}segments:{}", conf.text, segments.name()))?
        }
        (Some(conf), None) => conf.config.clone(),
        (None, Some(segments)) => Config::from_env()?.with_segments(segments.0),
        (None, None) => Config::from_env()?,
    };
    let publish = match config.publish {
        Publish::Off => Publish::Off,
        Publish::On(options) => {
            // What `GPUMEM_JOB` says is in it, unless another one was asked for.
            let job = if options.job.is_empty() { label } else { options.job };
            Publish::On(Options { dir, job, ..options })
        }
    };
    Ok(Config { publish, ..config })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn segments_said_apart_are_as_said_last() {
        let told = |conf: &str, segments: SegmentMode| {
            let conf: Conf = conf.parse().unwrap();
            told(Some(&conf), Some(Segments(segments)), None, "job".to_owned())
        };
        for conf in [
            "",
            "max_chunk_mb:8",
            "max_chunk_mb:8,",
            "max_chunk_mb:8,segments:stitched",
        ] {
            let config = told(conf, SegmentMode::Virtual).unwrap();
            assert_eq!(config.segments, SegmentMode::Virtual);
            assert_eq!(config.max_chunk == 8 << 20, !conf.is_empty());
        }
        for (conf, left) in [
            ("segments:plain", SegmentMode::Auto),
            ("expandable_segments:False", SegmentMode::Plain),
            ("expandable_segments:True", SegmentMode::Virtual),
        ] {
            let config = told(conf, SegmentMode::Auto).unwrap();
            assert_eq!(
                config.segments, left,
                "auto leaves it to {conf}, if that is another option"
            );
        }
        let refused = told("max_chunk_mb:8", SegmentMode::Plain).unwrap_err().to_string();
        assert!(
            refused.contains("max_chunk_mb means nothing with plain segments"),
            "{refused}"
        );
    }
}
