//! What commands and daemons say to each other: requests, answers and reports as plain data, and the sockets they travel on.
//!
//! `message.rs` is the protocol of the control socket, for those who may change a pool; `public.rs` is the one for everybody who
//! may use a mount. The names in these types are the interface to scripts (`--json`), so they stay. Nothing here knows how a
//! request is carried out. Read next: `message.rs`, then the crates `cli` (which asks) and `daemon` (which answers).

pub mod backup;
pub mod change;
pub mod class;
pub mod cleaning;
pub mod connection;
pub mod digest;
pub mod far_media;
pub mod find;
pub mod io;
pub mod junction;
pub mod keys;
pub mod layout;
pub mod locate;
pub mod lose;
pub mod message;
pub mod plugins;
pub mod public;
pub mod quota;
pub mod reconcile;
pub mod rules;
pub mod scrub;
pub mod secret;
pub mod spec;
pub mod status;
pub mod tier;
pub mod usage;
pub mod watch;
