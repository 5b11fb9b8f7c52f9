//! Segments over devices: slot placement, k+m rows, degraded reads.
