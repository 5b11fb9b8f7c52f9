//! How fast records are encoded and decoded beside the bare libraries, on content that becomes smaller and on content that does not.
//! `cargo bench -p stere-plugin`.

use std::time::{Duration, Instant};

use stere_plugin::{Encoded, decode, encode};
use stere_policy::Compression;

const RECORD_BYTES: usize = 128 << 10;

/// Lines of a log, roughly: words from a small set, and numbers.
fn text() -> Vec<u8> {
    let words = ["open", "close", "record", "segment", "stripe", "device", "parity", "error", "warning", "done"];
    let mut state = 7u64;
    let mut out = Vec::with_capacity(RECORD_BYTES + 64);
    while out.len() < RECORD_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (word, number) = (words[(state >> 33) as usize % words.len()], state >> 48);
        out.extend_from_slice(format!("{number:5} {word} of file {}\n", state >> 56).as_bytes());
    }
    out.truncate(RECORD_BYTES);
    out
}

fn noise() -> Vec<u8> {
    let mut state = 9u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..RECORD_BYTES).map(next).collect()
}

/// Bytes a second of content, in MB.
fn rate(mut once: impl FnMut()) -> f64 {
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed() < Duration::from_millis(400) {
        once();
        count += 1;
    }
    f64::from(count) * RECORD_BYTES as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    for (what, content) in [("text", text()), ("noise", noise())] {
        for setting in ["lz4", "zstd:1", "zstd", "zstd:9", "zstd:19"] {
            let compression = Compression::from_text(setting).expect("a setting");
            let encoded = encode(compression, &content);
            let speed = rate(|| drop(std::hint::black_box(encode(compression, &content))));
            match &encoded {
                Encoded::Plain { .. } => println!("{what} {setting}: gives up at {speed:.0} MB/s"),
                Encoded::Stored { encoding, bytes } => {
                    let mut out = vec![0; content.len()];
                    let back = rate(|| decode(*encoding, bytes, &mut out).expect("what was encoded"));
                    let ratio = content.len() as f64 / bytes.len() as f64;
                    println!(
                        "{what} {setting}: {ratio:.2} times smaller, encodes {speed:.0} MB/s, decodes {back:.0} MB/s"
                    );
                }
            }
        }
        let bare = rate(|| drop(std::hint::black_box(zstd::bulk::compress(&content, 3))));
        println!("{what}: the bare library, a new context each time, zstd:3: {bare:.0} MB/s");
    }
}
