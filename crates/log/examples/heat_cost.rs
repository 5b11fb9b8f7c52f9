//! What it costs a reader to note the use of a segment: prints nanoseconds for each read of one piece.
//!
//! `cargo run --release -p stere-log --example heat_cost`

use std::hint::black_box;
use std::time::Instant;

use stere_log::HeatCell;

const CELLS: usize = 4096;
const READS: usize = 50_000_000;

fn main() {
    let cells: Vec<HeatCell> = (0..CELLS).map(|_| HeatCell::default()).collect();
    for (name, step_reads) in [("the same second", READS), ("a second every 1000 reads", 1000)] {
        let start = Instant::now();
        for read in 0..READS {
            // Far from the one before, as files are.
            let cell = &cells[read.wrapping_mul(2_654_435_761) % CELLS];
            black_box(cell).note_use(1 + (read / step_reads) as i64);
        }
        let each = start.elapsed().as_secs_f64() * 1e9 / READS as f64;
        println!("{name}: {each:.2} ns a read");
    }
}
