//! The line of a program that allocated a block, from the call stack that PyTorch recorded.

use std::collections::HashMap;

use gpumem_snapshot::{Frame, Snapshot, StackId};
use gpumem_text::clean;

/// Most frames of a call stack that are looked at.
const MAX_FRAMES: usize = 512;

/// The lines of one snapshot.
pub(crate) struct Lines<'a> {
    snapshot: &'a Snapshot,
    /// The folder of PyTorch's own Python files.
    torch: &'a str,
    known: HashMap<StackId, Option<String>>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, torch: &'a str) -> Lines<'a> {
        Lines {
            snapshot,
            torch,
            known: HashMap::new(),
        }
    }

    /// Returns the innermost line of a call stack that is the program's own, such as `train.py:41 in forward`. `None` if it has none:
    /// nothing was recorded, or the request was made in C++.
    pub(crate) fn of(&mut self, stack: StackId) -> Option<&str> {
        let (snapshot, torch) = (self.snapshot, self.torch);
        let line = self.known.entry(stack).or_insert_with(|| {
            let frames = snapshot.tables.get_stack(stack).iter().take(MAX_FRAMES);
            let mut frames = frames.filter_map(|frame| snapshot.tables.get_frame(*frame));
            frames.find_map(|frame| own_line(snapshot, torch, frame))
        });
        line.as_deref()
    }
}

fn own_line(snapshot: &Snapshot, torch: &str, frame: &Frame) -> Option<String> {
    let file = snapshot.tables.get_text(frame.filename);
    let of_torch = !torch.is_empty() && file.strip_prefix(torch).is_some_and(|rest| rest.starts_with('/'));
    // Frames of C++ have its source files, and cells of notebooks have names in angle brackets or files of their own.
    let is_python = file.ends_with(".py") || file.starts_with("<ipython") || file == "<stdin>" || file == "<string>";
    if of_torch || !is_python || frame.line <= 0 {
        return None;
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let function = snapshot.tables.get_text(frame.name);
    Some(clean(&format!("{name}:{} in {function}", frame.line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_the_innermost_of_the_program() {
        let mut snapshot = Snapshot::default();
        let mut stack = |frames: &[(&str, &str, i64)]| {
            let tables = &mut snapshot.tables;
            let ids: Vec<_> = frames
                .iter()
                .map(|(name, file, line)| {
                    let (name, filename) = (tables.text(name), tables.text(file));
                    tables.frame(Frame {
                        name,
                        filename,
                        line: *line,
                        extra: None,
                    })
                })
                .collect();
            tables.stack(&ids)
        };
        let cpp = ("c10::malloc", "CUDACachingAllocator.cpp", 0);
        let inner = ("forward", "/site/torch/nn/linear.py", 9);
        let deep = stack(&[
            cpp,
            inner,
            ("step", "/home/ana/train.py", 41),
            ("main", "/home/ana/main.py", 7),
        ]);
        let beside = stack(&[("f", "/site/torchvision/a.py", 3)]);
        let only_torch = stack(&[cpp, inner, ("g", "??", 4), ("h", "/a.py", -1)]);
        let cell = stack(&[("<module>", "<ipython-input-3-5c0>", 2)]);
        let hostile = stack(&[("a\u{1b}[31m", "/x/\u{202e}y.py", 1)]);
        let mut lines = Lines::new(&snapshot, "/site/torch");
        assert_eq!(lines.of(deep), Some("train.py:41 in step"));
        assert_eq!(
            lines.of(beside),
            Some("a.py:3 in f"),
            "only the folder itself is PyTorch's"
        );
        assert_eq!(lines.of(only_torch), None);
        assert_eq!(lines.of(cell), Some("<ipython-input-3-5c0>:2 in <module>"));
        assert_eq!(lines.of(StackId::EMPTY), None);
        let shown = lines.of(hostile).unwrap_or_default();
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    }
}
