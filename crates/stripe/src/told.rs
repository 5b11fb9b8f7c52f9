//! What nodes are told of the slots that segments take: settings of `node`, for whoever keeps a device.
//!
//! Invariant: each slot that a segment takes is told what its site says, also where that is nothing, before or while it is written: a slot
//! was told something else by the segment before. Read next: the crate `node`, `docs/design/nodes.md`.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use stere_format::{ChunkPlace, Site};

use crate::Stripe;

/// The settings that numbers stand for.
#[derive(Debug, Default)]
pub(crate) struct Told(RwLock<BTreeMap<u8, String>>);

impl Stripe {
    /// Says which settings a number stands for.
    pub fn set_told(&self, number: u8, settings: String) {
        self.told.0.write().insert(number, settings);
    }

    /// Tells the devices of these slots what data of this site asks of whoever keeps them. Waits for nothing.
    pub fn tell_slots(&self, site: Site, slots: &[ChunkPlace]) {
        let told = self.told.0.read();
        let settings = told.get(&site.node).map_or("", String::as_str);
        for slot in slots {
            let Some(device) = self.devices.get(slot.device) else { continue };
            let Some(offset) = device.layout().slot_offset(slot.slot) else { continue };
            device.tell(offset, u64::from(self.chunk_bytes), settings);
        }
    }
}
