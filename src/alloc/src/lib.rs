//! A caching allocator for GPU memory that publishes its state.
