//! How long a campaign is, and where its random numbers begin.

/// Channels of a run by default. It takes some seconds.
const MUTANTS: u64 = 2_400;
/// The default seed: every run of CI tries the same mutants.
const SEED: u64 = 20_261_128;
/// Channels that are mutated for each of the inputs.
const CHANNELS_PER_INPUT: u64 = 6;

/// The settings that the environment asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Mutated channels.
    pub(crate) channels: u64,
    /// Mutated inputs: bytes of a terminal, snapshots, traces and configurations, a quarter each.
    pub(crate) inputs: u64,
    /// Where the random numbers begin.
    pub(crate) seed: u64,
}

impl Settings {
    /// Reads `GPUMEM_CAMPAIGN`, the number of channels, and `GPUMEM_CAMPAIGN_SEED`.
    pub(crate) fn from_environment() -> Settings {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            let number = text.parse::<u64>();
            Some(number.unwrap_or_else(|error| panic!("{name} is {text:?}, which is no number: {error}")))
        };
        let channels = number("GPUMEM_CAMPAIGN").unwrap_or(MUTANTS);
        Settings {
            channels,
            inputs: channels / CHANNELS_PER_INPUT,
            seed: number("GPUMEM_CAMPAIGN_SEED").unwrap_or(SEED),
        }
    }
}
