//! The steps of the model in plain words, for counterexamples.
//!
//! Invariants: every step has its own words. Read next: `../report.rs`.

use std::fmt;

use super::steps::Step;

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Ask { machine } => write!(out, "machine {machine} asks"),
            Step::Change { machine } => write!(out, "machine {machine} asks for a change"),
            Step::Reach { machine } => write!(out, "a message of machine {machine} reaches the owner"),
            Step::Look { machine } => write!(out, "the owner looks what to answer machine {machine}"),
            Step::Answer { machine } => write!(out, "the owner answers machine {machine}"),
            Step::Make { machine } => write!(out, "the owner makes the change of machine {machine}"),
            Step::Note { machine } => write!(out, "the owner notes that the change of machine {machine} is made"),
            Step::Told { machine } => write!(out, "the owner tells machine {machine} that its change is made"),
            Step::Hear { machine } => write!(out, "machine {machine} hears the owner"),
            Step::Cut { machine } => write!(out, "machine {machine} is cut off"),
            Step::LeaseOver { machine } => write!(out, "the lease of machine {machine} is over"),
            Step::GiveUp { machine } => write!(out, "the owner gives machine {machine} up"),
        }
    }
}
