//! Content that is stored twice becomes one blob of several files, in the background.
//!
//! Blobs are told alike by what the blob map says of them: length, encoding, scheme, checksums. That only makes candidates of them:
//! nothing is shared before the stored bytes of both were read, verified and compared, with both files locked and nothing of
//! either in memory; then the extents are changed as copying by reference changes them. Only whole blobs are looked at. What is
//! encrypted, on media, or stored in another way is left alone, and an unreplicated file stays on its one device.
//! Read next: `copy.rs`, the naming layer's `reconcile.rs`, `docs/design/dedup.md`.

use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use stere_format::{FileKind, Site};
use stere_store::Store;

use crate::context::Context;
use crate::copy::{Copy, share_step};
use crate::error::Error;
use crate::facts::{StoredExtent, stored_extents};
use crate::keys;
use crate::orphan::Orphans;
use crate::table::FileTable;

/// Extents looked at in one view.
const EXTENTS_PER_STEP: usize = 64;
/// Places of content that are remembered; beyond that memory starts afresh.
const PLACES_MAX: usize = 1 << 18;

/// Where content was met, by what makes it a candidate.
#[derive(Debug, Default)]
pub struct Twins {
    places: FxHashMap<u64, (u64, u64)>,
}

/// What one step came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deduplicated {
    /// Where to go on; `None` when the file is done.
    pub next: Option<u64>,
    /// Bytes that were stored twice and are not any more.
    pub shared_bytes: u64,
    /// Bytes that were read to be compared.
    pub compared_bytes: u64,
}

/// What became of a candidate.
enum Twin {
    Shared,
    /// It is this blob already, or something of it waits in memory: later.
    Left,
    /// What is remembered is not so, or not the same content.
    Unlike,
}

/// A place in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    inode: u64,
    start: u64,
}

/// Finds content that is stored twice.
pub struct Deduplicator {
    pub(crate) store: Arc<Store>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) orphans: Arc<Orphans>,
}

impl Deduplicator {
    /// Shares what of a file, from `from` on, is stored elsewhere in its domain too, with about `budget_bytes` being compared.
    pub fn deduplicate(
        &self,
        context: &Context<'_>,
        inode: u64,
        from: u64,
        budget_bytes: u64,
        domain: u64,
        twins: &mut Twins,
    ) -> Result<Deduplicated, Error> {
        let mut done = Deduplicated { next: Some(from), ..Deduplicated::default() };
        while let Some(at) = done.next.filter(|_| done.compared_bytes < budget_bytes) {
            let (extents, next) = stored_extents(&self.store, context.io, inode, at, EXTENTS_PER_STEP)?;
            for extent in extents.into_iter().filter(is_whole) {
                let (candidate, here) = (candidate(domain, &extent), Place { inode, start: extent.start });
                let known = twins.places.get(&candidate).map(|(inode, start)| Place { inode: *inode, start: *start });
                let twin = match known.filter(|place| *place != here) {
                    Some(place) => self.share_twin(context, place, here, &extent, &mut done)?,
                    None => Twin::Unlike,
                };
                match twin {
                    Twin::Shared => done.shared_bytes += u64::from(extent.length),
                    Twin::Left => {}
                    Twin::Unlike => {
                        if twins.places.len() >= PLACES_MAX {
                            twins.places.clear();
                        }
                        twins.places.insert(candidate, (inode, extent.start));
                    }
                }
            }
            done.next = next;
        }
        Ok(done)
    }

    /// Makes an extent refer to the blob of another place, if that holds the same.
    fn share_twin(
        &self,
        context: &Context<'_>,
        source: Place,
        target: Place,
        extent: &StoredExtent,
        done: &mut Deduplicated,
    ) -> Result<Twin, Error> {
        let (low, high) = (source.inode.min(target.inode), source.inode.max(target.inode));
        let held = (self.table.hold(low), (low != high).then(|| self.table.hold(high)));
        let first = held.0.write(context.io)?;
        let second = held.1.as_ref().map(|held| held.write(context.io)).transpose()?;
        // What was accepted for memory counts on the blocks that it replaces not being shared.
        let states = [Some(&*first), second.as_deref()];
        if states.into_iter().flatten().any(|state| state.content.as_ref().is_some_and(|content| content.is_dirty())) {
            return Ok(Twin::Left);
        }
        if !self.is_file_with_name(context, source.inode)? || !self.is_file_with_name(context, target.inode)? {
            return Ok(Twin::Unlike);
        }
        let found = |place: Place| {
            let (extents, _) = stored_extents(&self.store, context.io, place.inode, place.start, 1)?;
            let found = extents.into_iter().next();
            Ok::<_, Error>(found.filter(|found| found.start == place.start && is_whole(found)))
        };
        let (Some(one), Some(other)) = (found(source)?, found(target)?) else { return Ok(Twin::Unlike) };
        if other.blob.id != extent.blob.id || one.blob.id == other.blob.id {
            return Ok(Twin::Left);
        }
        if !is_stored_alike(&one, &other) || !self.is_same(context, &one, &other)? {
            return Ok(Twin::Unlike);
        }
        done.compared_bytes += u64::from(other.length);
        let copy = Copy { from: one.start, to: other.start, length: u64::from(other.length) };
        self.store
            .update(context.io, |transaction| {
                transaction.set_content_kept();
                let (shared, allocation) = share_step(transaction, source.inode, target.inode, &copy)?;
                assert_eq!(shared, copy.length, "one extent is shared in one step");
                assert_eq!((allocation.bytes, allocation.preallocated_bytes), (0, 0), "the file has as much as before");
                Ok::<_, Error>(())
            })
            .map_or_else(
                // A pool that is full has other things to do first.
                |error| {
                    if matches!(error, Error::Store(stere_store::Error::NoSpace)) { Ok(Twin::Left) } else { Err(error) }
                },
                |()| Ok(Twin::Shared),
            )
    }

    fn is_file_with_name(&self, context: &Context<'_>, inode: u64) -> Result<bool, Error> {
        let value = self.store.view(context.io, |view| keys::inode_if_any(view, inode))?;
        Ok(value.is_some_and(|value| value.kind() == Some(FileKind::File) && value.nlink > 0)
            && self.orphans.kind_of(inode).is_none())
    }

    /// Reads both as they are stored, and compares them.
    fn is_same(&self, context: &Context<'_>, one: &StoredExtent, other: &StoredExtent) -> Result<bool, Error> {
        let bytes = |extent: &StoredExtent| vec![0; extent.blob.value.address.length as usize];
        let (mut first, mut second) = (bytes(one), bytes(other));
        match self.store.read_stored(context.io, vec![(&one.blob, &mut first), (&other.blob, &mut second)]) {
            Ok(()) => Ok(first == second),
            // What cannot be read is not looked into here; scrubbing tells of it.
            Err(stere_store::Error::Damaged { .. } | stere_store::Error::Elsewhere { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an extent is all of its blob, all of which is stored on devices in a way that can be shared.
fn is_whole(extent: &StoredExtent) -> bool {
    let (blob, value) = (&extent.blob, &extent.blob.value);
    let is_all = extent.blob_offset == 0 && extent.length == value.logical_bytes;
    let is_stored = value.present.count() == value.blocks() && value.live.count() == value.blocks();
    let is_open = value.key == 0 && !value.encoding.is_encrypted() && value.encoding.is_known();
    is_all && is_stored && is_open && blob.tertiary_wanted() == 0 && blob.media() == 0
}

/// Whether the same stored bytes of two are the same content, as safe in one place as in the other.
fn is_stored_alike(one: &StoredExtent, other: &StoredExtent) -> bool {
    let form = |extent: &StoredExtent| {
        let value = &extent.blob.value;
        (value.encoding, value.stack, value.logical_bytes, value.address.length, extent.length)
    };
    let place = |extent: &StoredExtent| (extent.blob.scheme(), extent.blob.home(), extent.blob.site());
    form(one) == form(other) && place(one) == place(other) && one.blob.value.checksums == other.blob.value.checksums
}

fn candidate(domain: u64, extent: &StoredExtent) -> u64 {
    let value = &extent.blob.value;
    let mut hasher = FxHasher::default();
    hasher.write_u64(domain);
    hasher.write_u32(value.logical_bytes);
    hasher.write_u32(value.address.length);
    hasher.write_u16(value.stack);
    let scheme = extent.blob.scheme();
    hasher.write_u16(u16::from_le_bytes([scheme.data, scheme.parity]));
    hasher.write_u16(extent.blob.home().map_or(u16::MAX, |home| home));
    let Site { on, only, node } = extent.blob.site();
    hasher.write_u32(u32::from_le_bytes([on, only, node, 0]));
    value.checksums.iter().for_each(|checksum| hasher.write_u32(*checksum));
    hasher.finish()
}
