//! The steps of the model in plain words, for counterexamples.
//!
//! Invariants: every step has its own words. Read next: `../report.rs`.

use std::fmt;

use super::steps::Step;

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Write { machine } => write!(out, "a program of machine {machine} writes"),
            Step::Send { machine } => write!(out, "machine {machine} sends what it has gathered"),
            Step::Look { machine } => write!(out, "machine {machine} looks at the file"),
            Step::Find { machine } => write!(out, "machine {machine} looks the file up by its name"),
            Step::Open { machine } => write!(out, "machine {machine} opens the file"),
            Step::Close { machine } => write!(out, "machine {machine} closes the file"),
            Step::Take { machine } => write!(out, "the owner takes a message of machine {machine}"),
            Step::Answer { at } => write!(out, "the owner answers what it did, number {at} of these"),
            Step::Hear { machine } => write!(out, "machine {machine} takes a message of the owner"),
            Step::Cut { machine } => write!(out, "machine {machine} is cut off"),
            Step::Back { machine } => write!(out, "machine {machine} is back"),
            Step::GiveUp { machine } => write!(out, "the owner gives machine {machine} up"),
            Step::Crash => write!(out, "the owner is lost, and there is another one"),
            Step::Tell { machine } => write!(out, "machine {machine} tells what it has"),
        }
    }
}
