//! The memory of the selected process by tag, stacked.

use std::sync::Arc;

use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Window, fill};
use crate::model::{Device, Looks, Model, Nanos, Spread, TagPast, TagPoint};
use crate::view::Screen;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{StackedGraph, shade, swatch};
use crate::wrap::{cut, width};

/// The most columns of a name in the legend.
const NAME: u16 = 20;

/// The stacked layers of a window.
pub(super) struct Stack {
    /// From the bottom up. The rest, if there is any, is the last.
    layers: Vec<Layer>,
    /// The tops of the layers in each column, in bytes.
    columns: Vec<Option<Spread<Vec<u64>>>>,
}

struct Layer {
    /// `None`: the rest.
    tag: Option<Arc<str>>,
    ink: Ink,
    newest: u64,
}

/// Returns the history by tag of the selected process, if it is on this device and has tags.
pub(super) fn past<'a>(model: &'a Model, device: &Device) -> Option<&'a TagPast> {
    let past = model.tags.as_ref()?;
    (Some(past.process) == model.ui.process && past.process.device == device.key && past.any()).then_some(past)
}

impl Stack {
    /// Stacks the part of a history that lies in a window. If the window ends with the newest samples (`ends`), the legend has
    /// the newest figures, even if they are newer than the window: a black box is read after the device's last sample.
    pub(super) fn new(past: &TagPast, looks: &Looks, window: Window, max_gap: Nanos, ends: bool) -> Stack {
        let inside = past.points.iter().filter(|point| window.column(point.at).is_some());
        // The last one before it is held at its start.
        let before = past.points.iter().rev().find(|point| point.at < window.start(0));
        let seen: Vec<&TagPoint> = before.into_iter().chain(inside).collect();
        let newest = if ends { past.points.back() } else { seen.last().copied() };
        let layers = layers(past, looks, &seen, newest);
        let moments = past
            .points
            .iter()
            .map(|point| (point.at, Spread::of(tops(&layers, point))));
        let columns = fill(moments, window, max_gap);
        Stack { layers, columns }
    }

    /// Returns name, look and newest bytes of the layers, from the bottom up.
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

    /// Returns the bytes of the highest column.
    pub(super) fn most(&self) -> u64 {
        let tops = self.columns.iter().flatten().filter_map(|tops| tops.most.last());
        tops.copied().max().unwrap_or(0)
    }

    /// Checks whether a column has a half-tone.
    pub(super) fn varies(&self) -> bool {
        self.columns.iter().flatten().any(|tops| tops.least != tops.most)
    }

    /// Draws the columns, and each layer's number at the right edge, so that layers differ by more than their colour.
    pub(super) fn draw(&self, screen: &mut Screen<'_>, plot: Rect, top: u64) {
        let theme = screen.theme;
        let layers: Vec<Ink> = self.layers.iter().map(|l| l.ink).collect();
        let shares = |tops: &Vec<u64>| -> Vec<f64> { tops.iter().map(|&bytes| bytes as f64 / top as f64).collect() };
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|tops| tops.as_ref().map(|tops| tops.map(shares)))
            .collect();
        let (layers, columns) = (&layers[..], &columns[..]);
        screen.render(StackedGraph { theme, layers, columns }, plot);
        let newest = columns.iter().rposition(Option::is_some);
        if let Some(x) = newest.filter(|_| theme.has_eighths()) {
            let mut foot = 0.0;
            let tops = columns[x].iter().flat_map(|tops| tops.least.iter().zip(&tops.most));
            for (&ink, (&least, &most)) in layers.iter().zip(tops) {
                number(screen, plot, x as u16, ink, (foot, least));
                foot = most;
            }
        }
    }

    /// Returns the lines of a legend with the names and newest bytes of the layers.
    pub(super) fn legend(&self, theme: &Theme, room: u16) -> Vec<Line<'static>> {
        let mut lines = vec![Line::default()];
        for layer in &self.layers {
            let name = cut(layer.tag.as_deref().unwrap_or("the rest"), NAME, "…");
            let bytes = units::bytes_short(layer.newest);
            let wide = 2 + width(&name) + 1 + width(&bytes);
            let spans = [
                swatch(theme, layer.ink),
                Span::raw(" "),
                Span::styled(name, theme.ink(Ink::Dim)),
                Span::raw(format!(" {bytes}   ")),
            ];
            match lines.last_mut() {
                Some(line) if line.width() == 0 || line.width() + usize::from(wide) <= room.into() => {
                    line.extend(spans)
                }
                _ => lines.push(Line::from_iter(spans)),
            }
        }
        lines
    }
}

/// Returns the height of each layer's top in bytes.
fn tops(layers: &[Layer], point: &TagPoint) -> Vec<u64> {
    let mut sum = 0u64;
    let tops = layers.iter().map(|layer| match &layer.tag {
        Some(tag) => {
            sum = sum.saturating_add(point.bytes(tag));
            sum
        }
        None => point.total(),
    });
    tops.collect()
}

/// Makes a layer of each tag that had the most bytes at any known moment. Tags that never shrink in the window lie at the bottom,
/// so that those that do don't move them. A tag keeps its look for the session.
fn layers(past: &TagPast, looks: &Looks, seen: &[&TagPoint], newest: Option<&TagPoint>) -> Vec<Layer> {
    let points = &past.points;
    let mut tags = past.largest();
    tags.sort();
    let least = |tag: &str| seen.iter().map(|p| p.bytes(tag)).min().unwrap_or(0);
    let named = (0u8..).zip(tags).map(|(place, tag)| {
        let layer = Layer {
            newest: newest.map_or(0, |p| p.bytes(&tag)),
            ink: Ink::Tag(looks.tags.of(&tag).unwrap_or(place)),
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

/// Draws a layer's number in the middle of a column, if the layer fills a whole cell there.
fn number(screen: &mut Screen<'_>, plot: Rect, x: u16, ink: Ink, (foot, top): (f64, f64)) {
    let height = f64::from(plot.height);
    // The lines of the plot that the layer fills.
    let (first, last) = (((1.0 - top.min(1.0)) * height).ceil(), ((1.0 - foot) * height).floor());
    if last - first < 1.0 {
        return;
    }
    let y = ((first + last) / 2.0).floor().clamp(first, last - 1.0);
    let theme = screen.theme;
    let style = theme.on(shade(&theme, ink, (height - 1.0 - y) / height));
    let cell = Rect::new(plot.x + x, plot.y + y as u16, 1, 1);
    screen.render(Span::styled(theme.glyph(ink).to_string(), style), cell);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ChannelKey, DeviceKey, Owner, ProcessId};

    /// A tag keeps its colour, however large it is at the moment and whatever is beside it.
    #[test]
    fn tags_keep_their_looks_and_end_with_the_newest_figures() {
        let mut past = TagPast::new(ProcessId {
            device: DeviceKey::NvmlIndex(0),
            owner: Owner::Channel(ChannelKey(1, 1)),
        });
        let mut add = |at, tags: [(&str, u64); 2]| {
            past.points.push_back(TagPoint {
                at,
                tags: tags.map(|(name, bytes)| (name.into(), bytes)).into(),
                rest: 0,
            });
        };
        add(10, [("weights", 9), ("activations", 1)]);
        add(20, [("activations", 12), ("weights", 9)]);
        // This one is newer than the device's last sample.
        add(90, [("weights", 8), ("activations", 0)]);
        let mut looks = Looks::default();
        // Another program had these.
        looks.add_tags(&["weights", "cache"].map(Into::into));
        looks.add_tags(&past.largest());
        let layers = |ends: bool| -> Vec<(String, Ink, u64)> {
            let stack = Stack::new(&past, &looks, Window::new(20, 29, 2), 10, ends);
            stack.layers()
        };
        let layer = |name: &str, ink, bytes| (name.to_owned(), ink, bytes);
        let [weights, activations] = [Ink::Tag(0), Ink::Tag(2)];
        assert_eq!(
            layers(true),
            [layer("weights", weights, 8), layer("activations", activations, 0)]
        );
        assert_eq!(
            layers(false),
            [layer("weights", weights, 9), layer("activations", activations, 12)]
        );
    }
}
