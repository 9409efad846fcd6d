#![allow(clippy::unwrap_used)]

use super::*;

const M: u64 = 1 << 20;
const G: u64 = 1 << 30;

/// Ranks with these GiB reserved. Half of that is allocated, and NVML counts half a GiB more.
fn reserving(gib: &[f64]) -> Vec<Holdings> {
    let rank = |gib: &f64| {
        let reserved = (gib * G as f64) as u64;
        Holdings {
            reserved: Some(reserved),
            allocated: Some(reserved / 2),
            peak_allocated: Some(reserved / 2),
            largest_free: Some(G),
            nvml: Some(reserved + 512 * M),
        }
    };
    gib.iter().map(rank).collect()
}

/// The places of the marked ranks, and whether the job is uneven.
fn marked(ranks: &[Holdings]) -> (Vec<usize>, bool) {
    let found = Comparison::of(ranks);
    let marked = (0..ranks.len()).filter(|&n| found.outliers[n].is_some());
    (marked.collect(), found.uneven)
}

#[test]
fn rank_unlike_its_siblings_is_marked() {
    let mut many = vec![40.0; 64];
    (many[9], many[63]) = (52.0, 20.0);
    let cases: &[(&str, &[f64], &[usize], bool)] = &[
        (
            "one of eight has more",
            &[40.0, 40.2, 40.1, 52.3, 40.0, 40.2, 40.1, 40.0],
            &[3],
            false,
        ),
        (
            "one of eight has less",
            &[40.0, 40.0, 40.0, 40.0, 40.0, 28.0, 40.0, 40.0],
            &[5],
            false,
        ),
        ("two of 64", &many, &[9, 63], false),
        ("three are enough", &[10.0, 10.1, 14.0], &[2], false),
        ("parameter server", &[70.0, 20.0, 20.0, 20.0], &[0], false),
        ("equal", &[40.0; 8], &[], false),
        ("two differ, and neither is the usual one", &[40.0, 52.0], &[], false),
        (
            "rank 0 has a little more",
            &[42.0, 40.0, 40.0, 40.0, 40.0, 40.0, 40.0, 40.0],
            &[],
            false,
        ),
        (
            "small, and less than a context apart",
            &[1.4, 1.0, 1.0, 1.0],
            &[],
            false,
        ),
        (
            "every stage differs",
            &[40.0, 36.0, 34.0, 32.0, 30.0, 28.0, 26.0, 20.0],
            &[],
            false,
        ),
        (
            "two halves",
            &[40.0, 40.0, 40.0, 40.0, 30.0, 30.0, 30.0, 30.0],
            &[],
            false,
        ),
        (
            "three of eight",
            &[40.0, 40.0, 40.0, 40.0, 40.0, 60.0, 61.0, 62.0],
            &[],
            true,
        ),
        ("one, none", &[40.0], &[], false),
        ("none", &[], &[], false),
    ];
    for (name, gib, ranks, uneven) in cases {
        assert_eq!(marked(&reserving(gib)), (ranks.to_vec(), *uneven), "{name}");
    }
}

/// Otherwise another figure would single out one of the ranks that differ.
#[test]
fn nothing_is_marked_in_an_uneven_job() {
    let mut ranks = reserving(&[40.0, 40.0, 40.0, 40.0, 40.0, 60.0, 61.0, 62.0]);
    ranks[6].nvml = Some(41 * G);
    ranks[7].nvml = Some(41 * G);
    assert_eq!(marked(&ranks), (vec![], true), "NVML alone would mark the sixth");
}

#[test]
fn deviation_is_from_the_median_in_bytes() {
    let found = Comparison::of(&reserving(&[40.0, 40.0, 52.0, 28.0, 40.0, 40.0]));
    let of = |above_median| {
        Some(Outlier {
            figure: Figure::Reserved,
            above_median,
        })
    };
    let more = 12 * G as i64;
    assert_eq!(found.outliers, [None, None, of(more), of(-more), None, None]);
    assert_eq!(found.median.reserved, Some(40 * G));
    assert_eq!(found.median.cached(), Some(20 * G));
    assert_eq!(
        Comparison::of(&reserving(&[40.0, 43.0])).median.reserved,
        Some(83 * G / 2)
    );
}

/// They will take memory in a moment, and until then the others would seem to have too much.
#[test]
fn ranks_that_are_starting_are_not_compared() {
    let found = Comparison::of(&reserving(&[0.0, 0.0, 40.0, 0.0, 40.0, 40.0, 0.0, 0.0]));
    assert_eq!((found.outliers, found.uneven), (vec![None; 8], false));
    assert_eq!(found.median.reserved, Some(40 * G));
}

#[test]
fn missing_figure_leaves_the_others_comparable() {
    let mut ranks = reserving(&[40.0, 40.0, 52.0, 40.0]);
    ranks[0] = Holdings {
        nvml: Some(80 * G),
        ..Holdings::default()
    };
    let found = Comparison::of(&ranks);
    let figures: Vec<Option<Figure>> = found.outliers.iter().map(|o| Some(o.as_ref()?.figure)).collect();
    assert_eq!(
        figures,
        [None, None, Some(Figure::Reserved), None],
        "a second one of four would be too many"
    );
    assert_eq!(found.median.reserved, Some(40 * G));
    ranks.iter_mut().for_each(|rank| *rank = Holdings::default());
    assert_eq!(marked(&ranks), (vec![], false));
    assert_eq!(Comparison::of(&ranks).median, Holdings::default());
}

#[test]
fn figures_other_than_reserved_are_compared() {
    let found = |change: fn(&mut Holdings)| {
        let mut ranks = reserving(&[40.0; 8]);
        change(&mut ranks[3]);
        Comparison::of(&ranks).outliers[3]
    };
    let of = |figure, above_median: u64| {
        Some(Outlier {
            figure,
            above_median: above_median as i64,
        })
    };
    let nvml = found(|rank| rank.nvml = Some(50 * G));
    assert_eq!(nvml, of(Figure::Nvml, 9 * G + 512 * M));
    let allocated = found(|rank| (rank.allocated, rank.peak_allocated) = (Some(30 * G), Some(31 * G)));
    assert_eq!(allocated, of(Figure::Allocated, 10 * G));
}

/// Ranks are read at different moments, one of them while its activations are largest.
#[test]
fn phase_of_a_step_is_no_outlier() {
    let mut ranks = reserving(&[40.0; 8]);
    for rank in &mut ranks {
        rank.peak_allocated = Some(39 * G);
    }
    ranks[3].allocated = Some(38 * G);
    assert_eq!(marked(&ranks), (vec![], false));
    ranks[3].peak_allocated = Some(20 * G);
    assert_eq!(marked(&ranks), (vec![], false), "its peak is the other way");
}

/// A channel may have any figures.
#[test]
fn largest_figures_do_not_overflow() {
    let all = Holdings {
        reserved: Some(u64::MAX),
        allocated: Some(u64::MAX),
        peak_allocated: Some(0),
        largest_free: Some(u64::MAX),
        nvml: Some(u64::MAX),
    };
    let mut ranks = reserving(&[1.0, 1.0, 1.0]);
    ranks.push(all);
    assert_eq!(Comparison::of(&ranks).outliers[3].unwrap().above_median, i64::MAX);
    assert_eq!(Comparison::of(&[all; 4]).median, all);
    assert_eq!(signed_difference(0, u64::MAX), -i64::MAX);
}
