//! The same random operations in two directories of two file systems; any difference a program could see is reported.
//!
//! After every step the results (errno, bytes, lists) and the attributes of all names involved are compared, and every
//! few hundred steps both trees as a whole. Not compared: inode and device numbers, blocks, sizes of directories, and
//! times beyond this: explicit times lie before the year 2002, so "kept", "set" and "now" can be told apart exactly.
//! Read next: `operation.rs` (what is done), `side.rs` (how), `observe.rs` (what is compared).

mod attributes;
mod observe;
mod operation;
mod side;
mod system;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::error::BenchError;
use crate::pattern::Random;
use observe::Observation;
use operation::Operation;
use side::Side;

const STEPS_PER_FULL_CHECK: u64 = 500;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub operations: u64,
    /// After this step one byte mode bit is changed in the second directory: the run must then fail.
    pub planted_at: Option<u64>,
}

/// Runs the plan; the error names seed, step and operation of the first difference.
pub fn run(first: &Path, second: &Path, plan: Plan) -> Result<(), BenchError> {
    let mut sides = [Side::new(first)?, Side::new(second)?];
    let mut random = Random::new(plan.seed);
    for step in 1..=plan.operations {
        let operation = Operation::generate(&mut random);
        let [left, right] = sides.each_mut().map(|side| perform(side, &operation));
        if left != right {
            return Err(difference(&sides, plan.seed, step, &operation, &left, &right));
        }
        if plan.planted_at == Some(step) {
            sides[1].plant_difference()?;
        }
        if step % STEPS_PER_FULL_CHECK == 0 || step == plan.operations {
            compare_trees(&sides, plan.seed, step)?;
        }
    }
    sides.into_iter().try_for_each(Side::remove)
}

/// What a step gave: its outcome, and what the names it touched look like afterwards.
type Seen = (side::Outcome, Vec<Observation>);

fn perform(side: &mut Side, operation: &Operation) -> Seen {
    let outcome = side.apply(operation);
    let observations = operation.names().iter().map(|name| observe::name(side.root(), name)).collect();
    (outcome, observations)
}

fn difference(sides: &[Side; 2], seed: u64, step: u64, operation: &Operation, left: &Seen, right: &Seen) -> BenchError {
    BenchError::Difference {
        seed,
        step,
        what: format!(
            "{operation:?}\n  in {}: {left:?}\n  in {}: {right:?}",
            sides[0].root().display(),
            sides[1].root().display()
        ),
    }
}

fn compare_trees(sides: &[Side; 2], seed: u64, step: u64) -> Result<(), BenchError> {
    let [left, right] = [observe::tree(sides[0].root())?, observe::tree(sides[1].root())?];
    let names = left.keys().chain(right.keys());
    match names.into_iter().find(|name| left.get(*name) != right.get(*name)) {
        None => Ok(()),
        Some(name) => Err(BenchError::Difference {
            seed,
            step,
            what: format!("whole trees: {name:?}\n  left:  {:?}\n  right: {:?}", left.get(name), right.get(name)),
        }),
    }
}
