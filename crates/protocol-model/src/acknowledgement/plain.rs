//! The steps of the model in plain words, for counterexamples.
//!
//! Invariants: every step has its own words. Read next: `../report.rs`.

use std::fmt;

use super::state::{Put, Record, Requests};
use super::steps::Step;

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::ReadToEnd { owner } => write!(out, "owner {owner} wants to take over and reads the log to its end"),
            Step::PutEpoch { owner } => write!(out, "owner {owner} puts its epoch record"),
            Step::SilencePassed { owner } => write!(out, "owner {owner} has waited for older leases, and serves"),
            Step::PutCommit { owner, requests } => write!(out, "owner {owner} puts a commit of {}", names(requests)),
            Step::Arrive { put } => write!(out, "{put} reaches the log"),
            Step::Answer { owner } => write!(out, "owner {owner} has the answer to its put"),
            Step::AnswerLost { owner } => write!(out, "owner {owner} waits no longer for an answer and reads back"),
            Step::Acknowledge { owner, request } => write!(out, "owner {owner} acknowledges {}", names(request)),
            Step::LeaseRenewed { owner } => write!(out, "owner {owner} knows the log's end and renews its lease"),
            Step::LeaseExpired { owner } => write!(out, "the lease of owner {owner} expires"),
            Step::Read { owner } => write!(out, "owner {owner} answers a read"),
            Step::Trim { owner } => write!(out, "owner {owner} trims the log"),
            Step::Crash { owner } => write!(out, "the process of owner {owner} crashes and starts again"),
        }
    }
}

impl fmt::Display for Put {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        match self.record {
            Record::Epoch { epoch } => write!(out, "record {number}, which begins epoch {epoch},"),
            Record::Commit { epoch, requests } => {
                write!(out, "record {number}, epoch {epoch}'s commit of {},", names(requests))
            }
        }
    }
}

fn names(requests: Requests) -> String {
    let each = (0..8u8).filter(|bit| requests & (1 << bit) != 0);
    let names: Vec<String> =
        each.map(|bit| format!("request {} of client {}", bit % 2 + 1, ["A", "B"][usize::from(bit / 2) % 2])).collect();
    names.join(" and ")
}
