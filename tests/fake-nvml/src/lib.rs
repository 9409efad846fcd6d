//! A libnvidia-ml.so for tests: several GPUs, lost GPUs, failing initialisation.
