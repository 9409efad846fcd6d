//! The state of the user interface: what is open, selected and scrolled, and the terminal.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gpumem_probe::Target as ManagedTarget;
use gpumem_triage::Report;

use super::device::DeviceKey;
use super::finding::{FindingKey, Severity};
use super::map_layout::MapLayout;
use super::palette::Palette;
use super::process::{Column, ProcessId, Sort};
use super::views::View;
use super::{Nanos, SECOND};

/// A popup over the view, which receives all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Popup {
    /// The keys of every view.
    Help {
        /// Lines scrolled.
        scroll: u16,
    },
    /// Every finding in full.
    Findings {
        /// The chosen one; the first if there is no such finding any more.
        chosen: Option<FindingKey>,
        /// Lines scrolled.
        scroll: u16,
    },
    /// The menu of columns to sort by.
    Sort {
        /// Index into [`Column::ALL`].
        selected: usize,
    },
    /// The ranks of the selected process's job, side by side.
    Ranks,
    /// The question whether to attach to a process.
    Attach {
        /// The process.
        pid: u32,
    },
    /// The question whether to measure a card that other programs use.
    Measure,
    /// What the shown step of the demo did, in full.
    Explain {
        /// Lines scrolled.
        scroll: u16,
    },
    /// The menu of fixes of the demo.
    Fix {
        /// Index into [`super::Demo::choices`].
        selected: usize,
    },
}

/// How many colours the terminal supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Colors {
    /// None: bold, reverse and underline only.
    Mono,
    /// The terminal's own sixteen.
    Ansi16,
    /// The 256-colour palette.
    #[default]
    Ansi256,
    /// 24-bit colours.
    True,
}

/// The terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// Columns; may be 0.
    pub width: u16,
    /// Lines; may be 0.
    pub height: u16,
    /// The colours it supports.
    pub colors: Colors,
    /// Whether to draw with ASCII only.
    pub ascii: bool,
    /// Colours that the user chose.
    pub palette: Palette,
}

impl Default for Term {
    fn default() -> Self {
        Term {
            width: 80,
            height: 24,
            colors: Colors::default(),
            ascii: false,
            palette: Palette::default(),
        }
    }
}

/// The filter of the process table as it is typed. [`super::Filter`] is its meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterUi {
    /// The text; empty shows all.
    pub text: String,
    /// Whether the user is typing it, so that it receives the keys.
    pub editing: bool,
    /// The process that was selected before the filter, or the restriction to a device, hid it. It is selected again when it is shown.
    pub before: Option<ProcessId>,
}

/// Columns of the process table that keep their place when their last value goes, so that columns do not come and go with each
/// sample. They are forgotten when the user changes what is listed or its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptColumns {
    /// The columns that had a value.
    pub columns: HashSet<Column>,
    /// The filter, device, black boxes and order under which they had one.
    pub list: (String, Option<DeviceKey>, bool, Sort),
}

/// How the view drew the block map, so that keys can move the cursor by what is on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapGeometry {
    /// The layout as drawn.
    pub layout: MapLayout,
    /// The layout without zoom.
    pub whole: MapLayout,
    /// Lines on screen.
    pub lines: u16,
}

/// How much of a text is hidden while it is not scrolled. Scrolling stops at its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextGeometry {
    /// Hidden lines above.
    pub above: u16,
    /// Hidden lines below.
    pub below: u16,
    /// Lines that a page scrolls, so that no line is skipped.
    pub page: u16,
}

/// State of the Blocks view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlocksUi {
    /// Address under the cursor; `None` for the first block. It stays when the block there changes.
    pub cursor: Option<u64>,
    /// Number of times that the bytes per cell are halved; 0 shows everything. See [`MapLayout::deepest`].
    pub zoom: u8,
}

/// State of the Unified view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnifiedUi {
    /// Lists all processes, whichever is selected.
    pub list: bool,
    /// The chosen process of the list; `None` is the first.
    pub chosen: Option<ManagedTarget>,
    /// Address under the cursor of the map; `None` is the first.
    pub cursor: Option<u64>,
    /// 0 shows everything; each step halves the bytes per cell, see [`MapLayout::deepest`].
    pub zoom: u8,
    /// The process whose events are asked for.
    pub causes: Option<ManagedTarget>,
}

/// State of the Hierarchy view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HierarchyUi {
    /// The selected level, by index.
    pub level: usize,
    /// Whether the selected level is explained in place of the curve, where there is no room for both.
    pub explained: bool,
}

/// State of the Timeline view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimelineUi {
    /// The time span that is shown, in nanoseconds.
    pub span: Nanos,
    /// The moment at the right edge; `None` follows the newest point.
    pub until: Option<Nanos>,
    /// Whether memory of others is left out, so that it does not dwarf what programs publish.
    pub own: bool,
    /// Whether the memory of the selected process is stacked by tag, if it has tags.
    pub by_tag: bool,
}

impl TimelineUi {
    /// The spans that `+` and `-` step through.
    pub(crate) const SPANS: [Nanos; 5] = [15 * SECOND, 60 * SECOND, 150 * SECOND, 300 * SECOND, 600 * SECOND];

    /// Returns how far the right edge is behind the newest point, which is of the moment `newest`.
    pub(crate) fn back(&self, newest: Nanos) -> Nanos {
        self.until.map_or(0, |until| newest.saturating_sub(until))
    }
}

impl Default for TimelineUi {
    fn default() -> Self {
        TimelineUi {
            span: 60 * SECOND,
            until: None,
            own: false,
            by_tag: false,
        }
    }
}

/// State of the Triage view.
#[derive(Clone, Debug, Default)]
pub(crate) struct TriageUi {
    /// What a pasted text says; `None` shows a process.
    pub pasted: Option<Arc<Report>>,
    /// Lines scrolled.
    pub scroll: u16,
}

/// A message that is shown in the status line for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toast {
    /// The message.
    pub text: String,
    /// How much it matters.
    pub severity: Severity,
    /// When it disappears.
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
    /// Checks whether a cell is inside.
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
    /// Selects a level of the memory hierarchy, by index.
    Level(usize),
    /// Shows a process's managed memory.
    Managed(ManagedTarget),
    /// Sorts by a column.
    Column(Column),
    /// Moves the cursor of the block map. The area is a line or part of one; its cell `x` begins at
    /// `addr + x * bytes_per_cell`.
    Bytes {
        /// Address of the area's first cell.
        addr: u64,
        /// Bytes per cell.
        bytes_per_cell: u64,
    },
    /// Chooses an entry of the popup, or of the Demo view's list, by index.
    Entry(usize),
    /// Opens help.
    Help,
    /// Opens the findings in full.
    Findings,
    /// Performs the next step of the demo.
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

/// What later keys and clicks need to know of the last drawing. The view returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hits {
    /// Areas that answer a click. Where they overlap, the last one wins.
    pub areas: Vec<Hit>,
    /// Number of process rows that fit on the screen, which is how far PgUp and PgDn move.
    pub page: u16,
    /// The first visible process row, and the first visible row of devices. They do not change while the selected row is
    /// visible, so that rows stay under the mouse.
    pub first: [usize; 2],
    /// Lines of a popup's text beyond those that fit, plus one.
    pub popup_lines: u16,
    /// The first line of each finding of the popup, and the line after its last one; and the lines that fit.
    pub finding_lines: (Vec<(u16, u16)>, u16),
    /// How the block map was drawn.
    pub map: MapGeometry,
    /// How the map of managed memory was drawn.
    pub pages: MapGeometry,
    /// Lines of the Triage view's text beyond those that fit, plus one.
    pub triage_lines: u16,
    /// How the demo's text was drawn.
    pub told: TextGeometry,
}

impl Hits {
    /// Returns the target of a click at a cell, with the column inside its area.
    pub(crate) fn at(&self, x: u16, y: u16) -> Option<(Target, u16)> {
        let hit = self.areas.iter().rev().find(|h| h.area.contains(x, y))?;
        Some((hit.target, x - hit.area.x))
    }
}

/// The state of the user interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ui {
    /// The open view.
    pub view: View,
    /// The popup over it.
    pub popup: Option<Popup>,
    /// The device that the user selected; `None` if none was.
    pub device: Option<DeviceKey>,
    /// The selected process. It stays selected when rows move and when it ends.
    pub process: Option<ProcessId>,
    /// The process that the user selected, as long as it is [`Ui::process`]. The first row is selected by nobody.
    pub chosen: Option<ProcessId>,
    /// Whether the demo's process is selected as soon as it has a row.
    pub follow_demo: bool,
    /// Whether black boxes of programs that ended before the dashboard began are listed.
    pub black_boxes: bool,
    /// Order of the process table.
    pub sort: Sort,
    /// Filter of the process table.
    pub filter: FilterUi,
    /// Columns of the process table that had a value.
    pub kept: KeptColumns,
    /// Whether only processes on the selected device are listed.
    pub one_device: bool,
    /// Blocks view.
    pub blocks: BlocksUi,
    /// Timeline view.
    pub timeline: TimelineUi,
    /// Hierarchy view.
    pub hierarchy: HierarchyUi,
    /// Unified view.
    pub unified: UnifiedUi,
    /// Whether older findings are listed one by one.
    pub unfolded: bool,
    /// The findings that the user dismissed, and how bad they were then.
    pub dismissed: HashMap<FindingKey, Severity>,
    /// Triage view.
    pub triage: TriageUi,
    /// Selected entry of the Demo view's list.
    pub demo_entry: usize,
    /// Number of steps that the shown step of the demo is before the current one.
    pub demo_back: usize,
    /// Whether the list of demos is shown in place of the demo that is over.
    pub demo_list: bool,
    /// Lines by which the demo's text is scrolled; up if negative.
    pub demo_scroll: i32,
    /// Message in the status line.
    pub toast: Option<Toast>,
    /// The terminal.
    pub term: Term,
    /// Areas and sizes of the last drawing.
    pub hits: Hits,
}
