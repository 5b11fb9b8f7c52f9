//! The Linux FUSE protocol: kernel ABI, one dispatcher, two transports (io_uring and /dev/fuse).
