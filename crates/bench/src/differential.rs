//! The same random operations in two directories of two file systems; any difference a program could see is reported.
//!
//! After every step the results (errno, bytes, lists) and the attributes of all names involved are compared, and every
//! few hundred steps (`check_every`) both trees as a whole. Not compared: inode and device numbers, blocks, sizes of directories, and
//! times beyond this: explicit times lie before the year 2002, so "kept", "set" and "now" can be told apart exactly.
//! Read next: `operation.rs` (what is done), `side.rs` (how), `observe.rs` (what is compared).

mod attributes;
mod observe;
mod operation;
mod side;
mod system;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;

use crate::error::BenchError;
use crate::pattern::Random;
use observe::Observation;
use operation::Operation;
use side::Side;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub operations: u64,
    /// Both trees are compared as a whole every so many steps.
    pub check_every: u64,
    /// From this step on every operation is printed with its outcome.
    pub show_from: Option<u64>,
    /// After this step a file is made in the second directory: the run must then fail.
    pub planted_at: Option<u64>,
}

/// Runs the plan; the error names seed, step and operation of the first difference.
pub fn run(first: &Path, second: &Path, plan: Plan) -> Result<(), BenchError> {
    let mut sides = [Side::new(first)?, Side::new(second)?];
    let mut random = Random::new(plan.seed);
    let shifts = sides[0].can_shift_ranges()? && sides[1].can_shift_ranges()?;
    if !shifts {
        eprintln!("note: a side refuses FALLOC_FL_COLLAPSE_RANGE (the kernel does so for every FUSE mount): left out");
    }
    // Where both sides refuse, with another errno each, the trees stay alike and the run can go on; one of a kind is kept.
    let mut unlike_errors = HashMap::new();
    for step in 1..=plan.operations {
        let operation = Operation::generate(&mut random);
        if operation.shifts_ranges() && !shifts {
            continue;
        }
        let [left, right] = sides.each_mut().map(|side| perform(side, &operation));
        if plan.show_from.is_some_and(|first| step >= first) {
            eprintln!("{step}: {operation:?} -> {:?}", right.0);
        }
        if left != right {
            let found = difference(&sides, plan.seed, step, &operation, &left, &right);
            let changes_nothing = left.0.errno().is_some() && right.0.errno().is_some() && left.1 == right.1;
            if !changes_nothing {
                return Err(with_earlier(found, unlike_errors));
            }
            let kind = (std::mem::discriminant(&operation), left.0.errno(), right.0.errno());
            unlike_errors.entry(kind).or_insert(found);
        }
        if plan.planted_at == Some(step) {
            sides[1].plant_difference()?;
        }
        if step % plan.check_every == 0 || step == plan.operations {
            let context = format!("after {operation:?}: ");
            if let Err(found) = compare_trees(&sides, plan.seed, step, &context) {
                return Err(with_earlier(found, unlike_errors));
            }
        }
    }
    sides.into_iter().try_for_each(Side::remove)?;
    match unlike_errors.into_values().reduce(|all, next| with_earlier(next, [((), all)].into())) {
        None => Ok(()),
        Some(all) => Err(all),
    }
}

/// The last finding, with the other ones before it.
fn with_earlier<Key>(last: BenchError, earlier: HashMap<Key, BenchError>) -> BenchError {
    earlier.into_values().fold(last, |all, one| match all {
        BenchError::Difference { seed, step, what } => {
            BenchError::Difference { seed, step, what: format!("{what}\nand earlier {one}") }
        }
        other => other,
    })
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

fn compare_trees(sides: &[Side; 2], seed: u64, step: u64, context: &str) -> Result<(), BenchError> {
    let [left, right] = [observe::tree(sides[0].root())?, observe::tree(sides[1].root())?];
    let names = left.keys().chain(right.keys());
    match names.into_iter().find(|name| left.get(*name) != right.get(*name)) {
        None => Ok(()),
        Some(name) => Err(BenchError::Difference {
            seed,
            step,
            what: format!(
                "{context}whole trees: {name:?}\n  left:  {:?}\n  right: {:?}",
                left.get(name),
                right.get(name)
            ),
        }),
    }
}
