//! Runs the checker on a model, and says in plain lines what it found.
//!
//! Invariants: with one thread the checker walks in breadth, so a way of fewer steps that it does not find is not there. Read next:
//! `bug.rs`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use crate::acknowledgement::Acknowledgement;
use crate::bug::{Bug, Part};
use crate::early::Early;
use crate::gather::Gather;
use crate::leases::Leases;
use crate::slots::Slots;

/// How a property was violated, step by step.
#[derive(Clone, Debug)]
pub struct Counterexample {
    pub property: &'static str,
    pub steps: Vec<String>,
}

/// What the checker found in one model.
#[derive(Clone, Debug)]
pub struct Report {
    pub part: Part,
    /// Different states that were reached.
    pub states: usize,
    /// Steps that were followed.
    pub steps: usize,
    /// How many steps the state that is farthest away takes.
    pub depth: usize,
    pub time: Duration,
    /// A property that must hold always and does not.
    pub counterexample: Option<Counterexample>,
    /// Properties that must hold somewhere and hold nowhere.
    pub missing: Vec<&'static str>,
}

/// Explores a model until all states are seen or a property is violated. A counterexample is one of the shortest.
pub fn check(part: Part, bug: Option<Bug>) -> Report {
    match part {
        Part::Acknowledgement => shortest(part, Acknowledgement::new(bug)),
        Part::Slots => shortest(part, Slots::new(bug)),
        Part::Leases => shortest(part, Leases::new(bug)),
        Part::Early => shortest(part, Early::new(bug)),
        Part::Gather => shortest(part, Gather::new(bug)),
    }
}

/// The checker goes on for a while after the first counterexample and keeps the last, so it is asked again for a shorter.
fn shortest<M>(part: Part, model: M) -> Report
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Hash + Clone + fmt::Debug + PartialEq + Send + Sync + 'static,
    M::Action: fmt::Display + fmt::Debug + Clone + PartialEq + Send + Sync + 'static,
{
    let mut report = explore(part, model.clone(), None);
    while let Some(counterexample) = &report.counterexample {
        let shorter = explore(part, model.clone(), Some(counterexample.steps.len()));
        if shorter.counterexample.is_none() {
            break;
        }
        report = shorter;
    }
    report
}

/// With `below`, only ways of fewer steps.
fn explore<M>(part: Part, model: M, below: Option<usize>) -> Report
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Hash + Clone + fmt::Debug + PartialEq + Send + Sync + 'static,
    M::Action: fmt::Display + fmt::Debug + Clone + PartialEq + Send + Sync + 'static,
{
    let start = Instant::now();
    let properties = model.properties();
    let mut builder = model.checker().finish_when(HasDiscoveries::AnyFailures);
    if let Some(steps) = below {
        // The checker counts states, and does not look at those of this depth.
        builder = builder.target_max_depth(steps + 1);
    }
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries();
    let is_invariant = |property: &&Property<M>| property.expectation == Expectation::Always;
    let violated = properties.iter().filter(is_invariant).find(|property| found.contains_key(property.name));
    let counterexample = violated.map(|property| {
        let steps = found[property.name].clone().into_actions();
        Counterexample { property: property.name, steps: steps.iter().map(|step| step.to_string()).collect() }
    });
    let wanted = properties.iter().filter(|property| property.expectation == Expectation::Sometimes);
    let missing = wanted.map(|property| property.name).filter(|name| !found.contains_key(name)).collect();
    Report {
        part,
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth() - 1,
        time: start.elapsed(),
        counterexample,
        missing,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let (part, states, steps, depth) = (self.part, self.states, self.steps, self.depth);
        writeln!(out, "{part:?}: {states} states, {steps} steps, depth {depth}, {seconds:.1} s")?;
        match &self.counterexample {
            Some(Counterexample { property, steps }) => {
                writeln!(out, "violated after {} steps: {property}", steps.len())?;
                steps.iter().enumerate().try_for_each(|(index, step)| writeln!(out, "{:>3}. {step}", index + 1))
            }
            None => self.missing.iter().try_for_each(|name| writeln!(out, "never happened: {name}")),
        }
    }
}
