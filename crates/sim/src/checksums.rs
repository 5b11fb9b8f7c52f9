//! Checksums in histories: files and directories are told what to be known by, and what only a digest tells is found.
//!
//! Beside a history, on a copy of its machine, the bytes of a record with a digest become others that have the same CRCs, on every
//! device that has them: scrubbing must say so. Such a change is not among the faults, for without a digest it is one that
//! nobody can notice. Read next: `docs/design/policy.md` on checksums.

use stere_device::{Device, DeviceError};
use stere_format::{Address, BLOCK_BYTES, BlobValue, DeviceLayout, Key, SegmentValue};
use stere_stripe::row_pieces;

use crate::execute::names;
use crate::history::{Budget, History, Stop};
use crate::medium::Survival;
use crate::model::ROOT;

const ATTRIBUTE: &[u8] = b"user.stere.checksum";

/// The polynomial of CRC32C, reflected and made whole bytes: what differs by it has the same CRC.
const UNSEEN: [u8; 5] = [0xf1, 0x76, 0xec, 0x05, 0x01];

/// What the files of a history are told, the root first; nothing if it is empty.
pub type Wishes = &'static [&'static [u8]];

/// A pool with wishes has the first of them from its first operation on.
pub(crate) fn begin_checksums(history: &mut History) -> Result<(), Stop> {
    match history.plan.pool.checksums.first() {
        None => Ok(()),
        Some(first) => {
            names::put_policy(history, ROOT, ATTRIBUTE, first)?;
            history.sync_all()
        }
    }
}

/// This file or directory is to be known by something else from now on.
pub(crate) fn wish_checksum(history: &mut History, inode: u64, pick: usize) -> Result<(), Stop> {
    let wishes = history.plan.pool.checksums;
    if wishes.is_empty() { Ok(()) } else { names::put_policy(history, inode, ATTRIBUTE, wishes[pick % wishes.len()]) }
}

/// A change that no CRC tells is found where there is a digest (P-120).
pub(crate) fn prove_digests(history: &mut History) -> Result<(), Stop> {
    let is_whole =
        history.summary.changes == 0 && !history.pool.has_struck(|_| true) && history.pool.kept_image.is_none();
    if history.plan.pool.checksums.is_empty()
        || !is_whole
        || history.pool.away().is_some()
        || history.pool.has_lost_member()
    {
        return Ok(());
    }
    // What the tail of the journal alone tells of is proven by the next mount, and would be cut.
    let kept = history.mounted().store.checkpoint();
    history.must("checkpoint", kept.map_err(stere_naming::Error::from))?;
    history.note_commit();
    let Some((blob, value, segment)) = blob_with_digest(history) else { return Ok(()) };
    let fork = history.machine.fork(history.random.fork());
    fork.power_off();
    fork.power_on(&mut |_, _| Survival::Everything);
    let Address { row_block, offset, .. } = value.address;
    let place = &segment.place;
    let range = u64::from(offset)..u64::from(offset + value.address.length.min(BLOCK_BYTES as u32));
    let copies = if place.scheme.data == 1 { place.scheme.width() } else { 1 };
    for piece in row_pieces(place.scheme, row_block, range).take(1) {
        for chunk in (piece.chunk..).take(copies) {
            let device = usize::from(place.chunks[chunk].device);
            let layout = DeviceLayout::for_size(history.plan.pool.device_bytes[device], history.plan.pool.chunk_bytes);
            let start = layout.ok().and_then(|layout| layout.slot_offset(place.chunks[chunk].slot));
            let start = start.expect("a chunk has a place on its device");
            // One that dies meanwhile proves nothing.
            if forge(&*fork.devices()[device], start + piece.chunk_offset).is_err() {
                return Ok(());
            }
        }
    }
    let failed = |text: String| Stop::Failure(format!("blob {blob}, changed where no CRC tells it: {text}"));
    let mounted = match history.plan.pool.mount(&fork) {
        // A write that went astray may have hit metadata that memory has, and that has no other copy.
        Err(_) if history.plan.budget == Budget::Beyond => return Ok(()),
        outcome => outcome.map_err(failed)?,
    };
    let report = mounted.store.scrubber.scrub().map_err(|error| failed(error.to_string()))?;
    history.summary.digests_proven += 1;
    let is_found = report.repaired_blocks > 0 || report.unrepairable.iter().any(|damage| damage.blob == Some(blob));
    if is_found { Ok(()) } else { Err(failed(format!("a scrub says {report:?}"))) }
}

/// One of those that are on devices and long enough, and where it lies.
fn blob_with_digest(history: &mut History) -> Option<(u64, BlobValue, SegmentValue)> {
    let store = history.mounted().store.clone();
    let (mut blobs, mut segments) = (Vec::new(), std::collections::BTreeMap::new());
    let of = |tree| (Key::new(tree, 0, 0, 0), Key::new(tree + 1, 0, 0, 0));
    let (from, to) = of(stere_format::key::tree::SEGMENTS);
    store
        .for_each_key(from, to, |key, bytes| {
            segments.extend(SegmentValue::decode(bytes).ok().map(|value| (key.object, value)));
        })
        .ok()?;
    // A crash may have come before a device that was added was counted.
    let devices = history.plan.pool.device_bytes.len();
    let is_known =
        |segment: &SegmentValue| segment.place.chunks.iter().all(|chunk| usize::from(chunk.device) < devices);
    let (from, to) = of(stere_format::key::tree::BLOBS);
    store
        .for_each_key(from, to, |key, bytes| {
            let value = BlobValue::decode(bytes).ok().filter(|value| value.checksums.has_digest());
            let value = value.filter(|value| value.address.length as usize >= UNSEEN.len());
            let is_local = |value: &BlobValue| {
                let segment: Option<&SegmentValue> = segments.get(&value.address.segment);
                segment.is_some_and(|segment| {
                    segment.place.missing == 0 && segment.tertiary.there == 0 && is_known(segment)
                })
            };
            blobs.extend(value.filter(is_local).map(|value| (key.object, value)));
        })
        .ok()?;
    if blobs.is_empty() {
        return None;
    }
    let at = history.random.below(blobs.len() as u64) as usize;
    let (blob, value) = blobs.swap_remove(at);
    let segment = segments.remove(&value.address.segment)?;
    Some((blob, value, segment))
}

/// Changes the bytes from here on so that the CRC of what they are in stays the same.
fn forge(device: &dyn Device, at: u64) -> Result<(), DeviceError> {
    let start = at / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let mut blocks = vec![0; 2 * BLOCK_BYTES];
    device.read(start, &mut blocks)?;
    let from = (at - start) as usize;
    blocks[from..from + UNSEEN.len()].iter_mut().zip(UNSEEN).for_each(|(byte, unseen)| *byte ^= unseen);
    device.write_bytes(start, &blocks)?;
    device.flush()
}
