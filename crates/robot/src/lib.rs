//! Tape libraries: changers, drives and cartridges, used as a medium.
//!
//! At the edge stands one trait, `Transport`, that executes a SCSI command block: over SG_IO (`sg.rs`), over iSCSI from user space
//! (`iscsi.rs`), or in a simulated library (`simulated.rs`) with faults and with times. On it stand the commands of changers
//! (`changer.rs`) and of tape drives (`drive.rs`), on these what is done with one cartridge in a drive (`cartridge.rs`), and on that the
//! library as a whole (`library.rs`): what is where, which cartridge goes into which drive next, and in which order it is read.
//!
//! Invariants: nothing on a cartridge is written over, but for one on which nothing is alive, and that from its beginning
//! (`library/again.rs`); nothing at all is written to one that holds something foreign; every byte handed out was proven by its block's
//! checksum and says which object it is; replies of devices are hostile input.
//!
//! Absent: threads (who waits for the library also works for it), and any idea of segments.
//! Read next: `transport.rs`, `library.rs`, `docs/design/robot.md`, `docs/format/cartridge.md`.

mod cartridge;
mod catalogue;
mod changer;
mod drive;
mod element;
mod error;
mod iscsi;
mod library;
mod place;
mod schedule;
mod sense;
mod sg;
pub mod simulated;
mod transport;
mod volume;

pub use cartridge::{Cartridge, Found, Written};
pub use changer::Changer;
pub use drive::{Drive, Read, Space, Spaced};
pub use element::{Element, ElementKind, Elements};
pub use error::RobotError;
pub use iscsi::IscsiTransport;
pub use library::{Clock, Library, LibraryOptions, LibraryParts};
pub use place::{Place, PlaceError, is_place};
pub use schedule::Request;
pub use sense::{Sense, SenseKey};
pub use sg::SgTransport;
pub use transport::{Data, Reply, Transport};

/// Decodes any bytes as every kind of reply; panics only if a decoder is wrong. For fuzzers.
pub fn fuzz_replies(bytes: &[u8]) {
    let _ = Sense::decode(bytes);
    let _ = element::decode_status(bytes);
    let _ = element::decode_assignment(bytes);
    let _ = drive::decode_block_limits(bytes);
    let _ = drive::decode_short_position(bytes);
    let _ = drive::decode_long_position(bytes);
}
