//! A step of a demo whose steps have maps: the figures in one line, a sentence, and the map; under the map of a failure the one
//! after it. All maps have one scale, and an address has the same place in all of them.

use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};

use super::holes::{self, Holes};
use super::map_strip::{MapStrip, sign};
use super::places::{Content, Places, Scale};
use super::steps;
use crate::model::{Choice, Demo, DemoPhase, DemoStep, Target, View};
use crate::view::layout::{clip, split_top};
use crate::view::theme::Ink;
use crate::view::widgets::HistoryGraph;
use crate::view::{Screen, history};
use crate::wrap::{width, wrap};

/// Lines of a map: enough for an outline with a label, and the most that one takes.
const OUTLINED: u16 = 3;
const TALLEST: u16 = 5;
/// Lines of the device's graph.
const GRAPH: std::ops::RangeInclusive<u16> = 6..=12;

/// Draws the shown step.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, demo: &Demo) {
    let shown = demo.steps_up_to(screen.model.ui.demo_back);
    let Some(step) = shown.last() else {
        let text = clip(&format!("{} is starting ...", demo.name), area.width);
        return screen.render(Line::styled(text, screen.theme.ink(Ink::Dim)), area);
    };
    let headline = wrap(&step.headline, area.width);
    let sentence = wrap(&step.summary, area.width);
    let failed = shown[..shown.len() - 1].iter().rposition(|step| step.oom.is_some());
    let mut maps = vec![("after: ", shown)];
    match failed {
        Some(failed) => maps.insert(0, ("before: ", &shown[..=failed])),
        None => maps[0].0 = "",
    }
    let mut closing = vec![];
    if shown.len() == demo.steps.len() {
        closing = steps::closing_lines(screen, demo, area.width, Choice::short);
        closing.retain(|line| !line.spans.is_empty());
        if let Some(why) = demo.unpublished.as_ref().filter(|_| demo.running()) {
            let text = wrap(&format!("It does not publish: {why}"), area.width);
            closing.extend(
                text.into_iter()
                    .map(|line| Line::styled(line, screen.theme.ink(Ink::Warning))),
            );
        }
    }
    let lines = Lines::new(
        area.height,
        Wanted {
            headline: headline.len() as u16,
            sentence: sentence.len() as u16,
            maps: maps.len() as u16,
            failed: step.oom.is_some(),
            closing: closing.len() as u16,
        },
    );

    let mut rest = area;
    let mut take = |lines: u16| {
        let (top, below) = split_top(rest, lines);
        rest = below;
        top
    };
    let theme = screen.theme;
    let text = take(lines.text);
    let mut words = vec![title(screen, demo, step, area.width)];
    let strong = theme.ink(Ink::Strong);
    words.extend(headline.into_iter().map(|line| Line::styled(line, strong)));
    words.extend(sentence.into_iter().map(Line::raw));
    screen.render(Text::from(words), text);
    take(lines.blank);

    let places = Places::of(&demo.steps).bytes().max(demo.map_bytes.unwrap_or(0));
    let scale = Scale::new(places, area.width);
    for (word, steps) in maps {
        let scale_shown = (word != "after: ").then_some(scale);
        heading(screen, take(lines.heading), word, steps, scale_shown);
        let strip = take(lines.map);
        let cells = steps
            .last()
            .map_or_else(Vec::new, |step| Places::of(steps).cells(step, scale));
        screen.render(MapStrip { theme, cells: &cells }, strip);
        if demo.running() {
            screen.hit(strip, Target::View(View::Blocks));
        }
    }
    legend(screen, take(lines.legend));
    if let Some(oom) = step.oom.as_ref().filter(|_| lines.holes > 0) {
        take(lines.blank);
        let holes: Vec<u64> = step
            .map
            .iter()
            .filter(|block| block.free)
            .map(|block| block.size)
            .collect();
        let heading = take(lines.holes - holes::LINES);
        let text = "the holes side by side, in MiB, and the request at the same scale";
        screen.render(Line::styled(clip(text, area.width), theme.ink(Ink::Dim)), heading);
        let (holes, request) = (&holes[..], oom.requested);
        screen.render(Holes { theme, holes, request }, take(holes::LINES));
    }
    if lines.closing > 0 {
        take(lines.blank);
        screen.render(Text::from(closing), take(lines.closing));
    }
    take(lines.blank);
    if GRAPH.contains(&rest.height.min(*GRAPH.end())) {
        graph(screen, split_top(rest, *GRAPH.end()).0, demo);
    }
    if demo.stepped() && demo.phase == DemoPhase::Waiting && demo.choices.is_empty() {
        screen.hit(text, Target::Next);
    }
}

/// The lines of each part. What matters least is left out first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    /// The title, the headline and the sentence.
    text: u16,
    /// The heading of each map.
    heading: u16,
    /// Each map.
    map: u16,
    legend: u16,
    /// The holes and the request, with a heading if there is room.
    holes: u16,
    closing: u16,
    /// Each blank line between two parts.
    blank: u16,
}

/// What there is to show, in lines.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    headline: u16,
    sentence: u16,
    /// The number of maps, at least 1.
    maps: u16,
    /// Whether a request failed, so that the holes are shown.
    failed: bool,
    closing: u16,
}

impl Lines {
    fn new(height: u16, wanted: Wanted) -> Lines {
        let maps = wanted.maps;
        let mut left = height;
        // Returns `wanted` lines if there are so many, else none.
        let mut take = |wanted: u16| {
            let taken = if wanted <= left { wanted } else { 0 };
            left -= taken;
            taken
        };
        let mut lines = Lines {
            text: take(height.min(1 + wanted.headline)),
            ..Lines::default()
        };
        lines.map = take(maps) / maps;
        lines.text += take(wanted.sentence);
        if wanted.failed {
            lines.holes = take(holes::LINES);
        }
        lines.map += take(maps * (OUTLINED - 1)) / maps;
        lines.closing = take(wanted.closing);
        lines.heading = take(maps) / maps;
        lines.legend = take(1);
        if lines.holes > 0 {
            lines.holes += take(1);
        }
        let parts = 1 + u16::from(lines.holes > 0) + u16::from(lines.closing > 0);
        lines.blank = take(parts) / parts;
        if lines.map == OUTLINED {
            lines.map += take(maps * (TALLEST - OUTLINED)) / maps;
        }
        lines
    }
}

fn title(screen: &Screen<'_>, demo: &Demo, step: &DemoStep, room: u16) -> Line<'static> {
    let theme = screen.theme;
    let number = format!("{}  ", steps::number(screen, demo, step).trim_start());
    let line = Line::from_iter([
        Span::styled(number, theme.ink(Ink::Accent)),
        Span::styled(step.title.clone(), theme.ink(Ink::Plain)),
    ]);
    steps::fit(line, room)
}

/// Draws the line above a map: the step that it is of, and above the first one the scale.
fn heading(screen: &mut Screen<'_>, area: Rect, word: &str, steps: &[DemoStep], scale: Option<Scale>) {
    let dim = screen.theme.ink(Ink::Dim);
    let scale = scale.map_or_else(String::new, |scale| format!("1 column = {}", units::bytes(scale.bytes)));
    let room = area.width.saturating_sub(width(&scale) + 2);
    let text = match steps.last() {
        Some(step) if !word.is_empty() => format!("{word}step {}, {}", step.number, step.title),
        _ => "its memory by address, sizes in MiB".to_owned(),
    };
    let text = match room {
        0..24 => clip(&text, area.width),
        _ => {
            screen.render(Line::styled(scale, dim).right_aligned(), area);
            clip(&text, room)
        }
    };
    screen.render(Span::styled(text, dim), area);
}

fn legend(screen: &mut Screen<'_>, area: Rect) {
    let theme = screen.theme;
    let mut line = Line::default();
    for (content, text) in [
        (Content::Held, "held by the program"),
        (Content::Free, "free, in the cache"),
        (Content::Gone, "no memory any more"),
    ] {
        let entry = [
            sign(&theme, content),
            Span::styled(format!(" {text}   "), theme.ink(Ink::Dim)),
        ];
        let wide = entry.iter().map(Span::width).sum::<usize>();
        if line.width() + wide > usize::from(area.width) + 3 {
            break;
        }
        line.extend(entry);
    }
    screen.render(line, area);
}

/// Draws the last minute of the demo's device.
fn graph(screen: &mut Screen<'_>, area: Rect, demo: &Demo) {
    let model = screen.model;
    let world = model.world();
    let process = world.processes.iter().find(|process| Some(process.pid) == demo.pid);
    let device = process.and_then(|process| world.devices.iter().find(|device| device.key == process.id.device));
    let Some(device) = device else { return };
    let newest = history::newest(model, device);
    let theme = screen.theme;
    let graph = HistoryGraph {
        theme,
        device,
        newest: &newest,
        zoomed: true,
    };
    screen.render(graph, area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_left_out_as_the_area_shrinks() {
        let total = |lines: Lines, maps: u16| {
            let parts = 1 + u16::from(lines.holes > 0) + u16::from(lines.closing > 0);
            lines.text
                + maps * (lines.heading + lines.map)
                + lines.legend
                + lines.holes
                + lines.closing
                + lines.blank * parts
        };
        for (maps, failed, closing) in [(1, true, 4), (2, false, 3), (2, true, 0)] {
            let wanted = Wanted {
                headline: 1,
                sentence: 2,
                maps,
                failed,
                closing,
            };
            for height in 0..60 {
                let lines = Lines::new(height, wanted);
                assert!(total(lines, maps) <= height, "{height}: {lines:?}");
                assert_eq!(lines.text.min(2), height.min(2), "{height}: {lines:?}");
                assert_eq!(lines.map > 0, height >= 2 + maps, "{height}: {lines:?}");
            }
            let lines = Lines::new(60, wanted);
            assert_eq!((lines.map, lines.legend, lines.blank), (TALLEST, 1, 1));
        }
    }
}
