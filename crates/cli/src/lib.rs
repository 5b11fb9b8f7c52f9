//! The commands of `stere`: arguments read, the daemon or the pool asked, the answer printed. One module a noun.
//!
//! `arguments.rs` is what can be typed. A command asks the daemon if the pool is mounted; otherwise it opens the pool itself
//! where that is possible. What commands print is an interface. Read next: `arguments.rs`, `status.rs`.

pub mod arguments;
mod attach;
pub mod backup;
pub mod capabilities;
mod change;
pub mod check;
pub mod class;
pub mod create;
pub mod demo;
pub mod device;
pub mod digest;
pub mod find;
pub mod flush;
pub mod free;
mod holders;
pub mod host;
pub mod io;
mod json;
pub mod keys;
pub mod layout;
pub mod lose;
pub mod man;
mod move_log;
pub mod node;
pub mod plugins;
pub mod policy;
pub mod pool;
mod progress;
pub mod quota;
pub mod reconcile;
mod report;
pub mod rescue;
mod resize;
mod rules;
pub mod scrub;
mod secret;
pub mod stack;
pub mod status;
pub mod terminal;
pub mod tier;
pub mod umount;
pub mod usage;
pub mod versions;
pub mod watch;
