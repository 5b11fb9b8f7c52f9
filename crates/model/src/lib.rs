//! A plain POSIX-like file system in memory: the reference that stere is compared with.
