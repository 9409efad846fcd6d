//! `demo train`: a synthetic training loop whose phases show as a sawtooth.
//!
//! Forward allocates a layer's activations and keeps them. Backward frees them in reverse order while gradients appear. The
//! optimizer updates the weights and frees the gradients. Weights and optimizer states stay. Batches vary, so the blocks of one
//! step do not exactly fit the holes of the previous one, and the cache fragments as in real training.

mod model;
mod snapshot;

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::demo::Demo;
use crate::error::DemoError;
use crate::lab::{Tensor, Want};
use crate::protocol::{Kind, Outcome, Phase, Step};
use crate::stage::{LONGEST_REST, Stage, Stop};
use crate::values::parse_number;
use gpumem_text::units::{bytes_to_pib, plural};
use model::{Model, objection};

/// Multiply-adds per float of a layer: a few milliseconds a layer on a large card.
const ROUNDS: u32 = 2048;

/// Bytes that a step leaks with `--leak`.
const LOSS: u64 = 3 << 20;

/// Time of a step without `--pace`. A dashboard with a refresh of 1 s sees three moments of each step, so that the sawtooth
/// is visible.
const PACE: Duration = Duration::from_secs(3);

/// `demo train`, with its arguments.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A step takes 3s unless --pace says otherwise. On the simulated device the budget is 15/16 of its memory unless --budget says otherwise."
)]
pub struct Train {
    /// Layers of the model [default: 12]
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value = "12", hide_default_value = true, value_parser = |text: &str| parse_number(text, 1..=1000_u32))]
    pub layers: u32,
    /// Mean batch size [default: 32]
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value = "32", hide_default_value = true, value_parser = |text: &str| parse_number(text, 1..=65_536_u32))]
    pub batch: u32,
    /// Steps; 0: until told to quit [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value = "0", hide_default_value = true, value_parser = |text: &str| parse_number(text, 0..=u64::MAX))]
    pub steps: u64,
    /// At the end: say who held the memory at its peak and what stays or grows, and write a snapshot for PyTorch's viewers
    /// (.pickle or .json)
    #[arg(long, value_name = "FILE", requires = "headless")]
    pub snapshot: Option<PathBuf>,
    /// Forget to free something in each step, as programs do
    #[arg(long)]
    pub leak: bool,
}

impl Default for Train {
    fn default() -> Train {
        Train {
            layers: 12,
            batch: 32,
            steps: 0,
            snapshot: None,
            leak: false,
        }
    }
}

/// The memory that stays from step to step, one tensor per layer each.
struct State {
    weights: Vec<Tensor>,
    /// Optimizer states. The first step's optimizer allocates them, as real ones do.
    moments: Vec<[Tensor; 2]>,
    /// The losses of all steps, which a leaking training loop never frees.
    losses: Vec<Tensor>,
}

/// The result of a step.
enum Trained {
    Whole,
    /// There was too little memory. Everything of the step is freed again.
    Short,
}

impl Demo for Train {
    const NAME: &'static str = "train";
    const SUMMARY: &'static str = "a synthetic training loop: forward, backward and optimizer as a sawtooth";
    const KIND: Kind = Kind::Looping;

    fn check(&self) -> Result<(), DemoError> {
        self.snapshot.as_deref().map_or(Ok(()), snapshot::check)
    }

    fn run(&mut self, stage: &mut Stage<'_>) -> Result<Outcome, Stop> {
        if let Some((argument, reason)) = objection(stage.lab.budget(), self.layers, self.batch) {
            return Err(DemoError::Argument { argument, reason }.into());
        }
        let model = Model::new(stage.lab.budget(), self.layers, self.batch, stage.args.seed);
        stage.begin(self.steps, None)?;
        if self.snapshot.is_some() {
            snapshot::open(stage)?;
        }
        let mut state = State {
            weights: weights(stage, &model)?,
            moments: Vec::new(),
            losses: Vec::new(),
        };
        let mut trained = Ok(());
        while trained.is_ok() && (self.steps == 0 || stage.steps_done < self.steps) {
            trained = step(stage, &model, &mut state, self.leak);
        }
        // A run that ends early has a snapshot, too.
        if let Some(path) = &self.snapshot {
            snapshot::close(stage, path)?;
        }
        trained?;
        drop(state);
        Ok(Outcome {
            steps_done: stage.steps_done,
            reserved_at_end: stage.release_all()?,
            ..Outcome::default()
        })
    }
}

fn weights(stage: &mut Stage<'_>, model: &Model) -> Result<Vec<Tensor>, Stop> {
    let _scope = gpumem_alloc::scope("weights");
    let mut weights = Vec::new();
    for bytes in &model.weights {
        let tensor = stage.lab.tensor(*bytes)?;
        stage.lab.compute(&tensor, None, 1)?;
        weights.push(tensor);
    }
    Ok(weights)
}

/// Runs one step. If memory is too short for the whole batch it takes half of it, and its line says so.
fn step(stage: &mut Stage<'_>, model: &Model, state: &mut State, leak: bool) -> Result<(), Stop> {
    let number = stage.steps_done + 1;
    stage.lab.mark("step");
    let mut batch = model.batch(number);
    let mut phases = Vec::new();
    let mut note = "";
    if let Trained::Short = train(stage, model, state, batch, leak, &mut phases)? {
        stage.lab.release()?;
        batch = batch.div_ceil(2);
        phases.clear();
        note = " Memory was too short for the whole batch, so the cache was released and half of the batch was used.";
        if let Trained::Short = train(stage, model, state, batch, leak, &mut phases)? {
            return Err(too_small(state).into());
        }
    }
    let most = phases.iter().max_by_key(|phase| phase.allocated);
    let (name, peak) = most.map_or(("it", 0), |phase| (phase.name.as_str(), phase.allocated));
    let rest = phases.last().map_or(0, |p| p.allocated);
    stage.done(Step {
        id: "step".into(),
        title: format!("Training step {number}: {batch} samples"),
        detail: format!(
            "{} in use after {name}, {} between steps.{note}",
            bytes_to_pib(peak),
            bytes_to_pib(rest)
        ),
        phases,
        ..Step::default()
    })?;
    Ok(())
}

/// Returns why there is no memory even for half a batch: the leak of earlier steps, else the budget.
fn too_small(state: &State) -> DemoError {
    match state.losses.len() as u64 {
        0 => DemoError::Argument {
            argument: "--budget",
            reason: "too small even for half a batch: ask for more".to_owned(),
        },
        steps => DemoError::Leaked {
            steps: plural(steps, "step"),
            bytes: bytes_to_pib(steps * LOSS),
        },
    }
}

fn train(
    stage: &mut Stage<'_>,
    model: &Model,
    state: &mut State,
    batch: u64,
    leak: bool,
    phases: &mut Vec<Phase>,
) -> Result<Trained, Stop> {
    let Want::Got(activations) = forward(stage, model, state, batch)? else {
        return Ok(Trained::Short);
    };
    phases.push(stage.lab.phase("forward"));
    let Want::Got(gradients) = backward(stage, model, state, activations, batch)? else {
        return Ok(Trained::Short);
    };
    phases.push(stage.lab.phase("backward"));
    let Want::Got(()) = optimizer(stage, model, state, gradients)? else {
        return Ok(Trained::Short);
    };
    phases.push(stage.lab.phase("optimizer"));
    if leak {
        let Want::Got(loss) = loss(stage)? else {
            return Ok(Trained::Short);
        };
        state.losses.push(loss);
    }
    stage.lab.synchronize()?;
    stage.lab.allocator().step();
    Ok(Trained::Whole)
}

/// Allocates a step's loss with its graph, which a leaking program keeps for a plot that it never draws.
#[inline(never)]
fn loss(stage: &Stage<'_>) -> Result<Want<Tensor>, DemoError> {
    let kept = stage.lab.want(LOSS);
    // Without this the call would be a tail call, and the leaking caller would not be on the stack.
    black_box(&kept);
    kept
}

/// Unwraps [`Want::Got`], or returns [`Want::Short`] from the function.
macro_rules! got {
    ($want:expr) => {
        match $want {
            Want::Got(value) => value,
            Want::Short => return Ok(Want::Short),
        }
    };
}

fn forward(stage: &mut Stage<'_>, model: &Model, state: &State, batch: u64) -> Result<Want<Vec<Tensor>>, Stop> {
    stage.lab.mark("forward");
    let mut activations: Vec<Tensor> = Vec::new();
    for (layer, weights) in state.weights.iter().enumerate() {
        let activation = {
            let _scope = gpumem_alloc::scope("activations");
            got!(stage.lab.want(model.activation(layer, batch))?)
        };
        let scratch = {
            let _scope = gpumem_alloc::scope("scratch");
            got!(stage.lab.want(model.scratch(batch))?)
        };
        stage.lab.compute(&scratch, Some(weights), 1)?;
        stage.lab.compute(&activation, activations.last(), ROUNDS)?;
        activations.push(activation);
        pace(stage, 40, model)?;
    }
    Ok(Want::Got(activations))
}

fn backward(
    stage: &mut Stage<'_>,
    model: &Model,
    state: &State,
    mut activations: Vec<Tensor>,
    batch: u64,
) -> Result<Want<Vec<Tensor>>, Stop> {
    stage.lab.mark("backward");
    let mut gradients = Vec::new();
    for weights in state.weights.iter().rev() {
        let gradient = {
            let _scope = gpumem_alloc::scope("gradients");
            got!(stage.lab.want(weights.bytes())?)
        };
        let scratch = {
            let _scope = gpumem_alloc::scope("scratch");
            got!(stage.lab.want(model.scratch(batch))?)
        };
        // The layer's activations are needed only for its gradient.
        let activation = activations.pop();
        stage.lab.compute(&scratch, activation.as_ref(), ROUNDS)?;
        stage.lab.compute(&gradient, Some(&scratch), 1)?;
        gradients.push(gradient);
        drop(activation);
        pace(stage, 45, model)?;
    }
    gradients.reverse();
    Ok(Want::Got(gradients))
}

fn optimizer(
    stage: &mut Stage<'_>,
    model: &Model,
    state: &mut State,
    gradients: Vec<Tensor>,
) -> Result<Want<()>, Stop> {
    stage.lab.mark("optimizer");
    for (layer, gradient) in gradients.into_iter().enumerate() {
        let Some(weights) = state.weights.get(layer) else { break };
        if state.moments.len() == layer {
            let _scope = gpumem_alloc::scope("optimizer");
            let pair = [
                got!(stage.lab.want(weights.bytes())?),
                got!(stage.lab.want(weights.bytes())?),
            ];
            state.moments.push(pair);
        }
        for moment in state.moments.get(layer).into_iter().flatten() {
            stage.lab.compute(moment, Some(&gradient), 1)?;
        }
        stage.lab.compute(weights, Some(&gradient), 1)?;
        drop(gradient);
        pace(stage, 15, model)?;
    }
    Ok(Want::Got(()))
}

/// Rests after one layer of a phase that takes `percent` of a step's time.
fn pace(stage: &mut Stage<'_>, percent: u32, model: &Model) -> Result<(), Stop> {
    let whole = stage.args.pace.unwrap_or(PACE).min(LONGEST_REST);
    let layers = u32::try_from(model.weights.len()).unwrap_or(u32::MAX).max(1);
    stage.rest(whole * percent / 100 / layers)
}
