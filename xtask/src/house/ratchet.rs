//! The ratchet file: one line `key = number` for each figure; its value may get better and not worse.

use std::collections::BTreeMap;

use super::Figure;
use crate::error::{Result, XtaskError};

const HEAD: &str = "\
# The worst figure of `cargo xtask house` that is accepted, beside its goal. Figures may get better, not worse.
# After an improvement, `cargo xtask house --record` lowers what stands here.
";

#[derive(Debug, Default)]
pub struct Ratchet {
    limits: BTreeMap<String, f64>,
}

impl Ratchet {
    pub fn parse(text: &str) -> Result<Self> {
        let mut limits = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let parsed = line
                .split_once('=')
                .and_then(|(key, value)| value.trim().parse::<f64>().ok().map(|value| (key.trim().to_owned(), value)));
            let Some((key, value)) = parsed else {
                return Err(XtaskError::found(format!("line {} of the ratchet is not `key = number`", index + 1)));
            };
            limits.insert(key, value);
        }
        Ok(Ratchet { limits })
    }

    pub fn limit(&self, key: &str) -> Option<f64> {
        self.limits.get(key).copied()
    }

    /// What is recorded now: today's figure, unless the recorded one is better.
    pub fn lowered(&self, figure: &Figure) -> f64 {
        match self.limit(figure.key) {
            Some(limit) if figure.goal.is_worse(figure.value, limit) => limit,
            _ => figure.value,
        }
    }
}

pub fn render(figures: &[Figure], values: &BTreeMap<&str, f64>) -> String {
    let line = |one: &Figure| {
        let value = values.get(one.key).copied().unwrap_or(one.value);
        format!("{} = {value}  # {}; goal: {}\n", one.key, one.says, one.goal)
    };
    std::iter::once(HEAD.to_owned()).chain(figures.iter().map(line)).collect()
}
