//! Turns: which device gets the next file that lies whole on one.
//!
//! Every device earns its weight in each round, the one with most credit is chosen and pays for all: devices with equal
//! weights simply take turns, one with twice the weight comes twice as often, evenly spread. No clock, no random numbers.
//! Source: the smooth weighted round robin of nginx.

use std::collections::BTreeMap;

use stere_format::DeviceIndex;

/// Credit of each device.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    credit: BTreeMap<DeviceIndex, i64>,
}

impl Homes {
    /// The next of these devices; none if there are none. `weights` says who is there now, and how much of it is free.
    pub fn next(&mut self, weights: &[(DeviceIndex, u32)]) -> Option<DeviceIndex> {
        self.credit.retain(|index, _| weights.iter().any(|(there, _)| there == index));
        let mut total = 0;
        for &(index, weight) in weights {
            // One that is full comes only where all are.
            total += i64::from(weight);
            *self.credit.entry(index).or_default() += i64::from(weight);
        }
        let is_full = |index: DeviceIndex| weights.iter().any(|&(there, weight)| there == index && weight == 0);
        let best =
            self.credit.iter().max_by_key(|&(&index, &credit)| (!is_full(index), credit, std::cmp::Reverse(index)));
        let chosen = *best?.0;
        assert!(weights.iter().any(|(there, _)| *there == chosen), "only a device that is there is chosen");
        *self.credit.get_mut(&chosen)? -= total;
        Some(chosen)
    }
}

#[cfg(test)]
mod tests;
