//! How a process's managed memory moves: rates, totals, what they say of prefetching, and a graph of both directions.

use gpumem_probe::{BLOCK, Counters, Target};
use gpumem_text::units::{self, count, count_short};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};

use super::counting_text;
use crate::model::{CounterHistory, Counting, ManagedProcess, Rates, Spread};
use crate::view::Screen;
use crate::view::layout::{ELLIPSIS, clip};
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::StackedGraph;
use crate::wrap::width;

/// Draws the panel.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, target: Target, process: &ManagedProcess) {
    let model = screen.model;
    let name = model
        .selected_process()
        .map_or_else(String::new, |p| p.name_in(60, ELLIPSIS));
    let title = format!("{}: {name}", target.pid);
    let title = title.trim_end_matches([':', ' ']);
    let inside = match area.height {
        ..4 => area,
        _ => screen.panel(area, title, "unified memory"),
    };
    if !figures(screen, inside, target, process) {
        let text = counting_text(&process.counting, model.setup.tracking)
            .unwrap_or_else(|| "counters are being attached".into());
        let text = Text::styled(text, screen.theme.ink(Ink::Dim));
        screen.render(Paragraph::new(text).wrap(Wrap { trim: true }), inside);
    }
}

/// Draws rates, totals and graphs. Returns false if they are not known.
pub(super) fn figures(screen: &mut Screen<'_>, inside: Rect, target: Target, process: &ManagedProcess) -> bool {
    let model = screen.model;
    let (Counting::On(total), Some(past)) = (&process.counting, model.world().managed.past.get(&target)) else {
        return false;
    };
    let signs = prefetch_signs(past, total);
    let joined = signs.join("   ");
    let signs = match width(&joined) <= inside.width || inside.height < 6 {
        true => vec![joined],
        false => signs,
    };
    let figures = inside.height.min(2 + signs.len() as u16);
    let [lines, graphs] = Layout::vertical([Constraint::Length(figures), Constraint::Min(0)]).areas(inside);
    let rates = past.rates().unwrap_or_default();
    let to_gpu = Direction {
        name: "H>D",
        ink: Ink::Allocated,
        rate: rates.to_gpu,
        total: total.to_gpu,
        faults_of: "GPU",
        fault_rate: rates.gpu_faults,
        faults: total.gpu_faults,
    };
    let to_cpu = Direction {
        name: "D>H",
        ink: Ink::Cached,
        rate: rates.to_cpu,
        total: total.to_cpu,
        faults_of: "CPU",
        fault_rate: rates.cpu_faults,
        faults: total.cpu_faults,
    };
    let [to_gpu, to_cpu] = [to_gpu, to_cpu].map(|direction| direction.line(screen.theme, inside.width));
    let dim = screen.theme.ink(Ink::Dim);
    let signs = signs.iter().map(|sign| Line::styled(clip(sign, inside.width), dim));
    let text: Vec<Line<'_>> = [to_gpu, to_cpu].into_iter().chain(signs).collect();
    screen.render(Text::from(text), lines);
    draw_graphs(screen, graphs, past);
    true
}

/// What moves one way, and the faults that cause it.
struct Direction {
    name: &'static str,
    ink: Ink,
    /// Bytes a second.
    rate: f64,
    /// Bytes since the counters were attached.
    total: u64,
    faults_of: &'static str,
    /// Faults a second.
    fault_rate: f64,
    /// Faults since the counters were attached.
    faults: u64,
}

impl Direction {
    /// Returns its figures, without the last ones that do not fit into `room` columns.
    fn line(&self, theme: Theme, room: u16) -> Line<'static> {
        let rate = format!("{:>12}/s", units::bytes(self.rate as u64));
        let total = format!("  total {:<11}", units::bytes(self.total));
        let faults = format!(
            "  {} faults {:>7}/s",
            self.faults_of,
            count_short(self.fault_rate as u64)
        );
        let mut spans = vec![
            Span::styled(format!("{}  ", self.name), theme.ink(self.ink)),
            Span::styled(rate, theme.ink(Ink::Strong)),
            Span::styled(total, theme.ink(Ink::Dim)),
            Span::raw(faults),
            Span::styled(format!("  total {}", count(self.faults)), theme.ink(Ink::Dim)),
        ];
        while spans.len() > 2 && spans.iter().map(Span::width).sum::<usize>() > room.into() {
            spans.pop();
        }
        Line::from(spans)
    }
}

/// Says what the faults of the last ten seconds mean. One CPU fault moves a page; the driver's prefetch brings the rest of the 2 MiB
/// block in steps that double, so that sequential use takes six faults a block (measured), and page by page 512.
fn prefetch_signs(past: &CounterHistory, total: &Counters) -> Vec<String> {
    let recent = past.within(10_000_000_000).map_or(*total, |(_, counters)| counters);
    let per_block = |faults: u64, bytes: u64| faults as f64 / (bytes as f64 / BLOCK as f64);
    let mut parts = Vec::new();
    if recent.to_cpu >= BLOCK {
        let faults = per_block(recent.cpu_faults, recent.to_cpu);
        let sign = match faults {
            ..0.5 => "explicit prefetch",
            0.5..16.0 => "the driver's prefetch works",
            16.0..128.0 => "the driver's prefetch helps little",
            _ => "page by page: prefetch before the CPU uses it",
        };
        parts.push(format!("D>H {faults:.1} CPU faults per 2 MiB: {sign}"));
    }
    if recent.to_gpu >= BLOCK {
        let faults = per_block(recent.gpu_faults, recent.to_gpu);
        let sign = match faults {
            ..0.5 => "explicit prefetch",
            _ => "on demand",
        };
        parts.push(format!("H>D {faults:.0} GPU faults per 2 MiB: {sign}"));
    }
    if parts.is_empty() {
        parts.push("Nothing moved in the last ten seconds.".to_owned());
    }
    parts
}

/// Draws both directions over the last minute, at the same scale.
fn draw_graphs(screen: &mut Screen<'_>, area: Rect, past: &CounterHistory) {
    if area.height < 2 {
        return;
    }
    let steps: Vec<Rates> = past.steps().map(|(_, rates)| rates).collect();
    let most = steps.iter().map(|r| r.to_gpu.max(r.to_cpu)).fold(0.0, f64::max);
    if most == 0.0 {
        return;
    }
    let scale = format!("{}/s", units::bytes_short(most as u64));
    let [graph, label] = Layout::horizontal([Constraint::Min(0), Constraint::Length(9)]).areas(area);
    let halves: [Rect; 2] = Layout::vertical([Constraint::Fill(1); 2]).areas(graph);
    let theme = screen.theme;
    for (half, ink, of) in [
        (halves[0], Ink::Allocated, (|r: &Rates| r.to_gpu) as fn(&Rates) -> f64),
        (halves[1], Ink::Cached, |r| r.to_cpu),
    ] {
        let room = usize::from(half.width);
        let newest = &steps[steps.len().saturating_sub(room)..];
        let blank = room - newest.len();
        let known = newest.iter().map(|rates| Some(Spread::of([of(rates) / most])));
        let columns: Vec<Option<Spread<[f64; 1]>>> = std::iter::repeat_n(None, blank).chain(known).collect();
        let widget = StackedGraph {
            theme,
            layers: &[ink],
            columns: &columns,
        };
        screen.render(widget, half);
    }
    let label = Rect { height: 1, ..label };
    screen.render(Line::styled(format!(" {scale}"), theme.ink(Ink::Dim)), label);
}
