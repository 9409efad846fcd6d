//! The arguments of benchmarks.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use gpumem_text::units::parse_bytes;

use super::claims;
use crate::args::DeviceChoice;
use crate::values::parse_number;

/// The benchmarks.
#[derive(Clone, Debug, Subcommand)]
pub enum Bench {
    /// Measure the latency and bandwidth of each level of a GPU's memory hierarchy
    Hierarchy(HierarchyArgs),
    /// Check on this machine what courses claim about GPU memory
    Claims(ClaimsArgs),
}

/// The arguments of `bench hierarchy`.
#[derive(Clone, Debug, Default, Args)]
pub struct HierarchyArgs {
    /// Print one JSON object of schema gpumem-hierarchy/1; with --steer, one of schema gpumem-bench/1 per line
    #[arg(long)]
    pub json: bool,
    /// The GPU, as CUDA counts them: 0, or cuda:0
    // It needs its own id: `gpumem-tui` has another `--device`.
    #[arg(id = "bench_device", long = "device", value_name = "N", default_value = "0", allow_hyphen_values = true, value_parser = parse_device)]
    pub device: u32,
    /// Most memory to use on the GPU, and on one peer at a time, besides contexts: 512M, 2G [default: 1G, and at most a quarter of what is free]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = |text: &str| parse_bytes(text))]
    pub budget: Option<u64>,
    /// Do not keep the report in the cache folder, where the dashboard finds it
    #[arg(long)]
    pub no_save: bool,
    /// Read commands from stdin: quit. The benchmark ends with stdin
    #[arg(long, requires = "json")]
    pub steer: bool,
    /// Process id of the dashboard that steers
    #[arg(long, value_name = "PID", requires = "steer", hide = true, value_parser = |text: &str| parse_number(text, 0..=u32::MAX))]
    pub parent: Option<u32>,
}

/// The arguments of `bench claims`.
#[derive(Clone, Debug, Default, Args)]
pub struct ClaimsArgs {
    /// Check this claim and explain it, by the name in the first column; may be given several times
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = PossibleValuesParser::new(claims::names()))]
    pub only: Vec<String>,
    /// Explain each claim: its words, how it was measured, all figures
    #[arg(long, short = 'v')]
    pub explain: bool,
    /// Print one JSON object of schema gpumem-claims/1; with --steer, one of schema gpumem-bench/1 per line
    #[arg(long)]
    pub json: bool,
    /// The GPU, as CUDA counts them: 0, or cuda:0; or sim: check the claims that need none [default: 0, or sim without a driver]
    // It needs its own id: `gpumem-tui` has another `--device`.
    #[arg(id = "bench_device", long = "device", value_name = "N", default_value = "auto", hide_default_value = true, allow_hyphen_values = true, value_parser = parse_choice)]
    pub device: DeviceChoice,
    /// Most device memory to use besides the context: 512M, 2G [default: 1G, and at most a quarter of what is free]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = |text: &str| parse_bytes(text))]
    pub budget: Option<u64>,
    /// Read commands from stdin: quit. The benchmark ends with stdin
    #[arg(long, requires = "json")]
    pub steer: bool,
    /// Process id of the dashboard that steers
    #[arg(long, value_name = "PID", requires = "steer", hide = true, value_parser = |text: &str| parse_number(text, 0..=u32::MAX))]
    pub parent: Option<u32>,
}

fn parse_choice(text: &str) -> Result<DeviceChoice, String> {
    match text {
        "auto" => Ok(DeviceChoice::Auto),
        "sim" => Ok(DeviceChoice::Sim),
        number => parse_device(number)
            .map(DeviceChoice::Cuda)
            .map_err(|_| format!("{text:?} is not a device: say 0, 1, cuda:0 or sim")),
    }
}

fn parse_device(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("cuda:").unwrap_or(text);
    number
        .parse()
        .map_err(|_| format!("{text:?} is not a GPU: say 0, 1 or cuda:0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_take_the_simulated_device_too() {
        assert_eq!(parse_choice("sim"), Ok(DeviceChoice::Sim));
        assert_eq!(parse_choice("1"), Ok(DeviceChoice::Cuda(1)));
        assert!(parse_choice("gpu").is_err());
    }

    #[test]
    fn devices_are_read_by_number() {
        assert_eq!(parse_device("0"), Ok(0));
        assert_eq!(parse_device("cuda:3"), Ok(3));
        for bad in ["", "sim", "cuda", "cuda:", "-1", "99999999999"] {
            assert!(parse_device(bad).is_err(), "{bad:?}");
        }
    }
}
