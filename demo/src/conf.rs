//! What the allocators of these programs are told: by their user, or by the environment's `GPUMEM_ALLOC_CONF`.

use std::path::PathBuf;
use std::str::FromStr;

use gpumem_alloc::{ConfError, Config, Options, Publish, conf};

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
        budget,
        budget_fraction,
        segments,
        max_chunk,
        max_split_size,
        max_non_split_rounding,
        roundup_power2_divisions,
        garbage_collection_threshold,
        release_on_oom,
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
        && *gpu_direct_rdma == usual.gpu_direct_rdma
}

/// The configuration of an allocator that publishes in a directory, under a label unless another one was asked for.
pub(crate) fn told(user: Option<&Conf>, dir: Option<PathBuf>, label: String) -> Result<Config, ConfError> {
    let config = match user {
        Some(conf) => conf.config.clone(),
        None => Config::from_env()?,
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
