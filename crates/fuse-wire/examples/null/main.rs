//! A file system that stores nothing: names and attributes in memory, data discarded and read as zeros.
//!
//! It does no work of its own, so what a benchmark sees of it is the ceiling of FUSE on a machine.
//! `cargo run --release -p fuse-wire --example null -- MOUNTPOINT [--transport auto|uring|dev] [--block]
//! [--keep] [--flush]`; prints "ready" once mounted and ends when it is unmounted.

use std::path::PathBuf;
use std::process::ExitCode;

use fuse_wire::{BlockDevice, Options, Session, TransportChoice};

mod filesystem;
use filesystem::NullFilesystem;

const USAGE: &str =
    "usage: null MOUNTPOINT [--transport auto|uring|dev] [--threads N] [--depth N] [--block] [--keep] [--flush]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("null: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    options.mount.source = "null".to_owned();
    options.mount.subtype = "null".to_owned();
    options.mount.allow_other = is_root();
    options.init.flush_unsupported = true;
    let (mut mountpoint, mut keep_data) = (None::<PathBuf>, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--transport" => {
                options.transport.choice = match value()?.as_str() {
                    "auto" => TransportChoice::Auto,
                    "uring" => TransportChoice::IoUring,
                    "dev" => TransportChoice::Device,
                    _ => return Err(USAGE.into()),
                }
            }
            "--threads" => options.transport.device_threads = value()?.parse()?,
            "--depth" => options.transport.ring_depth = value()?.parse()?,
            "--block" => options.mount.block_device = BlockDevice::Required,
            "--keep" => keep_data = true,
            "--flush" => options.init.flush_unsupported = false,
            _ if argument.starts_with('-') || mountpoint.is_some() => return Err(USAGE.into()),
            _ => mountpoint = Some(argument.into()),
        }
    }
    let filesystem = NullFilesystem::new(keep_data);
    let session = Session::mount(filesystem, &mountpoint.ok_or(USAGE)?, &options)?;
    eprintln!("{:?}", session.negotiated());
    println!("ready");
    session.join()?;
    Ok(())
}

fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
