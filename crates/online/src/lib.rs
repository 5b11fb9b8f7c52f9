//! A pool that is open for use: its devices and media as they are now, changes of them, repair, and the state that is reported.
//!
//! The daemon of a mount has one, and so has a command that works on an unmounted pool. What devices are *for* stands in the
//! store's device table; what is kept here is where they are. Read next: `running.rs`, `change.rs`, `report.rs`.

mod agreement;
pub mod change;
pub mod classes;
mod cleaning;
pub mod elsewhere;
mod evacuate;
pub mod far_media;
mod forecast;
pub mod gate;
mod grow;
pub mod hosts;
pub mod lose;
pub mod media;
pub mod media_report;
mod mending;
pub mod new_device;
pub mod open;
pub mod outcome;
pub mod paths;
pub mod rebuild;
mod remember;
pub mod report;
pub mod running;
mod scrub;
mod scrubbing;
pub mod shrink;
mod slow;
mod spares;
mod tertiary;
