//! Answers of the daemon, a module for each noun. Each takes an order as it came and works on the file system and the open pool.

pub mod backup;
pub mod capabilities;
pub mod class;
pub mod describe;
pub mod digest;
pub mod find;
pub mod io;
pub mod junctions;
pub mod keys;
pub mod layout;
pub mod plugins;
pub mod quota;
pub mod reconcile;
pub mod rules;
pub mod tier;
pub mod usage;
pub mod watch;
