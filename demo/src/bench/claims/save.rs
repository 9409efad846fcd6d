//! What saving a checkpoint takes.

use super::bench::{Bench, Found, failed};
use super::figure::range;
use super::report::Verdict;
use super::tensors::{Tensor, Tensors, counted};
use super::{Claim, Needs};
use crate::bench::error::{BenchError, Stop};

pub(super) const SAVE: Claim = Claim {
    name: "save",
    words: "Saving a checkpoint doubles the memory of the weights, unless they are copied to the host first.",
    source: "courses",
    method: "Weights of gpumem-alloc are cloned on the device and then saved to memory of the host, and saved tensor by \
             tensor. The peaks are counted, in sizes of the weights; what was saved is compared.",
    needs: Needs::Allocator,
    guess_ms: 300,
    measure,
};

/// Tensors of the model.
const TENSORS: usize = 8;
/// "Doubles", and what copying out first takes at most, in sizes of the weights.
const DOUBLES: f64 = 1.9;
const STAYS: f64 = 1.1;

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let (mut tensors, unit) = Tensors::new(bench)?;
    let bytes = unit / 4;
    let mut weights = tensors.several(TENSORS, bytes)?;
    for (tensor, word) in weights.iter_mut().zip(1..) {
        tensor.fill_words(word).map_err(failed)?;
    }
    let held = tensors.held();
    bench.watch.go_on()?;
    let cloned = tensors.peak(|tensors| {
        let mut clones = Vec::new();
        for tensor in &weights {
            let mut clone = tensors.tensor(bytes)?;
            clone.write(&read(tensor)?).map_err(failed)?;
            clones.push(clone);
        }
        save(&clones)
    })?;
    bench.watch.go_on()?;
    let copied = tensors.peak(|_| save(&weights))?;
    let times = |peak: u64| peak as f64 / held as f64;
    Ok(Found {
        short: format!(
            "{} and {}",
            range(times(cloned), times(cloned), "x"),
            range(times(copied), times(copied), "x")
        ),
        figures: vec![
            counted("weights", held)?,
            counted("peak with clones", cloned)?,
            counted("peak tensor by tensor", copied)?,
        ],
        verdict: verdict(times(cloned), times(copied)),
    })
}

fn read(tensor: &Tensor) -> Result<Vec<u8>, Stop> {
    let mut bytes = vec![0; tensor.len()];
    tensor.read(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Copies tensors to the host, and compares them with what they were filled with.
fn save(tensors: &[Tensor]) -> Result<(), Stop> {
    for (tensor, word) in tensors.iter().zip(1u32..) {
        let sound = read(tensor)?.chunks_exact(4).all(|bytes| bytes == word.to_le_bytes());
        if !sound {
            return Err(BenchError::Device("a checkpoint has other data than the weights".to_owned()).into());
        }
    }
    Ok(())
}

/// Judges the peaks of both ways, in sizes of the weights.
fn verdict(cloned: f64, copied: f64) -> Verdict {
    match (cloned >= DOUBLES, copied <= STAYS) {
        (true, true) => Verdict::Holds,
        (true, false) => Verdict::DoesNotHold(format!("copied out first it takes {}, too", range(copied, copied, "x"))),
        (false, _) => Verdict::DoesNotHold(format!("clones take {}", range(cloned, cloned, "x"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_alone_double_the_weights() {
        assert_eq!(verdict(2.0, 1.0), Verdict::Holds);
        assert_eq!(verdict(1.3, 1.0), Verdict::DoesNotHold("clones take 1.3x".to_owned()));
        assert!(matches!(verdict(2.0, 2.0), Verdict::DoesNotHold(_)));
    }
}
