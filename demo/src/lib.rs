//! Workloads that create and fix GPU memory problems.
