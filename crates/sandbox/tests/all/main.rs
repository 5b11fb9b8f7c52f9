//! Integration tests of this crate: one executable, a module for each subject.

#[path = "../../../naming/tests/support/mod.rs"]
mod naming_support;

mod examples;
mod files;
mod following;
