//! The steps of the model in plain words, for counterexamples.
//!
//! Invariants: every step has its own words. Read next: `../report.rs`.

use std::fmt;

use super::state::Change;
use super::steps::Step;

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "change {} of machine {}", self.number, self.machine)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Ask { machine } => write!(out, "machine {machine} asks for a change"),
            Step::Make { change } => write!(out, "the owner makes {change}"),
            Step::Answer { change } => write!(out, "the owner answers {change}"),
            Step::Look { machine } => write!(out, "machine {machine} looks"),
            Step::CommitBegins => write!(out, "a commit begins"),
            Step::CommitEnds => write!(out, "the commit is done"),
            Step::Hear { machine } => write!(out, "machine {machine} hears what is committed"),
            Step::Cut { machine } => write!(out, "answers to machine {machine} are lost"),
            Step::Crash => write!(out, "the owner is lost, and there is another one"),
            Step::Redo { machine } => write!(out, "machine {machine} tells what it keeps"),
            Step::Lose { machine } => write!(out, "machine {machine} is lost"),
        }
    }
}
