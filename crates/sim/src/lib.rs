//! The simulator: the real stack on simulated devices.

pub mod content;
pub mod device;
pub mod fault;
pub mod medium;
pub mod model;
pub mod random;
