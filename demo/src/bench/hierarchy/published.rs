//! Figures that others published, by card.
//!
//! Sources: Jia 2018 is arXiv:1804.06826, Jia 2019 is arXiv:1903.07486, Luo 2024 is arXiv:2402.13499; gpu-benches is
//! github.com/RRZE-HPC/gpu-benches; AI_kernels is github.com/markdewing/AI_kernels. Latencies are of pointer chases in random
//! order. Those of gpu-benches chase 64-bit pointers as we do; those of AI_kernels chase indices, which adds the time to compute an
//! address.

use super::report::{Published, Rung};

/// A row of the table. Ranges are from and to, and 0 where nothing was published.
struct Row {
    rung: Rung,
    /// Compute capability.
    cc: (u32, u32),
    card: &'static str,
    cycles: (f64, f64),
    ns: (f64, f64),
    gb_per_s: (f64, f64),
    source: &'static str,
}

const NONE: (f64, f64) = (0.0, 0.0);

const fn cycles(rung: Rung, cc: (u32, u32), card: &'static str, cycles: (f64, f64), source: &'static str) -> Row {
    both(rung, cc, card, cycles, NONE, source)
}

const fn both(
    rung: Rung,
    cc: (u32, u32),
    card: &'static str,
    cycles: (f64, f64),
    ns: (f64, f64),
    source: &'static str,
) -> Row {
    Row {
        rung,
        cc,
        card,
        cycles,
        ns,
        gb_per_s: NONE,
        source,
    }
}

const fn rate(rung: Rung, cc: (u32, u32), card: &'static str, gb_per_s: (f64, f64), source: &'static str) -> Row {
    Row {
        rung,
        cc,
        card,
        cycles: NONE,
        ns: NONE,
        gb_per_s,
        source,
    }
}

const JIA: &str = "Jia 2018";
const JIA_2019: &str = "Jia 2019";
/// Its figures of shared memory include index arithmetic: on an H200 a chase of indices takes 28.7 cycles a hop, and one of addresses
/// 23.0 (measured on 2026-11-28).
pub(super) const LUO: &str = "Luo 2024";
const BENCHES: &str = "gpu-benches";
const KERNELS: &str = "AI_kernels";

const V100: (u32, u32) = (7, 0);
const TURING: (u32, u32) = (7, 5);
const A100: (u32, u32) = (8, 0);
const ADA: (u32, u32) = (8, 9);
const HOPPER: (u32, u32) = (9, 0);
const B200: (u32, u32) = (10, 0);
const B300: (u32, u32) = (10, 3);
const RTX_50: (u32, u32) = (12, 0);

const A100_80: &str = "A100-80 at 1410 MHz";
const H100_PCIE: &str = "H100 PCIe at 1755 MHz";
const L40: &str = "L40 at 2490 MHz";

/// The rows; of a level and card the one whose method is closest to ours comes first.
const ROWS: &[Row] = &[
    cycles(Rung::Registers, V100, "V100", (4.0, 4.0), JIA),
    cycles(Rung::Shared, V100, "V100", (19.0, 19.0), JIA),
    both(Rung::L1, V100, "V100 at 1380 MHz", (30.0, 30.0), (21.7, 21.7), BENCHES),
    cycles(Rung::L1, V100, "V100", (28.0, 28.0), JIA),
    both(
        Rung::L2Near,
        V100,
        "V100 at 1380 MHz",
        (215.0, 215.0),
        (156.0, 156.0),
        BENCHES,
    ),
    cycles(Rung::L2Near, V100, "V100", (193.0, 193.0), JIA),
    both(
        Rung::Device,
        V100,
        "V100 at 1380 MHz",
        (425.0, 437.0),
        (308.0, 317.0),
        BENCHES,
    ),
    cycles(Rung::Device, V100, "V100", (375.0, 1029.0), JIA),
    rate(Rung::L1, V100, "V100", (13_900.0, 13_900.0), BENCHES),
    rate(Rung::L2Near, V100, "V100", (2_400.0, 2_400.0), BENCHES),
    rate(Rung::Device, V100, "V100", (814.0, 895.0), BENCHES),
    rate(Rung::PinnedHost, V100, "V100, PCIe 3", (12.35, 12.35), BENCHES),
    cycles(Rung::Shared, TURING, "RTX 2070", (23.0, 23.0), JIA_2019),
    cycles(Rung::L1, TURING, "RTX 2070", (32.0, 32.0), JIA_2019),
    cycles(Rung::L2Near, TURING, "RTX 2070", (236.0, 236.0), JIA_2019),
    cycles(Rung::Device, TURING, "RTX 2070", (472.0, 472.0), JIA_2019),
    cycles(Rung::Shared, A100, "A100", (29.0, 29.0), LUO),
    cycles(Rung::L1, A100, A100_80, (36.0, 36.0), BENCHES),
    cycles(Rung::L1, A100, "A100", (38.0, 38.0), LUO),
    both(Rung::L2Near, A100, A100_80, (211.0, 211.0), (150.0, 150.0), BENCHES),
    both(Rung::L2Far, A100, A100_80, (424.0, 424.0), (301.0, 301.0), BENCHES),
    both(Rung::Device, A100, A100_80, (568.0, 574.0), (403.0, 403.0), BENCHES),
    rate(Rung::L1, A100, A100_80, (19_100.0, 19_100.0), BENCHES),
    rate(Rung::L2Near, A100, A100_80, (4_600.0, 5_400.0), BENCHES),
    rate(Rung::L2Far, A100, A100_80, (4_000.0, 4_000.0), BENCHES),
    rate(Rung::Device, A100, A100_80, (1_759.0, 1_880.0), BENCHES),
    cycles(Rung::Shared, ADA, "RTX 4090", (30.0, 30.0), LUO),
    cycles(Rung::L1, ADA, L40, (36.0, 36.0), BENCHES),
    cycles(Rung::L1, ADA, "RTX 4090", (36.0, 43.0), KERNELS),
    both(Rung::L2Near, ADA, L40, (276.0, 276.0), (111.0, 111.0), BENCHES),
    cycles(Rung::L2Near, ADA, "RTX 4090", (273.0, 296.0), KERNELS),
    both(Rung::Device, ADA, L40, (631.0, 631.0), (253.0, 253.0), BENCHES),
    cycles(Rung::Device, ADA, "RTX 4090", (541.0, 636.0), KERNELS),
    rate(Rung::L1, ADA, L40, (22_600.0, 22_600.0), BENCHES),
    rate(Rung::L2Near, ADA, L40, (5_200.0, 5_700.0), BENCHES),
    rate(Rung::Device, ADA, L40, (768.0, 846.0), BENCHES),
    cycles(Rung::Shared, HOPPER, "H800", (29.0, 29.0), LUO),
    both(Rung::L1, HOPPER, H100_PCIE, (34.0, 34.0), (19.4, 19.4), BENCHES),
    cycles(Rung::L1, HOPPER, "H100 SXM", (40.0, 40.0), KERNELS),
    both(Rung::L2Near, HOPPER, H100_PCIE, (265.0, 265.0), (151.0, 151.0), BENCHES),
    cycles(Rung::L2Near, HOPPER, "H100 SXM", (291.0, 291.0), KERNELS),
    both(Rung::L2Far, HOPPER, H100_PCIE, (475.0, 478.0), (271.0, 271.0), BENCHES),
    cycles(Rung::L2Far, HOPPER, "H100 SXM", (538.0, 538.0), KERNELS),
    both(Rung::Device, HOPPER, H100_PCIE, (644.0, 658.0), (370.0, 370.0), BENCHES),
    cycles(Rung::Device, HOPPER, "H100 SXM", (695.0, 702.0), KERNELS),
    rate(Rung::L1, HOPPER, "H100 PCIe", (25_200.0, 25_200.0), BENCHES),
    rate(Rung::L2Near, HOPPER, "H200", (9_800.0, 10_200.0), BENCHES),
    rate(Rung::L2Near, HOPPER, "H100 PCIe", (7_000.0, 8_300.0), BENCHES),
    rate(Rung::L2Far, HOPPER, "H200 at 48 MB", (7_500.0, 7_500.0), BENCHES),
    rate(Rung::L2Far, HOPPER, "H100 PCIe at 44 MB", (4_250.0, 4_250.0), BENCHES),
    rate(Rung::Device, HOPPER, "H200", (3_534.0, 3_898.0), BENCHES),
    rate(Rung::Device, HOPPER, "H100 PCIe", (1_832.0, 2_016.0), BENCHES),
    cycles(Rung::L1, B200, "B200", (39.0, 40.0), KERNELS),
    both(Rung::L2Near, B200, "B200", (295.0, 295.0), (150.0, 150.0), KERNELS),
    cycles(Rung::Device, B200, "B200", (860.0, 860.0), KERNELS),
    rate(Rung::L2Near, B200, "B200", (21_000.0, 21_000.0), "Chips and Cheese"),
    rate(Rung::L2Far, B200, "B200", (16_800.0, 16_800.0), "Chips and Cheese"),
    cycles(Rung::Device, B300, "B300", (810.0, 848.0), KERNELS),
    rate(Rung::PinnedHost, B300, "GB300, PCIe 5 x16", (57.3, 57.7), BENCHES),
    cycles(Rung::L1, RTX_50, "RTX 5090", (44.0, 44.0), KERNELS),
    cycles(Rung::L2Near, RTX_50, "RTX 5090", (360.0, 360.0), KERNELS),
    cycles(Rung::Device, RTX_50, "RTX 5090", (936.0, 936.0), KERNELS),
];

/// A disk is no part of the card. Its latency is 1 / 22,000 s, as the data sheet has 22,000 reads a second one after another.
const DISK: Row = Row {
    rung: Rung::Disk,
    cc: (0, 0),
    card: "Samsung 990 PRO, NVMe, PCIe 4 x4",
    cycles: NONE,
    ns: (45_000.0, 45_000.0),
    gb_per_s: (7.45, 7.45),
    source: "its data sheet",
};

/// Returns the published figures of a level for cards of this compute capability, or else of the same major one.
pub(super) fn published(rung: Rung, compute_capability: (u32, u32)) -> Vec<Published> {
    if rung == Rung::Disk {
        return vec![DISK.figure()];
    }
    let of = |fits: &dyn Fn((u32, u32)) -> bool| -> Vec<Published> {
        let rows = ROWS.iter().filter(|row| row.rung == rung && fits(row.cc));
        rows.map(Row::figure).collect()
    };
    let exact = of(&|cc| cc == compute_capability);
    match exact.is_empty() {
        true => of(&|cc| cc.0 == compute_capability.0),
        false => exact,
    }
}

impl Row {
    fn figure(&self) -> Published {
        let known = |range: (f64, f64)| (range.1 > 0.0).then_some(range);
        Published {
            card: self.card.to_owned(),
            cycles: known(self.cycles),
            ns: known(self.ns),
            gb_per_s: known(self.gb_per_s),
            source: self.source.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_upwards_and_say_something() {
        for row in ROWS.iter().chain([&DISK]) {
            let ranges = [row.cycles, row.ns, row.gb_per_s];
            assert!(
                ranges.iter().all(|(from, to)| *from >= 0.0 && from <= to),
                "{}",
                row.card
            );
            assert!(ranges.iter().any(|(from, _)| *from > 0.0), "{}", row.card);
        }
    }

    #[test]
    fn cards_get_figures_of_their_own_kind() {
        let near = published(Rung::L2Near, HOPPER);
        assert_eq!(near[0].card, H100_PCIE);
        assert_eq!(near[0].ns, Some((151.0, 151.0)));
        assert_eq!(published(Rung::L1, (8, 6))[0].card, A100_80, "the same major number");
        assert!(published(Rung::L1, (6, 0)).is_empty());
        assert_eq!(published(Rung::Disk, (6, 0)).len(), 1);
    }
}
