//! Numbers of deduplicated data of a snapshot.

/// The number of a text in a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub(crate) u32);

/// The number of a frame in a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(crate) u32);

/// The number of a call stack in a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub(crate) u32);

impl StackId {
    /// The empty call stack: nothing was recorded.
    pub const EMPTY: StackId = StackId(0);
}

/// The number of a value in a [`Tables`](crate::Tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

macro_rules! index {
    ($($id:ident)*) => {
        $(impl $id {
            /// Returns its index in the table of its kind.
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }
        })*
    };
}

index!(TextId FrameId StackId ValueId);
