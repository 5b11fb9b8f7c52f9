//! Directories, inodes, links, extended attributes: POSIX over the store.
