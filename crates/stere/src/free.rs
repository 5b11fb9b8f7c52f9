//! `stere free`: how much more each class of files can take.

use crate::cli::FreeArguments;
use crate::error::{DONE, Result};
use crate::registry::Registry;
use crate::report::print_classes;
use crate::status;

pub fn run(registry: &Registry, arguments: &FreeArguments) -> Result<u8> {
    let report = status::of(registry, &arguments.words)?;
    match arguments.json {
        true => println!("{}", status::to_json(&report.classes)?),
        false => print_classes(&report.classes, arguments.bytes),
    }
    Ok(DONE)
}
