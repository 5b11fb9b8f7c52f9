//! What a workload found: named figures, each with what was durable and what was cached while it was taken, and what it cost
//! in processor time. That is the whole machine's (the program, the file system, the kernel's own threads), so that file
//! systems in and outside of the kernel are counted alike; on a machine that does anything else it means nothing.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs;
use std::ops::Add;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy)]
pub enum Unit {
    MegabytesPerSecond,
    PerSecond,
}

/// How long something took, and how long the machine's processors were busy meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub wall: Duration,
    pub processors: Duration,
}

impl Add for Spent {
    type Output = Spent;

    fn add(self, other: Spent) -> Spent {
        Spent { wall: self.wall + other.wall, processors: self.processors + other.processors }
    }
}

/// Begins with the work that is to be measured.
pub struct Stopwatch {
    start: Instant,
    busy: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        Stopwatch { busy: busy_time(), start: Instant::now() }
    }

    pub fn stop(&self) -> Spent {
        let wall = self.start.elapsed();
        Spent { wall, processors: busy_time().saturating_sub(self.busy) }
    }
}

/// What all processors have worked since the machine started; nothing where the kernel does not tell.
fn busy_time() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // SAFETY: plain system call.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_millis(busy_ticks(&stat) * 1000 / ticks_per_second)
}

/// Of the line of all processors: user, nice, system, irq and softirq. Idle, waiting for I/O and stolen time are none of ours.
fn busy_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect();
    [0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).sum()
}

#[derive(Debug, Clone)]
pub struct Metric {
    pub name: Cow<'static, str>,
    pub value: f64,
    pub unit: Unit,
    /// Megabytes or operations, as the unit says.
    pub amount: f64,
    pub spent: Spent,
    /// What had reached stable storage when the clock stopped.
    pub durable: &'static str,
    /// What was in a cache when the clock started.
    pub cached: &'static str,
}

impl Metric {
    pub fn bytes(name: impl Into<Cow<'static, str>>, bytes: u64, spent: Spent) -> Self {
        Self::new(name.into(), bytes as f64 / 1e6, Unit::MegabytesPerSecond, spent)
    }

    pub fn count(name: impl Into<Cow<'static, str>>, count: u64, spent: Spent) -> Self {
        Self::new(name.into(), count as f64, Unit::PerSecond, spent)
    }

    pub fn durable(self, durable: &'static str) -> Self {
        Metric { durable, ..self }
    }

    pub fn cached(self, cached: &'static str) -> Self {
        Metric { cached, ..self }
    }

    fn new(name: Cow<'static, str>, amount: f64, unit: Unit, spent: Spent) -> Self {
        let seconds = spent.wall.as_secs_f64().max(1e-9);
        Metric { name, value: amount / seconds, unit, amount, spent, durable: "nothing", cached: "nothing" }
    }

    pub fn to_json(&self) -> Value {
        let each = self.spent.processors.as_secs_f64() / self.amount.max(1e-9);
        let (unit, cost, cost_unit) = match self.unit {
            Unit::MegabytesPerSecond => ("MB/s", each * f64::from(1 << 30) / 1e6, "s/GiB"),
            Unit::PerSecond => ("/s", each * 1e6, "us each"),
        };
        json!({
            "name": self.name, "value": self.value, "unit": unit, "seconds": self.spent.wall.as_secs_f64(),
            "processors": cost, "processors_unit": cost_unit, "durable": self.durable, "cached": self.cached,
        })
    }
}

#[derive(Debug)]
pub struct Report {
    pub workload: &'static str,
    pub seed: u64,
    /// The amounts of work are the usual ones divided by this.
    pub divided_by: u64,
    pub cold: String,
    pub metrics: Vec<Metric>,
}

impl Report {
    pub fn to_json(&self) -> Value {
        json!({
            "workload": self.workload, "seed": self.seed, "divided_by": self.divided_by, "cold": self.cold,
            "metrics": self.metrics.iter().map(Metric::to_json).collect::<Vec<_>>(),
        })
    }
}
