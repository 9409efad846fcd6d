//! Whole-program tests of gpumem.
