//! The checked claims as data and as a JSON document.

use serde::{Deserialize, Serialize};

use super::figure::Figure;
use crate::rig::Card;

/// The schema of [`Report`]. Readers refuse other schemas. Within one schema number fields are only added.
pub const SCHEMA: &str = "gpumem-claims/1";

/// Claims about GPU memory, checked on a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The card's attributes; `None` if there was no GPU, so that only the claims were checked that need none.
    pub card: Option<Card>,
    /// When the last claim was checked, in seconds since 1970-01-01 UTC.
    pub date: u64,
    /// How long all of it took, in milliseconds.
    pub duration_ms: u64,
    /// Device memory that the benchmarks could use, in bytes; 0 without a GPU. A context takes several hundred MiB more.
    pub budget: u64,
    /// The claims, in the order of the table.
    pub rows: Vec<Row>,
}

/// A claim, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name on the command line (`--only`).
    pub name: String,
    /// The claim in the words of courses.
    pub claim: String,
    /// Where it comes from: `courses`, or the name of a document.
    pub source: String,
    /// How it was measured, in one sentence.
    pub method: String,
    /// Where it was measured.
    pub place: Place,
    /// The figure in a few words; empty if there is none.
    pub short: String,
    /// Everything that was measured.
    pub figures: Vec<Figure>,
    /// Whether the claim holds.
    pub verdict: Verdict,
}

/// Where a claim is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On the GPU.
    Gpu,
    /// On the simulated device of gpumem-alloc: bytes are counted as on a GPU, times are modelled.
    Simulated,
}

/// Whether a claim holds on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "why")]
pub enum Verdict {
    /// It does.
    Holds,
    /// It does under a condition: words that follow "holds when".
    HoldsWhen(String),
    /// It does not: what was found instead.
    DoesNotHold(String),
    /// It was not measured, or others kept the card busy, and why.
    NotMeasured(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Holds => f.write_str("holds"),
            Verdict::HoldsWhen(condition) => write!(f, "holds when {condition}"),
            Verdict::DoesNotHold(found) => write!(f, "does not hold: {found}"),
            Verdict::NotMeasured(reason) => write!(f, "not measured: {reason}"),
        }
    }
}
