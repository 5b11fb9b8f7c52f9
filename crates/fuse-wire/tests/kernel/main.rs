//! Tests against the running kernel: real mounts, over both transports.
//!
//! They need root and /dev/fuse (and loop devices, fusermount3) and say loudly what they had to skip.

mod mount;
mod operations;
mod process;
mod support;
