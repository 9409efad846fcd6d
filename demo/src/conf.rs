//! The configuration of the allocators, from `--conf` or the environment's `GPUMEM_ALLOC_CONF`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{StringValueParser, TypedValueParser, ValueParserFactory};
use clap::{Arg, Command, Error};
use gpumem_alloc::{ConfError, Config, Options, Publish, SegmentMode, conf};

/// A configuration with its text.
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
    /// Returns the text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the list of options for a terminal.
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
    /// Returns the name on the command line.
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
            format!("{text:?} is not a kind of segments: say one of {names}")
        })
    }
}

/// Checks whether a program with this configuration, or the environment's, publishes. Errors in the configuration are
/// reported when the program starts.
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

/// Returns what is wrong with the environment's configuration.
pub fn wrong_environment() -> Option<ConfError> {
    Config::from_env().err()
}

/// Checks whether a configuration has only options about publishing. They are the only ones that a demo with fixed sizes,
/// segments and budget accepts.
pub(crate) fn has_only_publishing_options(conf: &Conf) -> bool {
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

/// Returns the configuration of an allocator that publishes in `dir`, under `label` unless the configuration names a job.
/// `segments` overrides the configuration's.
pub(crate) fn allocator_config(
    user: Option<&Conf>,
    segments: Option<Segments>,
    dir: Option<PathBuf>,
    label: String,
) -> Result<Config, ConfError> {
    let config = match (user, segments) {
        // Parsed as one text, whose last option counts, so that options without meaning for these segments are refused.
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
            // The job of `GPUMEM_JOB` is in the options, unless another one was configured.
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
    fn separate_segments_override_the_configuration() {
        let merged = |conf: &str, segments: SegmentMode| {
            let conf: Conf = conf.parse().unwrap();
            allocator_config(Some(&conf), Some(Segments(segments)), None, "job".to_owned())
        };
        for conf in [
            "",
            "max_chunk_mb:8",
            "max_chunk_mb:8,",
            "max_chunk_mb:8,segments:stitched",
        ] {
            let config = merged(conf, SegmentMode::Virtual).unwrap();
            assert_eq!(config.segments, SegmentMode::Virtual);
            assert_eq!(config.max_chunk == 8 << 20, !conf.is_empty());
        }
        for (conf, left) in [
            ("segments:plain", SegmentMode::Auto),
            ("expandable_segments:False", SegmentMode::Plain),
            ("expandable_segments:True", SegmentMode::Virtual),
        ] {
            let config = merged(conf, SegmentMode::Auto).unwrap();
            assert_eq!(
                config.segments, left,
                "auto leaves it to {conf}, if that is another option"
            );
        }
        let refused = merged("max_chunk_mb:8", SegmentMode::Plain).unwrap_err().to_string();
        assert!(
            refused.contains("max_chunk_mb means nothing with plain segments"),
            "{refused}"
        );
    }
}
