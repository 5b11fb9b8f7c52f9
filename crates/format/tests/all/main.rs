//! Integration tests of this crate: one executable, a module for each subject.

#[path = "../samples/mod.rs"]
mod samples;

mod decoders;
mod golden;
mod pages;
