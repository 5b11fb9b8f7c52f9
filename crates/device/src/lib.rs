//! Devices: aligned reads, queued writes, flushes; real files and block devices.
