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

/// The configuration of an allocator that publishes in a directory, under a label unless another one was asked for.
pub(crate) fn told(user: Option<&Conf>, dir: Option<PathBuf>, label: String) -> Result<Config, ConfError> {
    let config = match user {
        Some(conf) => conf.config.clone(),
        None => Config::from_env()?,
    };
    let publish = match config.publish {
        Publish::Off => Publish::Off,
        Publish::On(options) => {
            let labelled = options.job != Options::default().job;
            let job = if labelled { options.job } else { label };
            Publish::On(Options { dir, job, ..options })
        }
    };
    Ok(Config { publish, ..config })
}
