//! What the user looks at, and with what.

use super::device::DeviceKey;
use super::finding::Severity;
use super::map_layout::MapLayout;
use super::process::{Column, ProcessId, Sort};
use super::views::View;
use super::{Nanos, SECOND};

/// Something drawn over the view that takes the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Popup {
    /// The keys, scrolled by so many lines.
    Help {
        /// Lines scrolled.
        scroll: u16,
    },
    /// Every finding in full, scrolled by so many lines.
    Findings {
        /// Lines scrolled.
        scroll: u16,
    },
    /// Which column to sort by.
    Sort {
        /// Index into [`Column::ALL`].
        selected: usize,
    },
    /// Which fix to try in the demo.
    Fix {
        /// Index into [`super::Demo::choices`].
        selected: usize,
    },
}

/// How many colours the terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Colors {
    /// None: bold, reverse and underline only.
    Mono,
    /// The terminal's own sixteen.
    Ansi16,
    /// The 256-colour cube.
    #[default]
    Ansi256,
    /// 24 bits.
    True,
}

/// The terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// Columns; may be 0.
    pub width: u16,
    /// Lines; may be 0.
    pub height: u16,
    /// Colours.
    pub colors: Colors,
    /// Draw with ASCII only.
    pub ascii: bool,
}

impl Default for Term {
    fn default() -> Self {
        Term {
            width: 80,
            height: 24,
            colors: Colors::default(),
            ascii: false,
        }
    }
}

/// The filter of the process table: rows whose pid, user, command, job, device or state contain the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// The text; empty shows all.
    pub text: String,
    /// The user is typing it: keys go here.
    pub editing: bool,
    /// The process that was selected before it left that out, to be selected again.
    pub before: Option<ProcessId>,
}

/// How the view drew the block map, told back so that keys can move the cursor by what is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapGeometry {
    /// The layout.
    pub layout: MapLayout,
    /// The layout without zoom.
    pub whole: MapLayout,
    /// Lines on screen.
    pub lines: u16,
}

/// How much of a text is not shown while nobody has scrolled it, told back so that it scrolls to its ends and no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextGeometry {
    /// Lines above what is shown.
    pub above: u16,
    /// Lines below.
    pub below: u16,
    /// Lines that a page moves it by, so that none is passed over.
    pub page: u16,
}

/// State of the Blocks view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlocksUi {
    /// Address under the cursor; `None` is the first block. It stays when the block under it changes.
    pub cursor: Option<u64>,
    /// 0 shows everything; each step halves the bytes per cell, see [`MapLayout::deepest`].
    pub zoom: u8,
}

/// State of the Timeline view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimelineUi {
    /// How much of the past is shown, nanoseconds.
    pub span: Nanos,
    /// How far the right edge is behind now, nanoseconds.
    pub back: Nanos,
    /// Leave out what others use, so that it does not dwarf what programs publish.
    pub own: bool,
    /// Stack what the selected process allocated by tag, where there are tags.
    pub by_tag: bool,
}

impl TimelineUi {
    /// The spans `+` and `-` step through.
    pub(crate) const SPANS: [Nanos; 5] = [15 * SECOND, 60 * SECOND, 150 * SECOND, 300 * SECOND, 600 * SECOND];
}

impl Default for TimelineUi {
    fn default() -> Self {
        TimelineUi {
            span: 60 * SECOND,
            back: 0,
            own: false,
            by_tag: false,
        }
    }
}

/// A message in the status line, shown until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toast {
    /// The message.
    pub text: String,
    /// How much it matters.
    pub severity: Severity,
    /// When it goes.
    pub until: Nanos,
}

/// A rectangle of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Area {
    /// Leftmost column.
    pub x: u16,
    /// Top line.
    pub y: u16,
    /// Columns.
    pub width: u16,
    /// Lines.
    pub height: u16,
}

impl Area {
    /// Whether a cell is inside.
    pub(crate) fn contains(&self, x: u16, y: u16) -> bool {
        (self.x..self.x.saturating_add(self.width)).contains(&x)
            && (self.y..self.y.saturating_add(self.height)).contains(&y)
    }
}

/// What a click on an area means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Opens a view.
    View(View),
    /// Selects a device.
    Device(DeviceKey),
    /// Selects a process.
    Process(ProcessId),
    /// Sorts by a column.
    Column(Column),
    /// A line (or part of one) of the block map: cell `x` of the area begins at `addr + x * bytes_per_cell`.
    Bytes {
        /// Address of the area's first cell.
        addr: u64,
        /// Bytes per cell.
        bytes_per_cell: u64,
    },
    /// Chooses entry `n` of the popup, or of the Demo view's list.
    Entry(usize),
    /// Opens help.
    Help,
    /// Opens the findings in full.
    Findings,
    /// Next step of the demo.
    Next,
}

/// An area of the screen that answers a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The cells.
    pub area: Area,
    /// What a click on them means.
    pub target: Target,
}

/// What drawing found out and later keys and clicks need. A view returns it; it is not state of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hits {
    /// Areas that answer a click; where they overlap the last one wins.
    pub areas: Vec<Hit>,
    /// Process rows that fit on the screen: PgUp and PgDn move by so many.
    pub page: u16,
    /// The first process row in view, and the first row of devices: they stay where they are, under the mouse, too, while what is selected
    /// is in view.
    pub first: [usize; 2],
    /// Lines of a popup's text beyond those that fit, plus one: how far it can scroll.
    pub popup_lines: u16,
    /// How the block map was drawn.
    pub map: MapGeometry,
    /// How the demo's text was drawn.
    pub told: TextGeometry,
}

impl Hits {
    /// What a click at a cell means, with the column inside the area.
    pub(crate) fn at(&self, x: u16, y: u16) -> Option<(Target, u16)> {
        let hit = self.areas.iter().rev().find(|h| h.area.contains(x, y))?;
        Some((hit.target, x - hit.area.x))
    }
}

/// What the user looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ui {
    /// The open view.
    pub view: View,
    /// What lies over it.
    pub popup: Option<Popup>,
    /// The selected device; `None` is the first.
    pub device: Option<DeviceKey>,
    /// The selected process. It stays selected when rows move, and when it dies.
    pub process: Option<ProcessId>,
    /// The demo's process is selected as soon as it has a row.
    pub follow_demo: bool,
    /// List black boxes of programs that ended before the dashboard began, too.
    pub black_boxes: bool,
    /// Order of the process table.
    pub sort: Sort,
    /// Filter of the process table.
    pub filter: Filter,
    /// Blocks view.
    pub blocks: BlocksUi,
    /// Timeline view.
    pub timeline: TimelineUi,
    /// Selected entry of the Demo view's list.
    pub demo_entry: usize,
    /// Lines that the demo's text was scrolled, up where they are negative.
    pub demo_scroll: i32,
    /// Message in the status line.
    pub toast: Option<Toast>,
    /// The terminal.
    pub term: Term,
    /// What the last drawing found out.
    pub hits: Hits,
}
