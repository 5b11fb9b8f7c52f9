//! What a call costs: a new instance with nothing to do, and a record that is gone through byte by byte, beside the same in Rust.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use stere_plugin::Loader;
use stere_sandbox::{Limits, Sandbox};

fn microseconds(rounds: u32, mut work: impl FnMut()) -> f64 {
    work();
    let started = Instant::now();
    (0..rounds).for_each(|_| work());
    started.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
}

fn main() {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/rotate.wat");
    let module = wat::parse_file(text).expect("text of WebAssembly");
    let sandbox = Sandbox::new(Limits::default()).expect("a sandbox");
    let load = microseconds(20, || drop(black_box(sandbox.load(&module))));
    let plugin = sandbox.load(&module).expect("a plugin");
    let record = vec![7u8; 128 << 10];
    let call = microseconds(2000, || drop(black_box(plugin.encode("", b"x", 64))));
    let encode = microseconds(500, || drop(black_box(plugin.encode("", &record, 1 << 20))));
    let native = microseconds(500, || {
        drop(black_box(record.iter().map(|byte| black_box(*byte).wrapping_add(13)).collect::<Vec<u8>>()));
    });
    let speed = |microseconds: f64| record.len() as f64 / microseconds;
    println!("load {load:.0} us; an empty call {call:.1} us");
    println!(
        "rotate 128 KiB: {encode:.0} us, {:.0} MB/s; in Rust, byte by byte: {:.0} MB/s",
        speed(encode),
        speed(native)
    );
}
