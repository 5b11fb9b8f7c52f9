//! Mounts a new pool that is thrown away: for measuring the front end and the layers below it without the command line.
//!
//! `cargo run --release -p stere-fuse --example scratch -- MOUNTPOINT [--transport auto|uring|dev] [--memory-mib N]
//! [--size-mib N] [--writeback] [--cache-directories] [--file PATH]...`; ends when it is unmounted.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::sync::Arc;

use stere_device::{Device, FileDevice, FileOptions, MemoryDevice};
use stere_fuse::{MountOptions, TransportChoice};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut mountpoint, mut files) = (None, Vec::<PathBuf>::new());
    let (mut memory_mib, mut size_mib) = (1024_usize, 4096_u64);
    let mut options = MountOptions { source: "scratch".to_owned(), ..MountOptions::default() };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("the option wants a value");
        match argument.as_str() {
            "--transport" => {
                options.transport = match value().as_str() {
                    "uring" => TransportChoice::IoUring,
                    "dev" => TransportChoice::Device,
                    _ => TransportChoice::Auto,
                }
            }
            "--memory-mib" => memory_mib = value().parse().expect("a number"),
            "--size-mib" => size_mib = value().parse().expect("a number"),
            "--ring-depth" => options.ring_depth = value().parse().expect("a number"),
            "--device-threads" => options.device_threads = value().parse().expect("a number"),
            "--read-ahead-kib" => options.read_ahead_bytes = value().parse::<u32>().expect("a number") * 1024,
            "--writeback" => options.writeback_cache = true,
            "--cache-directories" => options.cache_directories = true,
            "--file" => files.push(value().into()),
            path => mountpoint = Some(PathBuf::from(path)),
        }
    }
    let mountpoint = mountpoint.expect("name a mount point");
    let devices: Vec<Arc<dyn Device>> = if files.is_empty() {
        vec![Arc::new(MemoryDevice::new(size_mib << 20))]
    } else {
        let device = |path: &PathBuf| -> Arc<dyn Device> {
            Arc::new(FileDevice::create(path, size_mib << 20, &FileOptions::default()).expect("an image file"))
        };
        files.iter().map(device).collect()
    };
    let pool = support::new_pool(&devices, 4 << 20, memory_mib << 20);
    let mounted = support::mount(pool, Some(&mountpoint), &options);
    println!(
        "mounted on {} over {}, sync {}",
        mountpoint.display(),
        if mounted.session.over_io_uring() { "io_uring" } else { "/dev/fuse" },
        if mounted.session.syncs_arrive() { "arrives" } else { "does not arrive" }
    );
    mounted.end();
}
