//! Integration tests of this crate: one executable, a module for each subject.

mod ahead;
mod kept;
mod slow;
mod unwaited;
