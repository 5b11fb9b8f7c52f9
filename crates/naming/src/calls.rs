//! The calls of the file system: each builds an `Op` and sends its core down the pipeline.

mod attributes;
mod contents;
mod direct_writes;
mod names;

pub use direct_writes::FarWrites;
pub use names::{move_name, remove_name};
