//! A blob as a reader holds it.

use std::sync::Arc;

use stere_format::BlobValue;
use stere_log::Segment;

/// A blob as a reader holds it: its entry, and its segment, which stays in place while this lives.
#[derive(Clone, Debug)]
pub struct BlobHandle {
    pub id: u64,
    pub value: Arc<BlobValue>,
    pub segment: Arc<Segment>,
}

impl BlobHandle {
    /// The one device that has it, if it is unreplicated.
    pub fn home(&self) -> Option<stere_format::DeviceIndex> {
        self.segment.home()
    }

    /// The scheme it is stored with.
    pub fn scheme(&self) -> stere_format::Scheme {
        self.segment.scheme
    }

    /// Where it was asked to lie.
    pub fn site(&self) -> stere_format::Site {
        self.segment.site
    }

    /// The devices that its segment lies on.
    pub fn devices(&self) -> Vec<stere_format::DeviceIndex> {
        self.segment.placed().chunks.iter().map(|place| place.device).collect()
    }

    /// Whether several extents share it, or once did.
    pub fn is_shared(&self) -> bool {
        self.value.flags.contains(stere_format::BlobFlags::SHARED)
    }

    /// The number of its segment.
    pub fn segment_id(&self) -> u64 {
        self.segment.id
    }

    /// Whether its bytes are on media only.
    pub fn is_released(&self) -> bool {
        self.segment.is_released()
    }

    /// Media that have it, a set.
    pub fn media(&self) -> u16 {
        self.segment.tertiary().there
    }

    /// Media that shall have it, a set.
    pub fn tertiary_wanted(&self) -> u16 {
        self.segment.tertiary().wanted
    }
}
