//! A libcuda.so for tests: the driver calls gpumem uses, in host memory.
