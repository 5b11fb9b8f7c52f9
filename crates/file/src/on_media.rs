//! Content of a file that lies on media only: a copy of it by reference would be no copy on devices.
//!
//! Invariant: a call that copies shares such content only with files that go to media themselves. What is kept as a version, or was
//! sent down with others, is the same file and shares everything. Read next: `copy.rs`.

use std::ops::Range;

use crate::block::BLOCK;
use crate::context::Context;
use crate::copy::{Copier, Copy, SHARED_BYTES_PER_STEP, SHARED_PER_STEP};
use crate::error::Error;
use crate::keys::{self, extents_touching};

/// How a copy begins.
pub(crate) enum Beginning {
    /// With so many bytes that lie on devices, or nowhere.
    OnDevices(u64),
    /// With so many that lie on media only.
    OnMedia(u64),
}

impl Copier {
    /// Whether what a call copies to a file has to be on devices: the pool has media, and the file does not go to any.
    pub(crate) fn stays_on_devices(&self, context: &Context<'_>, target: u64) -> Result<bool, Error> {
        if !self.store.tier.media.has_volumes() {
            return Ok(false);
        }
        let effective = self.store.view(context.io, |view| {
            let value = keys::inode(view, target)?;
            self.policies.effective(view, target, &value)
        })?;
        Ok(self.policies.media_of(effective.wish.tier).is_none_or(|media| media == 0))
    }

    /// How the source of a copy begins, as far as one step of sharing goes.
    pub(crate) fn beginning(&self, context: &Context<'_>, source: u64, copy: &Copy) -> Result<Beginning, Error> {
        let copy_end = copy.from + copy.length;
        let end = copy_end.min(copy.from + SHARED_BYTES_PER_STEP);
        let (on_media, looked_to) = self.store.view(context.io, |view| {
            let extents = extents_touching(view, source, copy.from, end, SHARED_PER_STEP)?;
            let looked_to = match extents.last() {
                Some(last) if extents.len() == SHARED_PER_STEP => last.end(),
                Some(_) => end,
                // A hole is passed over as a whole.
                None => {
                    extents_touching(view, source, copy.from, copy_end, 1)?.first().map_or(copy_end, |next| next.start)
                }
            };
            let mut on_media: Option<Range<u64>> = None;
            for extent in extents {
                let is_on_media = !extent.is_preallocated() && view.blob(extent.value.blob)?.is_released();
                match &mut on_media {
                    Some(range) if is_on_media && extent.start == range.end => range.end = extent.end(),
                    Some(_) => break,
                    None if is_on_media => on_media = Some(extent.start..extent.end()),
                    None => {}
                }
            }
            Ok::<_, Error>((on_media, looked_to))
        })?;
        let from_start = |at: u64| at.next_multiple_of(BLOCK).min(copy_end) - copy.from;
        let beginning = match on_media {
            None => Beginning::OnDevices(from_start(looked_to)),
            Some(range) if range.start < copy.from + BLOCK => Beginning::OnMedia(from_start(range.end)),
            Some(range) => Beginning::OnDevices(range.start / BLOCK * BLOCK - copy.from),
        };
        let (Beginning::OnDevices(bytes) | Beginning::OnMedia(bytes)) = beginning;
        assert!(bytes > 0 && bytes <= copy.length, "a copy of {} bytes begins with {bytes}", copy.length);
        Ok(beginning)
    }
}
