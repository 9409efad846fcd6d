//! Tests of the whole heap.

pub(super) mod check;
pub(super) mod direct;
pub(super) mod faults;
pub(super) mod judge;
pub(super) mod lines;
pub(super) mod meanwhile;
pub(super) mod model;
pub(super) mod naive;
pub(super) mod pools;
pub(super) mod program;
pub(super) mod published;
pub(super) mod streams;
pub(super) mod wish;
