//! What in-place operations save.

use super::bench::{Bench, Found};
use super::figure::number;
use super::report::Verdict;
use super::tensors::{Tensors, counted};
use super::{Claim, Needs};
use crate::bench::error::Stop;

pub(super) const IN_PLACE: Claim = Claim {
    name: "in-place",
    words: "An in-place operation saves one buffer.",
    source: "courses",
    method: "The peak of three operations one after the other on a tensor, each into a new tensor while the old one is \
             freed, and each in place; allocated by gpumem-alloc and counted, in sizes of the tensor.",
    needs: Needs::Allocator,
    guess_ms: 20,
    measure,
};

const OPERATIONS: usize = 3;

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let (mut tensors, bytes) = Tensors::new(bench)?;
    let out_of_place = tensors.peak(|tensors| {
        let mut x = tensors.tensor(bytes)?;
        for _ in 0..OPERATIONS {
            // The new tensor is there before the old one goes.
            x = tensors.tensor(bytes)?;
        }
        drop(x);
        Ok(())
    })?;
    let in_place = tensors.peak(|tensors| {
        let x = tensors.tensor(bytes)?;
        drop(x);
        Ok(())
    })?;
    let saved = (out_of_place as f64 - in_place as f64) / bytes as f64;
    Ok(Found {
        short: format!("{} buffer saved", number(saved)),
        figures: vec![
            counted("peak into new tensors", out_of_place)?,
            counted("peak in place", in_place)?,
        ],
        verdict: verdict(saved),
    })
}

/// Judges how many buffers in-place operations save.
fn verdict(saved: f64) -> Verdict {
    match (0.95..=1.05).contains(&saved) {
        true => Verdict::Holds,
        false => Verdict::DoesNotHold(format!("{} buffers", number(saved))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saving_one_buffer_is_what_is_claimed() {
        assert_eq!(verdict(1.0), Verdict::Holds);
        assert_eq!(verdict(3.0), Verdict::DoesNotHold("3 buffers".to_owned()));
        assert_eq!(verdict(0.0), Verdict::DoesNotHold("0 buffers".to_owned()));
    }
}
