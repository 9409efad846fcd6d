//! The selected process by tag: what it allocated for, stacked.

use std::sync::Arc;

use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::pen::{clip, split_top, width};
use super::super::theme::Ink;
use super::super::{Screen, bar, graph};
use super::{Window, fill};
use crate::model::{Device, Model, Nanos, TagPast, TagPoint};

/// Tags that have a layer of their own; all others are one more.
const LAYERS: usize = 5;
/// Most columns of a name in the legend.
const NAME: u16 = 20;

/// What is stacked.
pub(super) struct Stack<'a> {
    /// From the foot up; the rest, if there is any, is the last.
    layers: Vec<Layer>,
    columns: Vec<Option<&'a TagPoint>>,
}

struct Layer {
    /// `None`: the rest.
    tag: Option<Arc<str>>,
    ink: Ink,
    newest: u64,
}

/// The past by tag of the selected process, if it is on this device and has tags.
pub(super) fn past<'a>(model: &'a Model, device: &Device) -> Option<&'a TagPast> {
    let past = model.tags.as_ref()?;
    (Some(past.process) == model.ui.process && past.process.device == device.key && past.any()).then_some(past)
}

impl<'a> Stack<'a> {
    /// Of the past in a window. Where that ends with what is known, its figures are the newest: those of a black box are read
    /// after the last sample of a device.
    pub(super) fn new(past: &'a TagPast, window: Window, patience: Nanos, ends: bool) -> Stack<'a> {
        let points = past.points.iter().map(|p| (p.at, p));
        let columns = fill(points, window, patience, |p| p.total());
        let newest = columns.iter().rev().flatten().next().copied();
        let newest = if ends { past.points.back() } else { newest };
        Stack {
            layers: layers(past, &columns, newest),
            columns,
        }
    }

    /// Name, look and newest bytes of its layers, from the foot up.
    #[cfg(test)]
    pub(super) fn layers(&self) -> Vec<(String, Ink, u64)> {
        let named = self
            .layers
            .iter()
            .filter_map(|layer| Some((layer, layer.tag.as_ref()?)));
        named
            .map(|(layer, tag)| (tag.to_string(), layer.ink, layer.newest))
            .collect()
    }

    /// Bytes of the highest column.
    pub(super) fn most(&self) -> u64 {
        self.columns.iter().flatten().map(|p| p.total()).max().unwrap_or(0)
    }

    /// Draws the columns, and at the right edge each layer's number, so that colour never stands alone.
    pub(super) fn draw(&self, screen: &mut Screen<'_>, plot: Rect, top: u64) {
        let inks: Vec<Ink> = self.layers.iter().map(|l| l.ink).collect();
        let mut newest = None;
        for (x, point) in self.columns.iter().enumerate() {
            let Some(point) = point else { continue };
            let tops = self.tops(point, top);
            graph::stacked_column(&mut screen.pen, plot, x as u16, &inks, &tops);
            newest = Some((x as u16, tops));
        }
        if let Some((x, tops)) = newest.filter(|_| screen.pen.theme.has_eighths()) {
            let mut foot = 0.0;
            for (&ink, share) in inks.iter().zip(tops) {
                number(screen, plot, x, ink, (foot, share));
                foot = share;
            }
        }
    }

    /// The height of each layer's top as a share of the plot's.
    fn tops(&self, point: &TagPoint, top: u64) -> Vec<f64> {
        let mut sum = 0u64;
        let layers = self.layers.iter().map(|layer| match &layer.tag {
            Some(tag) => {
                sum = sum.saturating_add(point.bytes(tag));
                sum
            }
            None => point.total(),
        });
        layers.map(|bytes| bytes as f64 / top as f64).collect()
    }

    /// Names and newest bytes of the layers, over as many lines as it takes; how many those are.
    pub(super) fn legend(&self, screen: &mut Screen<'_>, area: Rect) -> u16 {
        let dim = screen.pen.theme.ink(Ink::Dim);
        let (mut x, mut y) = (0, 0);
        for layer in &self.layers {
            let name = clip(layer.tag.as_deref().unwrap_or("the rest"), NAME);
            let bytes = units::bytes_short(layer.newest);
            let wide = 2 + width(&name) + 1 + width(&bytes);
            if x > 0 && x + wide > area.width {
                (x, y) = (0, y + 1);
            }
            if y >= area.height {
                break;
            }
            bar::swatch(&mut screen.pen, split_top(area, y).1, x, 0, layer.ink);
            x = screen.pen.text(area, x + 2, y, &name, dim);
            x = screen.pen.text(area, x + 1, y, &bytes, Style::new()) + 3;
        }
        y + 1
    }
}

/// The tags with most bytes at any moment that is known. What never shrinks in the window lies at the foot, so that what comes and
/// goes does not shake it. Each has the look that its name has among theirs: the same in every run of a program, whatever comes first.
fn layers(past: &TagPast, columns: &[Option<&TagPoint>], newest: Option<&TagPoint>) -> Vec<Layer> {
    let points = &past.points;
    let seen = || columns.iter().flatten();
    let mut tags: Vec<(Arc<str>, u64)> = Vec::new();
    for (name, bytes) in points.iter().flat_map(|p| &p.tags) {
        match tags.iter_mut().find(|known| known.0 == *name) {
            Some(known) => known.1 = known.1.max(*bytes),
            None => tags.push((name.clone(), *bytes)),
        }
    }
    tags.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    tags.truncate(LAYERS);
    tags.sort_by(|a, b| a.0.cmp(&b.0));
    let least = |tag: &str| seen().map(|p| p.bytes(tag)).min().unwrap_or(0);
    let named = (0u8..).zip(tags).map(|(i, (tag, _))| {
        let layer = Layer {
            newest: newest.map_or(0, |p| p.bytes(&tag)),
            ink: Ink::Tag(i),
            tag: Some(tag.clone()),
        };
        (std::cmp::Reverse(least(&tag)), layer)
    });
    let mut layers: Vec<_> = named.collect();
    layers.sort_by_key(|(least, _)| *least);
    let mut layers: Vec<Layer> = layers.into_iter().map(|(_, layer)| layer).collect();
    let others = |p: &TagPoint| {
        let named = layers.iter().filter_map(|l| l.tag.as_ref()).map(|tag| p.bytes(tag));
        p.total().saturating_sub(named.sum())
    };
    if points.iter().any(|p| others(p) > 0) {
        let newest = newest.map_or(0, others);
        layers.push(Layer {
            tag: None,
            ink: Ink::Other,
            newest,
        });
    }
    layers
}

/// A layer's number in the middle of a column, if that is a whole cell high.
fn number(screen: &mut Screen<'_>, plot: Rect, x: u16, ink: Ink, (foot, top): (f64, f64)) {
    let height = f64::from(plot.height);
    // Lines of the plot that the layer fills.
    let (first, last) = (((1.0 - top.min(1.0)) * height).ceil(), ((1.0 - foot) * height).floor());
    if last - first < 1.0 {
        return;
    }
    let y = ((first + last) / 2.0).floor().clamp(first, last - 1.0);
    let theme = screen.pen.theme;
    let style = theme.on(graph::shade(&theme, ink, (height - 1.0 - y) / height));
    screen.pen.cell(plot, x, y as u16, theme.glyph(ink), style);
}
