//! Tertiary volumes on object stores.
//!
//! An S3 bucket, or a prefix in one, as a `Volume`: `s3://bucket/prefix,endpoint=URL`. Requests are signed by `rusty-s3`, which does no
//! I/O, and sent by `ureq`, which blocks: so nothing here needs threads or a runtime of its own, and whoever calls may wait. Only PUT,
//! ranged GET, HEAD, DELETE and LIST are used: conditional writes are ignored by some servers, so nothing relies on them.
//!
//! Invariant: whatever a server answers that is not plainly "there is no such object" counts as *away*: later is another try.
//! Read next: `place.rs`, `s3.rs`, the store's `tertiary.rs`.

mod place;
mod s3;

pub use place::{Place, PlaceError};
pub use s3::S3Volume;
