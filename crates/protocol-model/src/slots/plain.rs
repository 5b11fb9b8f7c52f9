//! The steps of the model in plain words, for counterexamples.
//!
//! Invariants: every step has its own words. Read next: `../report.rs`.

use std::fmt;

use super::state::Write;
use super::steps::Step;

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::ReadToEnd { owner } => write!(out, "owner {owner} wants to take over and reads the log to its end"),
            Step::PutEpoch { owner } => write!(out, "owner {owner} puts its epoch record"),
            Step::PutGrant { owner, slot } => write!(out, "owner {owner} puts a grant of slot {slot}"),
            Step::SendWrite { owner, slot } => write!(out, "owner {owner} sends new bytes for slot {slot}"),
            Step::Arrive { write: Write { epoch, node, slot, .. } } => {
                write!(out, "a write of epoch {epoch} into slot {slot} reaches node {node}")
            }
            Step::Flush { owner } => write!(out, "owner {owner} flushes the nodes that have answered"),
            Step::PutCommit { owner } => write!(out, "owner {owner} puts its commit record"),
            Step::LeaseRenewed { owner } => write!(out, "owner {owner} knows the log's end and renews its lease"),
            Step::LeaseExpired { owner } => write!(out, "the lease of owner {owner} expires"),
            Step::TimeoutPassed { epoch } => write!(out, "lease and time-out of epoch {epoch} have passed"),
            Step::Crash { owner } => write!(out, "the process of owner {owner} crashes and starts again"),
            Step::NodeCrash { node } => write!(out, "node {node} crashes and loses its cache"),
        }
    }
}
