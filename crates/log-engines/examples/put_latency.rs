//! How long a put of 4 KiB takes: `put_latency ADDRESS [COUNT]`. It makes a log of its own there and removes it.

use std::time::{Duration, Instant};

use stere_shared_log::Put;

const POOL: [u8; 16] = *b"latency measured";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let address = words.next().ok_or("usage: put_latency ADDRESS [COUNT]")?;
    let count: u64 = words.next().map_or(Ok(1000), |count| count.parse())?;
    let log = stere_log_engines::create(&address, POOL, "put_latency")?;
    let measured = measure(&*log, count);
    stere_log_engines::remove(&address, POOL)?;
    let mut times = measured?;
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    println!("{count} puts of 4 KiB: median {:?}, p99 {:?}", at(0.5), at(0.99));
    Ok(())
}

fn measure(log: &dyn stere_shared_log::SharedLog, count: u64) -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    for sequence in 1..=count {
        let begun = Instant::now();
        if log.put(sequence, &[5; 4096])? != Put::Mine {
            return Err("somebody else puts there".into());
        }
        times.push(begun.elapsed());
    }
    Ok(times)
}
