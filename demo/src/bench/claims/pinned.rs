//! Copies from and to pinned and pageable memory of the host: how fast, and whether the call returns before the copy is done.

use gpumem_text::units::MIB;

use super::bench::{Bench, Found, MICRO, figure};
use super::verdict::{Case, short, within};
use super::{Claim, Needs};
use crate::bench::error::Stop;
use crate::rig::Route;
use crate::rig::claims::Copied;

pub(super) const PINNED_COPIES: Claim = Claim {
    name: "pinned-copies",
    words: "Copies from pinned memory are 2 to 3 times as fast as from pageable memory.",
    source: "courses",
    method: "cuMemcpyHtoDAsync and cuMemcpyDtoHAsync of 64 MiB from the call to the end of the copy, by the host's \
             clock; the bytes that arrive are compared.",
    needs: Needs::Gpu,
    guess_ms: 1500,
    measure: speed,
};

pub(super) const PAGEABLE_ASYNC: Claim = Claim {
    name: "pageable-async",
    words: "Copies from and to pageable memory are not asynchronous: the call returns only when they are done.",
    source: "courses",
    method: "The part of a copy's time that has passed when cuMemcpyHtoDAsync or cuMemcpyDtoHAsync returns, by the \
             host's clock.",
    needs: Needs::Gpu,
    guess_ms: 1500,
    measure: returning,
};

const BYTES: u64 = 64 * MIB;
/// A copy that the driver can take over at once.
const SMALL: u64 = 16 << 10;
/// The claimed ratio.
const CLAIMED: (f64, f64) = (2.0, 3.0);
/// A call has waited for its copy if it returns when this much of the copy's time has passed, in percent.
const WAITED: f64 = 80.0;

/// Pageable and pinned routes of a direction.
const DIRECTIONS: [(&str, Route, Route); 2] = [
    ("to the device", Route::PageableToDevice, Route::PinnedToDevice),
    ("from the device", Route::DeviceToPageable, Route::DeviceToPinned),
];

fn speed(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for (direction, pageable, pinned) in DIRECTIONS {
        let mut rates = Vec::new();
        for (kind, route) in [("pageable", pageable), ("pinned", pinned)] {
            let copies = bench.repeat(|gpu| gpu.copy_async(route, BYTES))?;
            let samples: Vec<f64> = copies.iter().map(|copy| BYTES as f64 / copy.done_ns as f64).collect();
            let rate = figure(format!("{kind} {direction}"), "GB/s", &samples)?;
            rates.push(rate.median);
            figures.push(rate);
        }
        if let [pageable, pinned] = rates[..] {
            cases.push(Case::new(format!("copied {direction}"), pinned / pageable));
        }
    }
    Ok(Found {
        short: short(&cases, "x"),
        figures,
        verdict: within(&cases, CLAIMED, "x"),
    })
}

fn returning(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for (direction, pageable, pinned) in DIRECTIONS {
        for (kind, route) in [("pageable", pageable), ("pinned", pinned)] {
            let copies = bench.repeat(|gpu| gpu.copy_async(route, BYTES))?;
            let waited: Vec<f64> = copies.iter().map(waited).collect();
            let figure = figure(format!("waited, {kind} {direction}"), "%", &waited)?;
            if kind == "pageable" {
                cases.push(Case::new(format!("copied {direction}"), figure.median));
            }
            figures.push(figure);
        }
    }
    let small = bench.repeat(|gpu| gpu.copy_async(Route::PageableToDevice, SMALL))?;
    let returned: Vec<f64> = small.iter().map(|copy| copy.returned_ns as f64 / MICRO).collect();
    figures.push(figure("call for 16 KiB, pageable to the device", "µs", &returned)?);
    Ok(Found {
        short: format!("{} waited", short(&cases, "%")),
        figures,
        verdict: within(&cases, (WAITED, 100.0), "%"),
    })
}

/// Returns the percentage of a copy's time that had passed when the call returned.
fn waited(copy: &Copied) -> f64 {
    100.0 * copy.returned_ns as f64 / copy.done_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::claims::Verdict;

    #[test]
    fn copy_that_returns_at_once_has_not_waited() {
        let asynchronous = Copied {
            returned_ns: 5_000,
            done_ns: 1_250_000,
        };
        assert_eq!(waited(&asynchronous), 0.4);
        let cases = [Case::new("copied to the device", waited(&asynchronous))];
        assert!(matches!(within(&cases, (WAITED, 100.0), "%"), Verdict::DoesNotHold(_)));
        let synchronous = Copied {
            returned_ns: 1_200_000,
            done_ns: 1_250_000,
        };
        let cases = [Case::new("copied to the device", waited(&synchronous))];
        assert_eq!(within(&cases, (WAITED, 100.0), "%"), Verdict::Holds);
    }
}
