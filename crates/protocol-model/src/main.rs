//! Explores all models, or the model of one bug, and prints what was found as plain lines.
//!
//! Read next: `report.rs`.

use std::process::ExitCode;

use stere_protocol_model::{Bug, Part, check};

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        let is_right = [Part::Gather, Part::Early, Part::Leases, Part::Slots, Part::Acknowledgement].map(|part| {
            let report = check(part, None);
            print!("{report}");
            report.counterexample.is_none() && report.missing.is_empty()
        });
        let is_right = is_right == [true; 5];
        return if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    };
    let Some(bug) = Bug::named(&name) else {
        eprintln!("there is no bug {name}; the bugs are {:?}", Bug::ALL);
        return ExitCode::from(2);
    };
    print!("{}", check(bug.part(), Some(bug)));
    ExitCode::SUCCESS
}
