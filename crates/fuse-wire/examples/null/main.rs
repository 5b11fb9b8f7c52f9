//! A file system that stores nothing: names and attributes in memory, data discarded and read as zeros.
//!
//! It does no work of its own, so what a benchmark sees of it is the ceiling of FUSE on a machine.
//! `cargo run --release -p fuse-wire --example null -- MOUNTPOINT [--transport auto|uring|dev] [--block]
//! [--keep] [--flush] [--offer-all] [--workers N]`; prints "ready" once mounted and ends when it is unmounted. With `--workers`
//! every request is answered by a pool of threads instead of the transport's: what handing over costs. With `--offer-all` the kernel
//! sends the requests that it sends a file system with birth times and extended attributes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use fuse_wire::{BlockDevice, Filesystem, Options, Request, Session, TransportChoice};
use parking_lot::Mutex;

mod filesystem;
use filesystem::NullFilesystem;

const USAGE: &str = "usage: null MOUNTPOINT [--transport auto|uring|dev] [--threads N] [--depth N] \
                     [--block] [--keep] [--flush] [--offer-all] [--workers N]";

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
    let (mut mountpoint, mut keep_data, mut offers_all, mut workers) = (None::<PathBuf>, false, false, 0);
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
            "--workers" => workers = value()?.parse()?,
            "--block" => options.mount.block_device = BlockDevice::Required,
            "--keep" => keep_data = true,
            "--offer-all" => offers_all = true,
            "--flush" => options.init.flush_unsupported = false,
            _ if argument.starts_with('-') || mountpoint.is_some() => return Err(USAGE.into()),
            _ => mountpoint = Some(argument.into()),
        }
    }
    let filesystem = NullFilesystem::new(keep_data, offers_all);
    let mountpoint = mountpoint.ok_or(USAGE)?;
    let session = match workers {
        0 => Session::mount(filesystem, &mountpoint, &options)?,
        _ => Session::mount(Pool::new(&filesystem, workers), &mountpoint, &options)?,
    };
    eprintln!("{:?}", session.negotiated());
    println!("ready");
    session.join()?;
    Ok(())
}

/// Answers every request on a thread of its own pool.
struct Pool {
    queue: Mutex<mpsc::Sender<Request>>,
}

impl Pool {
    fn new(filesystem: &Arc<NullFilesystem>, workers: usize) -> Self {
        let (sender, receiver) = mpsc::channel::<Request>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..workers {
            let (filesystem, receiver) = (Arc::clone(filesystem), Arc::clone(&receiver));
            std::thread::spawn(move || {
                loop {
                    let Ok(request) = receiver.lock().recv() else { return };
                    filesystem.handle(request);
                }
            });
        }
        Self { queue: Mutex::new(sender) }
    }
}

impl Filesystem for Pool {
    fn handle(&self, request: Request) {
        if let Err(unsent) = self.queue.lock().send(request) {
            unsent.0.reply_error(libc::EIO);
        }
    }
}

fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
