//! What is found in a sequence, and when.

use super::*;

#[test]
fn what_is_known_by_a_context_is_found_by_that_and_hardly_by_another() {
    let contexts = (1..5000u64).map(|n| n.wrapping_mul(0xd129_9f1b_3cc1_5aab));
    for at in [0, 1, MOST - 1] {
        assert!(
            contexts
                .clone()
                .all(|context| Known::new(at, context).of(context) == Some(at))
        );
        let others = contexts
            .clone()
            .filter(|context| Known::new(at, !context).of(*context).is_some());
        assert!(others.count() < 5);
    }
    assert!(contexts.clone().all(|context| Known::default().of(context).is_none()));
}

#[test]
fn one_context_in_eight_or_so_is_an_anchor() {
    let anchors = (1..8000u64)
        .filter(|n| is_anchor(n.wrapping_mul(0xd129_9f1b_3cc1_5aab)))
        .count() as u64;
    assert!((7000 / ANCHORS..9000 / ANCHORS).contains(&anchors), "{anchors}");
}

/// What is found by looking it up may end a long run: it is worth asking for from the next request on.
#[test]
fn what_is_looked_up_is_in_no_round_yet() {
    for (seed, period) in (0..50u64).flat_map(|seed| (1..7u64).map(move |period| (seed, period))) {
        let mut sequence = Sequence::default();
        let mut rounds = 0;
        for i in 0..60 {
            let size = (seed + i % period) * 7919 % 1021;
            let next = sequence.expected.and_then(|at| sequence.ring.get(at));
            let follows = next.is_some_and(|next| next.size == size);
            sequence.find(size, 1);
            assert!(!sequence.in_round || follows, "{seed} {period} {i}");
            rounds += u64::from(sequence.in_round);
            sequence.push(size, Placement::Home(0), true);
        }
        assert!(rounds > 20, "{seed} {period}: {rounds}");
    }
}

#[test]
fn a_round_without_an_anchor_is_found_too() {
    let mut sequence = Sequence::default();
    let size = (1..10_000).find(|size| {
        let context = (0..CONTEXT).fold(0, |context, _| extended(context, *size));
        !is_anchor(context)
    });
    let size = size.unwrap_or(0);
    let found = |sequence: &mut Sequence| {
        let found = sequence.find(size, 1).is_some();
        sequence.push(size, Placement::Home(0), true);
        found
    };
    let first = (0..4 * GAP + CONTEXT).position(|_| found(&mut sequence));
    assert!(
        first.is_some() && (0..4 * GAP).all(|_| found(&mut sequence)),
        "{first:?}"
    );
}
