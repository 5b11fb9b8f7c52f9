//! What of a file lies where, and whether it is stored as its policy asks. Read next: `facts.rs`.

use stere_format::{DeviceIndex, Scheme, Site};
use stere_policy::Effective;
use stere_store::{Lies, LossesBorne};

use crate::block::BLOCK;
use crate::context::Context;
use crate::encode::is_as_asked;
use crate::error::Error;
use crate::facts::{stored_bytes, stored_extents};
use crate::policies::Policies;

/// Bytes of a file that lie alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFact {
    /// Scheme of the segment.
    pub scheme: Scheme,
    /// Devices of the segment.
    pub devices: Vec<DeviceIndex>,
    /// Allocated bytes of the file in it.
    pub bytes: u64,
    /// How many of them are shared with another file, which may want them stored better than this one.
    pub shared_bytes: u64,
    /// How many are not encoded as the file's policy asks, those aside that are shared.
    pub otherwise_encoded_bytes: u64,
    /// Stored bytes behind all of them, in proportion where a blob is used in part.
    pub stored_bytes: u64,
    /// How many devices and volumes may be lost.
    pub losses_borne: LossesBorne,
    /// Tertiary volumes that the segment belongs on, a set.
    pub tertiary: u16,
    /// On which devices it was asked to lie.
    pub site: Site,
    /// Whether it does.
    pub lies: Lies,
}

/// Extents looked at in one view.
pub(crate) const EXTENTS_PER_VIEW: usize = 1024;

impl Policies {
    /// Where the data of a file lies that has been handed to the store, one fact per segment.
    pub fn stored_facts(
        &self,
        context: &Context<'_>,
        inode: u64,
        wanted: &Effective,
    ) -> Result<Vec<StoredFact>, Error> {
        let wanted = self.asked(wanted);
        let mut by_segment: std::collections::BTreeMap<u64, StoredFact> = std::collections::BTreeMap::new();
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stored_extents(&self.store, context.io, inode, at, EXTENTS_PER_VIEW)?;
            for extent in extents {
                let bytes = u64::from(extent.length).next_multiple_of(BLOCK);
                let fact = by_segment.entry(extent.blob.value.address.segment).or_insert_with(|| StoredFact {
                    scheme: extent.blob.scheme(),
                    devices: extent.blob.devices(),
                    bytes: 0,
                    shared_bytes: 0,
                    otherwise_encoded_bytes: 0,
                    stored_bytes: 0,
                    losses_borne: self.store.losses_borne(&extent.blob),
                    tertiary: self.store.tier.media.in_place_of(extent.blob.tertiary_wanted()),
                    site: extent.blob.site(),
                    lies: self.store.places().lies(&extent.blob),
                });
                fact.bytes += bytes;
                let is_shared = extent.blob.is_shared();
                fact.shared_bytes += if is_shared { bytes } else { 0 };
                // What files share is encrypted for each of them by itself, and has its own plugins.
                let value = &extent.blob.value;
                let is_of_other_key = wanted.key != value.key || wanted.stack != value.stack;
                let can_change = (!is_shared || is_of_other_key) && extent.blob.value.encoding.is_known();
                let is_other = can_change && !is_as_asked(&extent.blob, wanted);
                fact.otherwise_encoded_bytes += if is_other { bytes } else { 0 };
                fact.stored_bytes += stored_bytes(&extent);
                let part_max = fact.shared_bytes.max(fact.otherwise_encoded_bytes);
                assert!(part_max <= fact.bytes, "{part_max} bytes are a part of {}", fact.bytes);
            }
            from = next;
        }
        Ok(by_segment.into_values().collect())
    }
}
