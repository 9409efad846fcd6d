//! Divides the cells of a width among parts.

/// Divides `room` units among parts in proportion, by the largest remainder method. The shares add up to `room` unless all
/// parts are zero. A part that is not zero gets at least `least` units; if there are too few for that, the largest parts get
/// `least` each.
pub(super) fn apportion(parts: &[u64], room: u64, least: u64) -> Vec<u64> {
    let mut shares = vec![0; parts.len()];
    let total: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    if total == 0 || room == 0 {
        return shares;
    }
    let live = parts.iter().filter(|&&p| p > 0).count() as u64;
    if live.saturating_mul(least) > room {
        let mut order: Vec<usize> = (0..parts.len()).filter(|&i| parts[i] > 0).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(parts[i]));
        let mut left = room;
        for i in order {
            shares[i] = least.min(left);
            left -= shares[i];
        }
        return shares;
    }
    // Parts whose share would be below the least get the least. The rest is divided among the others, which may push further
    // ones below the least. There is at most one round per part.
    let mut fixed = vec![false; parts.len()];
    loop {
        let held: u64 = (0..parts.len()).filter(|&i| fixed[i]).map(|_| least).sum();
        let rest: u128 = (0..parts.len())
            .filter(|&i| !fixed[i])
            .map(|i| u128::from(parts[i]))
            .sum();
        let spare = u128::from(room - held);
        let mut changed = false;
        for i in 0..parts.len() {
            if parts[i] > 0 && !fixed[i] && u128::from(parts[i]) * spare < u128::from(least) * rest {
                fixed[i] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let held: u64 = fixed.iter().filter(|&&f| f).map(|_| least).sum();
    let spare = u128::from(room - held);
    let rest: u128 = (0..parts.len())
        .filter(|&i| !fixed[i])
        .map(|i| u128::from(parts[i]))
        .sum();
    let mut remainders = Vec::with_capacity(parts.len());
    for i in 0..parts.len() {
        let exact = u128::from(parts[i]) * spare;
        match exact.checked_div(rest).filter(|_| !fixed[i]) {
            // At most `spare`, which came from a u64.
            Some(share) => {
                shares[i] = share as u64;
                remainders.push((exact % rest, i));
            }
            None if fixed[i] => shares[i] = least,
            None => {}
        }
    }
    let missing = room - shares.iter().sum::<u64>();
    remainders.sort_by_key(|&(remainder, i)| (std::cmp::Reverse(remainder), i));
    for &(_, i) in remainders.iter().take(missing as usize) {
        shares[i] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_every_part_gets_its_least() {
        let cases: [&[u64]; 6] = [
            &[1, 1, 1],
            &[1, 1_000_000],
            &[0, 5, 0, 7],
            &[u64::MAX, 1, u64::MAX],
            &[3],
            &[1, 2, 3, 4, 5, 6, 1_000_000_000],
        ];
        for parts in cases {
            for room in 0..200 {
                for least in [1, 8] {
                    let shares = apportion(parts, room, least);
                    assert_eq!(shares.iter().sum::<u64>(), room, "{parts:?} in {room}");
                    let live = parts.iter().filter(|&&p| p > 0).count() as u64;
                    for (&part, &share) in parts.iter().zip(&shares) {
                        assert!(part > 0 || share == 0);
                        assert!(
                            part == 0 || share >= least || live * least > room,
                            "{parts:?} in {room}: {shares:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn shares_are_proportional() {
        let cases: [(&[u64], u64, &[u64]); 4] = [
            (&[50, 30, 20], 10, &[5, 3, 2]),
            (&[1, 1, 1], 10, &[4, 3, 3]),
            (&[0, 0], 10, &[0, 0]),
            (&[], 10, &[]),
        ];
        for (parts, room, shares) in cases {
            assert_eq!(apportion(parts, room, 1), shares, "{parts:?} in {room}");
        }
    }
}
