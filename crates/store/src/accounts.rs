//! Making the accounting right: live bytes of segments, counted anew.
//!
//! For a pool that nothing else uses. Invariant: only accounts change, never what they are about. Read next: `check.rs`.

use std::collections::BTreeMap;

use stere_engine::{Error, blob_usage_bytes};
use stere_format::{BlobValue, Key, key, sector_aligned};

use crate::check::Checker;

impl Checker {
    /// Counts the live bytes of all segments and corrects those that say something else; returns how many did. Call it while
    /// nothing else changes the pool; it is durable with the next checkpoint.
    pub fn correct_accounts(&self) -> Result<u64, Error> {
        self.engine.check_writable()?;
        // So that the tree has everything and no frozen state is left.
        self.engine.checkpoint()?;
        let live = self.count_live_bytes()?;
        let mut corrected = 0;
        for segment in self.engine.log().segments.everywhere() {
            let counted = live.get(&segment.id).copied().unwrap_or(0);
            let delta = i128::from(counted) - i128::from(segment.live_bytes());
            let Ok(delta) = i64::try_from(delta) else { continue };
            if delta != 0 {
                self.engine.correct_live_bytes(&segment, delta);
                corrected += 1;
            }
        }
        Ok(corrected)
    }

    fn count_live_bytes(&self) -> Result<BTreeMap<u64, u64>, Error> {
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let still = self.engine.hold_still();
        for part in still.parts() {
            *live.entry(part.address.segment).or_default() += u64::from(sector_aligned(part.address.length));
        }
        let mut wanted: Vec<_> = still.root().into_iter().collect();
        drop(still);
        while let Some(reference) = wanted.pop() {
            *live.entry(reference.address.segment).or_default() += u64::from(sector_aligned(reference.address.length));
            if reference.level > 0 {
                let node = self.engine.node(&reference)?;
                wanted.extend((0..node.count()).map(|index| node.child(index)));
            }
        }
        self.engine.for_each_key(Key::blob(0), Key::new(key::tree::SEGMENTS, 0, 0, 0), |_, bytes| {
            if let Ok(value) = BlobValue::decode(bytes) {
                *live.entry(value.address.segment).or_default() += blob_usage_bytes(&value);
            }
        })?;
        Ok(live)
    }
}
