//! Inodes, names and what decides how files are stored: the bottom room of the file system.
//!
//! [`inode::Core`] is what all features share. Here too: walks and paths, POSIX ACLs and extended attributes on media, keys,
//! plugins, rules and classes. Deliberately absent: what calls do (stere-naming), features of files (stere-features).
//! Read next: `inode`, `names`, `walk`; `namespace` puts it together.

pub mod access_times;
pub mod acl;
pub mod attributes;
pub mod call;
pub mod classes;
pub mod encryption;
pub mod error;
pub mod flagged;
pub mod handles;
pub mod inode;
pub mod junctions;
pub mod lost;
pub mod names;
pub mod namespace;
pub mod places;
pub mod plugins;
pub mod recalls;
pub mod reconcile_queue;
pub mod rules;
pub mod tiers;
pub mod visibility;
pub mod walk;
pub mod words;
pub mod xattr;
