//! What a worker says of errors: the same one once, not in every round.
//!
//! Read next: `table.rs`, which says how each job complains.

use crate::table::Said;

/// What is to be written to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// An error that lasts, told once.
    Error(String),
    /// What could not be done this time, and why.
    Warning { what: &'static str, why: String },
}

/// The last complaint of a worker.
#[derive(Clone, Debug, Default)]
pub struct Complaints {
    last: String,
}

impl Complaints {
    /// The complaint about an error, unless it was the last one already.
    pub fn about(&mut self, said: Said, why: &impl std::fmt::Display) -> Option<Complaint> {
        let why = why.to_string();
        match said {
            Said::EachTime(what) => Some(Complaint::Warning { what, why }),
            Said::Once(_) if self.last == why => None,
            Said::Once(whose) => {
                let complaint = Complaint::Error(format!("{whose}: {why}"));
                self.last = why;
                Some(complaint)
            }
        }
    }
}
