//! The background jobs of a mount: which there are, when each is due, and what its steps do.
//!
//! `table.rs` says of each job which worker drives it, how often, with what budget, how it rests, and what an error
//! makes it do. `scheduler.rs` decides by that table what a worker runs next; `steps.rs` runs it on the stack.
//! Nothing here reads a clock, starts a thread or draws a random number: the daemon drives one scheduler a thread by
//! its clock, the simulator drives the same ones in virtual time. Read next: `table.rs`.

mod complaints;
mod idle;
mod scheduler;
mod steps;
mod table;

pub use complaints::{Complaint, Complaints};
pub use idle::{Idle, Moment};
pub use scheduler::{Budget, Left, Next, Progress, Scheduler, Settings};
pub use steps::{Error, MachineJob, Ran, Report, Steps, World};
pub use table::{Job, STEPS_PER_COMMIT, Worker};
