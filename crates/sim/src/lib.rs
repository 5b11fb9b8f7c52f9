//! The simulator: the real stack on simulated devices, a reference model as oracle.
