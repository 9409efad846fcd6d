//! Ranks of a job: the popup that compares them, their order in the table, findings, and reports.

use std::sync::Arc;

use gpumem_channel::BlockState::Allocated;

use super::sample::*;
use crate::event::{Event, Key, Mouse, MouseAction};
use crate::model::*;

/// A rank that allocates so many GiB on the card, all of which is reserved.
fn rank(pid: u32, rank: u32, gib: u64) -> Channel {
    let mut channel = channel(pid, &[&[(gib * GIB, Allocated)]]);
    let identity = &mut Arc::make_mut(&mut channel.snapshot).identity;
    let identity = Arc::make_mut(identity);
    (identity.job, identity.rank, identity.world_size) = ("pretrain".into(), Some(rank), Some(4));
    channel
}

/// Four ranks, whose pids are in another order. Rank 3 has 12 GiB more.
fn four() -> Vec<Channel> {
    vec![rank(11, 3, 22), rank(12, 1, 10), rank(13, 0, 10), rank(14, 2, 10)]
}

fn job(channels: Vec<Channel>) -> Model {
    let mut model = model();
    feed(&mut model, [crate::update::tests::sample::channels(SECOND, channels)]);
    model
}

fn findings(model: &Model) -> Vec<(Severity, &str)> {
    let findings = model.world().findings.iter();
    findings.map(|f| (f.severity, f.text.as_str())).collect()
}

fn selected(model: &Model) -> u32 {
    model.selected_process().unwrap().pid
}

#[test]
fn rank_with_more_than_the_others_is_a_finding() {
    let text = "rank 3 of pretrain reserves 12.0 GiB more than the median of its 4 ranks (10.0 GiB)";
    let model = job(four());
    assert_eq!(findings(&model), [(Severity::Warning, text)]);
    assert_eq!(
        model.world().findings[0].process.unwrap().owner,
        Owner::Channel(ChannelKey(1, 11))
    );
    let less = vec![rank(11, 3, 2), rank(12, 1, 10), rank(13, 0, 10), rank(14, 2, 10)];
    let text = "rank 3 of pretrain reserves 8.0 GiB less than the median of its 4 ranks (10.0 GiB)";
    assert_eq!(findings(&job(less)), [(Severity::Info, text)], "it costs no memory");
    let here = four().into_iter().take(3).collect();
    let text = "rank 3 of pretrain reserves 12.0 GiB more than the median of its 3 ranks here (10.0 GiB)";
    assert_eq!(findings(&job(here)), [(Severity::Warning, text)]);
    let two = four().into_iter().take(2).collect();
    assert_eq!(findings(&job(two)), [], "either may be the usual one");
}

/// Otherwise the findings of a large job would hide all others.
#[test]
fn many_outliers_share_a_finding() {
    let large = |n: u32| if n < 5 { 3 } else { 1 };
    let ranks = (0..16).map(|n| rank(11 + n, n, large(n))).collect();
    let text = "5 of the 16 ranks of pretrain reserve or allocate much more or less than the median: r shows them";
    assert_eq!(findings(&job(ranks)), [(Severity::Warning, text)]);
}

#[test]
fn popup_selects_ranks_in_their_order() {
    let mut model = job(four());
    press(&mut model, &[Key::Home, Key::Char('r')]);
    assert_eq!((selected(&model), &model.ui.popup), (11, &Some(Popup::Ranks)));
    let steps = [
        (Key::Up, 14),
        (Key::Char('k'), 12),
        (Key::Home, 13),
        (Key::Up, 13),
        (Key::Down, 12),
        (Key::PageDown, 11),
        (Key::Char('2'), 11),
        (Key::Char('x'), 11),
    ];
    for (key, pid) in steps {
        press(&mut model, &[key]);
        assert_eq!(
            (selected(&model), &model.ui.popup),
            (pid, &Some(Popup::Ranks)),
            "{key:?}"
        );
    }
    let area = Area {
        x: 3,
        y: 3,
        width: 9,
        height: 1,
    };
    let target = Target::Entry(1);
    model.ui.hits.areas = vec![Hit { area, target }];
    let click = |x| {
        Event::Mouse(Mouse {
            x,
            y: 3,
            action: MouseAction::Click,
        })
    };
    feed(&mut model, [click(4)]);
    assert_eq!((selected(&model), &model.ui.popup), (12, &Some(Popup::Ranks)));
    feed(&mut model, [click(40)]);
    assert_eq!(model.ui.popup, None, "outside of it");
    press(&mut model, &[Key::Char('r'), Key::Char('r')]);
    assert_eq!((&model.ui.popup, model.ui.view), (&None, View::Overview));
    press(&mut model, &[Key::Char('r'), Key::Enter]);
    assert_eq!(
        (&model.ui.popup, model.ui.view, selected(&model)),
        (&None, View::Blocks, 12)
    );
}

/// The popup shows all ranks, so each can be selected there, and stays so when new figures come.
#[test]
fn popup_selects_ranks_that_the_filter_hides() {
    let mut model = job(four());
    type_text(&mut model, "/pretrain:3");
    press(&mut model, &[Key::Enter, Key::Char('r'), Key::Home]);
    feed(&mut model, [channels(2 * SECOND, four())]);
    assert_eq!((pids(&model), selected(&model)), (vec![11], 13));
}

#[test]
fn process_without_siblings_has_nothing_to_compare() {
    let said = |mut model: Model| {
        press(&mut model, &[Key::Home, Key::Char('r')]);
        assert_eq!(model.ui.popup, None);
        assert!(!footer(&model).contains(&("r", "ranks")));
        model.ui.toast.map(|toast| toast.text)
    };
    let none = "python job11 (11) has no rank: r compares the ranks of a distributed job";
    assert_eq!(said(busy()).as_deref(), Some(none));
    let alone = "pretrain:3 (11) is rank 3, and no other rank of its job is known here";
    assert_eq!(said(job(vec![rank(11, 3, 22)])).as_deref(), Some(alone));
    assert_eq!(said(model()), None);
    assert!(footer(&job(four())).contains(&("r", "ranks")));
}

#[test]
fn ranks_stand_together_when_sorted_by_command() {
    // Without a look-up, each process has a program of its own.
    let mut model = job(four());
    let other = channel(12_500, &[&[(GIB, Allocated)]]);
    let mut list = four();
    list.push(other);
    feed(&mut model, [channels(2 * SECOND, list)]);
    let sorted = |model: &mut Model| {
        crate::update::popup::sort_by(model, Column::Command);
        pids(model)
    };
    assert_eq!(
        sorted(&mut model),
        [12_500, 13, 12, 14, 11],
        "job12500 comes before job13"
    );
    assert_eq!(sorted(&mut model), [13, 12, 14, 11, 12_500], "ranks keep their order");
}

/// `--json` and `--once` say the same as the dashboard.
#[test]
fn reports_have_the_ranks_of_a_job() {
    let model = job(four());
    let text = crate::report::text(&model, u16::MAX);
    let line = "  pretrain: 4 ranks, median 10.0 GiB reserved; rank 3: +12.0 GiB reserved\n";
    assert!(text.contains(line), "{text}");
    let narrow = crate::report::text(&model, 60);
    assert!(narrow.lines().all(|line| line.len() <= 60), "{narrow}");
    let none = crate::report::text(&busy(), u16::MAX);
    assert!(!none.contains("rank"), "{none}");
}
