//! `bench claims` as a process: opens the device, checks the claims, writes the report.

use std::io::Write;
use std::time::Instant;

use gpumem_alloc::device::{self, Device, SimConfig};

use super::perform::{Machine, check};
use super::{CLAIMS, Claim, Report, SCHEMA};
use crate::args::DeviceChoice;
use crate::bench::args::ClaimsArgs;
use crate::bench::budget::budget;
use crate::bench::error::{BenchError, Stop};
use crate::bench::protocol::{Body, Start};
use crate::bench::run::date;
use crate::bench::watch::{Lines, ProgressLine, Watcher};
use crate::blocking::stdout;
use crate::control::Control;
use crate::gpu::{CudaClaims, may_simulate};
use crate::rig::claims::ClaimRig;

/// The name of `bench claims` in its lines.
pub(in crate::bench) const NAME: &str = "claims";

/// Runs `bench claims`.
pub(in crate::bench) fn run(args: &ClaimsArgs, control: &Control) -> Result<(), Stop> {
    let mut out = stdout();
    let mut lines = Lines::new(&mut out, NAME);
    let done = perform(args, control, &mut lines);
    if let (true, Err(Stop::Error(error))) = (args.steer, &done) {
        // An output that cannot be written has been reported already.
        let _ = lines.say(Body::Error {
            message: error.to_string(),
            exit_code: error.exit_code(),
        });
    }
    let report = done?;
    if args.steer {
        lines.say(Body::Claims {
            report: Box::new(report),
        })?;
        return Ok(());
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n",
        false => report.text(args.explain || !args.only.is_empty(), columns()),
    };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Opens the device and checks the chosen claims. All memory is free when this returns.
fn perform(args: &ClaimsArgs, control: &Control, lines: &mut Lines<'_>) -> Result<Report, Stop> {
    let began = Instant::now();
    let device = open(args)?;
    let mut gpu = match device.as_sim() {
        Some(_) => None,
        None => Some(CudaClaims::open(device.clone(), |free| budget(args.budget, free))?),
    };
    let card = gpu.as_ref().map(|gpu| gpu.card().clone());
    let budget = gpu.as_ref().map_or(0, |gpu| gpu.budget());
    if args.steer {
        let card = card.clone().unwrap_or_default();
        lines.say(Body::Start(Start {
            pid: std::process::id(),
            device: card.name,
            uuid: card.uuid,
            budget,
        }))?;
    }
    let mut watcher = Watcher {
        control,
        terminal: ProgressLine::on_terminal().filter(|_| !args.steer),
        lines: args.steer.then_some(lines),
    };
    let machine = Machine {
        gpu: gpu.as_mut().map(|gpu| gpu as &mut dyn ClaimRig),
        device: &device,
    };
    let rows = check(&chosen(&args.only), machine, &mut watcher)?;
    Ok(Report {
        schema: SCHEMA.to_owned(),
        card,
        date: date(),
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        budget,
        rows,
    })
}

/// Returns the columns of the terminal that stdout is, if it is one that knows them.
fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Opens the chosen device. Without a choice it is the first GPU, or the simulated device where NVIDIA's driver is not installed
/// and a person reads the result.
fn open(args: &ClaimsArgs) -> Result<Device, BenchError> {
    let ordinal = match args.device {
        DeviceChoice::Sim => return Ok(device::sim(SimConfig::default())),
        DeviceChoice::Auto if may_simulate(args.json) => return Ok(device::sim(SimConfig::default())),
        DeviceChoice::Auto => 0,
        DeviceChoice::Cuda(ordinal) => ordinal,
    };
    device::cuda(ordinal).map_err(|error| BenchError::NoGpu(error.to_string()))
}

/// Returns the claims of these names in the order of the table, and all claims for no names.
fn chosen(only: &[String]) -> Vec<&'static Claim> {
    let is_chosen = |claim: &&Claim| only.is_empty() || only.iter().any(|name| name == claim.name);
    CLAIMS.iter().filter(is_chosen).collect()
}
