//! `stere free`: how much more each class of files can take.

use crate::arguments::FreeArguments;
use crate::report::print_classes;
use crate::{json, status};
use stere_machine::error::{DONE, Result};
use stere_machine::registry::Registry;

pub fn run(registry: &Registry, arguments: &FreeArguments) -> Result<u8> {
    let report = status::of(registry, &arguments.words)?;
    match arguments.json {
        true => println!("{}", json::to_json(&report.classes)?),
        false => print_classes(&report.classes, arguments.bytes),
    }
    Ok(DONE)
}
