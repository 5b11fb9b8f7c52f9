//! The FUSE front end: requests of the kernel answered by naming.
