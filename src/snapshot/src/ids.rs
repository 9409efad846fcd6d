//! The numbers of what a snapshot says many times.

/// A text of a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub(crate) u32);

/// A frame of a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(crate) u32);

/// A call stack of a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub(crate) u32);

impl StackId {
    /// No frames: nothing was recorded.
    pub const EMPTY: StackId = StackId(0);
}

/// A value of a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

macro_rules! index {
    ($($id:ident)*) => {
        $(impl $id {
            /// Its place among its kind.
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }
        })*
    };
}

index!(TextId FrameId StackId ValueId);
