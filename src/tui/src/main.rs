//! A terminal dashboard that shows where a GPU's memory really is.
fn main() {}
