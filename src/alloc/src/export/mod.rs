//! The state and the history as a snapshot in PyTorch's format, for its viewers and ours.

mod file;
mod on_oom;
mod trace;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use gpumem_channel::{BlockState as State, PoolId, SegmentKind, StringId};
use gpumem_snapshot::{Block, BlockState, Frame, Segment, SegmentType, Snapshot, StackId, Tables, TextId, Value};
use gpumem_text::clean;

use crate::config::SegmentMode;
use crate::error::Error;
use crate::heap::{Picture, PicturedBlock, PicturedSegment};
use crate::stack::{Stack, StackFrame, Symbols};
pub(crate) use file::{Readers, write};
pub(crate) use on_oom::OnOom;

/// Devices of one machine, whatever number a simulated one has.
const MOST_DEVICES: usize = 1024;

/// Why a snapshot could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is none.
    #[error(transparent)]
    Heap(#[from] Error),
    /// The file could not be written. Nothing is left of it, and what had this name before is as it was.
    #[error("writing the snapshot {}: {source}", clean(&path.display().to_string()))]
    File {
        /// The file that was to be written.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

/// Names of functions for call stacks, and of heaps for tags, as texts of one snapshot.
struct Wording<'a> {
    tables: &'a mut Tables,
    names: &'a HashMap<StringId, String>,
    symbols: Option<Symbols>,
    known: HashMap<(Stack, StringId), StackId>,
}

impl Wording<'_> {
    /// A call stack; where none was recorded but a tag, the tag stands in for it.
    fn stack(&mut self, stack: Stack, tag: StringId) -> StackId {
        let tag = if stack == Stack::NONE { tag } else { StringId(0) };
        if let Some(known) = self.known.get(&(stack, tag)) {
            return *known;
        }
        let mut frames = match &mut self.symbols {
            Some(symbols) if stack != Stack::NONE && stack != Stack::OTHER => symbols.frames(stack).to_vec(),
            _ => {
                let addresses = stack.addresses();
                let frame = |address: &u64| StackFrame::bare(format!("{address:#x}"));
                addresses.iter().map(frame).collect()
            }
        };
        if stack == Stack::OTHER {
            frames.push(StackFrame::bare(stack.to_string()));
        }
        if let Some(name) = self.names.get(&tag).filter(|name| !name.is_empty()) {
            frames.push(StackFrame::bare(format!("tag: {name}")));
        }
        let frames = frames.iter().map(|frame| {
            let frame = Frame {
                name: self.tables.text(&frame.name),
                filename: self.tables.text(frame.file.as_deref().unwrap_or("")),
                line: i64::from(frame.line.unwrap_or(0)),
                extra: None,
            };
            self.tables.frame(frame)
        });
        let frames: Vec<_> = frames.collect();
        let id = self.tables.stack(&frames);
        self.known.insert((stack, tag), id);
        id
    }

    fn tag(&mut self, tag: StringId) -> Option<TextId> {
        let name = self.names.get(&tag).filter(|name| !name.is_empty())?;
        Some(self.tables.text(name))
    }
}

/// A picture as a snapshot. `symbols`: whether addresses are given names.
pub(crate) fn snapshot(picture: &Picture, symbols: bool) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut wording = Wording {
        tables: &mut snapshot.tables,
        names: &picture.names,
        symbols: symbols.then(Symbols::new),
        known: HashMap::new(),
    };
    let device = i32::try_from(picture.ordinal).unwrap_or(0);
    let makers = trace::makers(picture);
    let segments = picture.segments.iter();
    snapshot.segments = segments.map(|s| segment(s, device, &makers, &mut wording)).collect();
    // One list for each device up to ours: a viewer counts them. No machine has more than so many.
    snapshot.device_traces = vec![Vec::new(); (picture.ordinal as usize).min(MOST_DEVICES)];
    let (entries, annotations) = trace::told(picture, device, &mut wording);
    snapshot.device_traces.push(entries);
    snapshot.external_annotations = annotations;
    drop(wording);
    snapshot.allocator_settings = Some(settings(picture, &mut snapshot.tables));
    snapshot
}

fn segment(
    segment: &PicturedSegment,
    device: i32,
    makers: &HashMap<u64, (Stack, StringId)>,
    wording: &mut Wording<'_>,
) -> Segment {
    let address = segment.blocks.first().map_or(0, |block| block.addr);
    let sum = |of: fn(&PicturedBlock) -> u64, when: fn(State) -> bool| {
        let counted = segment.blocks.iter().filter(|block| when(block.state));
        counted.map(of).sum()
    };
    let (stack, tag) = makers.get(&address).copied().unwrap_or_default();
    let (name, id) = &segment.owner;
    let pool_name = (!name.is_empty()).then(|| Value::Text(wording.tables.text(name)));
    Segment {
        device,
        address,
        total_size: sum(|block| block.size, |_| true),
        allocated_size: sum(|block| block.size, |state| state == State::Allocated),
        active_size: sum(|block| block.size, |state| state != State::Free),
        requested_size: sum(|block| block.requested, |state| state != State::Free),
        stream: stream(segment.stream),
        segment_type: match segment.pool {
            PoolId::SMALL => SegmentType::Small,
            _ => SegmentType::Large,
        },
        segment_pool_id: (id.0, id.1),
        is_expandable: segment.kind == SegmentKind::Virtual,
        frames: wording.stack(stack, tag),
        blocks: segment
            .blocks
            .iter()
            .map(|b| block(b, segment.stream, wording))
            .collect(),
        extra: pool_name.map(|name| wording.tables.dict([("pool_name", name)])),
    }
}

/// What joins the pieces of a stitched block, for who reads more than PyTorch's viewers do ([`Snapshot::requests`]): the first one says what was
/// asked for as a whole, and the others where that is.
fn piece(addr: u64, first: u64, requested: u64) -> (&'static str, Value) {
    let number = |n: u64| i64::try_from(n).map_or(Value::Unsigned(n), Value::Int);
    match addr == first {
        true => ("whole", number(requested)),
        false => ("part_of", number(first)),
    }
}

/// A block of a segment that was made for a stream. PyTorch's blocks are all of that; ours say which other one they are of.
fn block(block: &PicturedBlock, made_for: u64, wording: &mut Wording<'_>) -> Block {
    let tag = wording.tag(block.tag).map(|tag| ("tag", Value::Text(tag)));
    let elsewhere = block.state != State::Free && block.stream != made_for;
    let elsewhere = elsewhere.then(|| ("stream", Value::Int(stream(block.stream))));
    let piece = block
        .piece_of
        .map(|(first, requested)| piece(block.addr, first, requested));
    let extra: Vec<_> = tag.into_iter().chain(elsewhere).chain(piece).collect();
    Block {
        address: block.addr,
        size: block.size,
        requested_size: block.requested,
        state: match block.state {
            State::Allocated => BlockState::ActiveAllocated,
            State::PendingFree => BlockState::ActivePendingFree,
            _ => BlockState::Inactive,
        },
        frames: wording.stack(block.stack, block.tag),
        extra: (!extra.is_empty()).then(|| wording.tables.dict(extra)),
    }
}

/// A stream as PyTorch writes it. What is no stream's is shown on the default one.
fn stream(stream: u64) -> i64 {
    match stream {
        gpumem_channel::NO_STREAM => 0,
        stream => stream.cast_signed(),
    }
}

/// PyTorch's names where they mean the same, and ours.
fn settings(picture: &Picture, tables: &mut Tables) -> gpumem_snapshot::ValueId {
    let (gpumem, mode) = (
        Value::Text(tables.text("gpumem")),
        Value::Text(tables.text(picture.mode.name())),
    );
    let number = |n: Option<u64>| n.map_or(Value::None, |n| i64::try_from(n).map_or(Value::Unsigned(n), Value::Int));
    let past = picture.past.as_ref();
    let pairs = [
        ("expandable_segments", Value::Bool(picture.mode != SegmentMode::Plain)),
        ("allocator", gpumem),
        ("segments", mode),
        ("budget", number(picture.budget)),
        ("history", Value::Bool(past.is_some())),
        ("history_events_dropped", number(past.map(|past| past.dropped))),
    ];
    tables.dict(pairs)
}
