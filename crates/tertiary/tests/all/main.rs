//! Integration tests of this crate: one executable, a module for each subject.

#[path = "../support/behaviour.rs"]
mod behaviour;
#[path = "../../../stere/tests/support/remote.rs"]
mod remote_servers;

mod remote;
mod servers;
