//! What a workload found: named figures, each with what was durable and what was cached while it was taken.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy)]
pub enum Unit {
    MegabytesPerSecond,
    PerSecond,
}

#[derive(Debug, Clone)]
pub struct Metric {
    pub name: Cow<'static, str>,
    pub value: f64,
    pub unit: Unit,
    pub duration: Duration,
    /// What had reached stable storage when the clock stopped.
    pub durable: &'static str,
    /// What was in a cache when the clock started.
    pub cached: &'static str,
}

impl Metric {
    pub fn bytes(name: impl Into<Cow<'static, str>>, bytes: u64, duration: Duration) -> Self {
        Self::new(name.into(), bytes as f64 / 1e6, Unit::MegabytesPerSecond, duration)
    }

    pub fn count(name: impl Into<Cow<'static, str>>, count: u64, duration: Duration) -> Self {
        Self::new(name.into(), count as f64, Unit::PerSecond, duration)
    }

    pub fn durable(self, durable: &'static str) -> Self {
        Metric { durable, ..self }
    }

    pub fn cached(self, cached: &'static str) -> Self {
        Metric { cached, ..self }
    }

    fn new(name: Cow<'static, str>, amount: f64, unit: Unit, duration: Duration) -> Self {
        let seconds = duration.as_secs_f64().max(1e-9);
        Metric { name, value: amount / seconds, unit, duration, durable: "nothing", cached: "nothing" }
    }

    fn to_json(&self) -> Value {
        let unit = match self.unit {
            Unit::MegabytesPerSecond => "MB/s",
            Unit::PerSecond => "/s",
        };
        json!({
            "name": self.name, "value": self.value, "unit": unit, "seconds": self.duration.as_secs_f64(),
            "durable": self.durable, "cached": self.cached,
        })
    }
}

#[derive(Debug)]
pub struct Report {
    pub workload: &'static str,
    pub seed: u64,
    pub quick: bool,
    pub cold: String,
    pub metrics: Vec<Metric>,
}

impl Report {
    pub fn to_json(&self) -> Value {
        json!({
            "workload": self.workload, "seed": self.seed, "quick": self.quick, "cold": self.cold,
            "metrics": self.metrics.iter().map(Metric::to_json).collect::<Vec<_>>(),
        })
    }
}
