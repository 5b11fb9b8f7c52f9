//! Integration tests of this crate: one executable, a module for each subject.

mod queue;
mod queue_histories;
