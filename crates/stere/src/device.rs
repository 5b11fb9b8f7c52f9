//! `stere device`: the devices of a pool.

use crate::cli::DeviceCommand;
use crate::error::Result;
use crate::registry::Registry;
use crate::report::print_devices;
use crate::status;

pub fn run(registry: &Registry, command: &DeviceCommand) -> Result<u8> {
    match command {
        DeviceCommand::List { words, json, bytes } => {
            let report = status::of(registry, words)?;
            match json {
                true => println!("{}", status::to_json(&report.devices)?),
                false => print_devices(&report.devices, *bytes),
            }
            Ok(report.exit_code())
        }
    }
}
