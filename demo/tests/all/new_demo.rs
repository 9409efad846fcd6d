//! A demo that is not in the list: its type is enough to run it.

use clap::Args;
use gpumem_demo::protocol::{Kind, Outcome};
use gpumem_demo::{Chosen, Demo, Stage, Stop};

use crate::common::{args, steered};

/// Ends at once.
#[derive(Clone, Debug, Args)]
struct Nothing {
    /// How little
    #[arg(long, default_value = "7")]
    amount: u32,
}

impl Demo for Nothing {
    const NAME: &'static str = "nothing";
    const SUMMARY: &'static str = "what is left when all is gone";
    const KIND: Kind = Kind::Stepped;

    fn run(&mut self, _: &mut Stage<'_>) -> Result<Outcome, Stop> {
        Ok(Outcome {
            words_checked: self.amount.into(),
            ..Outcome::default()
        })
    }
}

#[test]
fn unlisted_demo_runs_by_its_type() {
    let ran = steered(Nothing { amount: 3 }, &args(), "next\n");
    assert_eq!(ran.outcome().words_checked, 3);
    let entry = Chosen::from(Nothing { amount: 3 }).entry();
    assert_eq!((entry.name, entry.kind), ("nothing", Kind::Stepped));
    assert!(entry.listed() && entry.has_flag("--amount") && !entry.has_flag("--fix"));
}
