//! Naming what is lost: which files lose which bytes when devices are gone, by path.
//!
//! Walks the name space, so that every path is at hand when it is needed and memory is bounded by the depth of
//! directories; where no segment is lost nothing is walked. Whole blocks are lost: exactly those whose reads fail.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use stere_format::FileKind;
use stere_store::{Io, Loss, Store};

use crate::error::Error;
use crate::names::Names;
use crate::walk::Walk;

/// Extents looked at in one view.
const EXTENTS_PER_VIEW: usize = 256;
/// Ranges told of one file at most; the bytes of all are counted.
const RANGES_MAX: usize = 1024;

/// A file that loses content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostFile {
    pub inode: u64,
    /// From the root of the pool. A file with several names is told once for each.
    pub path: Vec<u8>,
    pub size_bytes: u64,
    pub lost_bytes: u64,
    /// What is lost, in order, neighbours together; of very many the first ones.
    pub ranges: Vec<Range<u64>>,
    /// Whether there are more than `ranges` tells.
    pub has_more_ranges: bool,
    /// Whether it was told before, by another of its names.
    pub is_repeated: bool,
}

/// Calls `visit` for every file that loses content, until it breaks.
pub fn lost_files(store: &Store, loss: &Loss, visit: &mut dyn FnMut(LostFile) -> ControlFlow<()>) -> Result<(), Error> {
    if loss.is_nothing() {
        return Ok(());
    }
    // Only lost files with several names are remembered.
    let mut told: BTreeSet<u64> = BTreeSet::new();
    // Nobody asks for keys to tell what is lost.
    let names = Names::without_keys(&store.hash_key());
    // Names that were put away are of files that are on volumes.
    let mut walk = Walk::everything().passing_over();
    while let Some(met) = walk.next(store, &names, Io::BLOCKING)? {
        if met.kind != FileKind::File {
            continue;
        }
        let Some(mut file) = lost_of(store, loss, met.inode)? else { continue };
        file.path = walk.path().to_vec();
        let links = store.view(Io::BLOCKING, |view| stere_file::inode_if_any(view, met.inode))?;
        if let Some(value) = links {
            file.size_bytes = value.size;
            file.is_repeated = value.nlink > 1 && !told.insert(met.inode);
        }
        if visit(file).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// How many bytes of a file cannot be read now: known to be damaged, or on devices that are away.
pub fn unreadable_bytes(store: &Store, io: Io<'_>, inode: u64) -> Result<u64, Error> {
    if !store.damage().has_damage() && !store.losses.is_any_away() {
        return Ok(0);
    }
    let (mut bytes, mut from) = (0, Some(0));
    while let Some(at) = from {
        let (extents, next) = stere_file::stored_extents(store, io, inode, at, EXTENTS_PER_VIEW)?;
        for extent in extents {
            let (first, behind) = (extent.blob_offset, extent.blob_offset + extent.length);
            let lost = store.losses.unreadable_ranges(&extent.blob);
            let within = lost.into_iter().map(|range| range.end.min(behind).saturating_sub(range.start.max(first)));
            let lost_bytes = within.map(u64::from).sum::<u64>();
            assert!(lost_bytes <= u64::from(extent.length), "{lost_bytes} bytes are lost of {}", extent.length);
            bytes += lost_bytes;
        }
        from = next;
    }
    Ok(bytes)
}

/// What one file loses, if anything.
fn lost_of(store: &Store, loss: &Loss, inode: u64) -> Result<Option<LostFile>, Error> {
    let mut lost = LostFile {
        inode,
        path: Vec::new(),
        size_bytes: 0,
        lost_bytes: 0,
        ranges: Vec::new(),
        has_more_ranges: false,
        is_repeated: false,
    };
    let mut from = Some(0);
    while let Some(at) = from {
        let (extents, next) = stere_file::stored_extents(store, Io::BLOCKING, inode, at, EXTENTS_PER_VIEW)?;
        for extent in extents {
            let (first, behind) = (extent.blob_offset, extent.blob_offset + extent.length);
            for range in loss.lost_ranges(&extent.blob) {
                let (start, end) = (range.start.max(first), range.end.min(behind));
                if start < end {
                    let in_file = |at: u32| extent.start + u64::from(at - first);
                    lost.add(in_file(start)..in_file(end));
                }
            }
        }
        from = next;
    }
    let told: u64 = lost.ranges.iter().map(|range| range.end - range.start).sum();
    assert!(told == lost.lost_bytes || lost.has_more_ranges, "{told} bytes are told of {}", lost.lost_bytes);
    Ok((lost.lost_bytes > 0).then_some(lost))
}

impl LostFile {
    fn add(&mut self, range: Range<u64>) {
        let is_in_order = self.ranges.last().is_none_or(|last| last.end <= range.start);
        assert!(range.start < range.end && is_in_order, "{range:?} is lost behind what was told before");
        self.lost_bytes += range.end - range.start;
        if let Some(last) = self.ranges.last_mut().filter(|last| last.end == range.start) {
            last.end = range.end;
        } else if self.ranges.len() < RANGES_MAX {
            self.ranges.push(range);
        } else {
            self.has_more_ranges = true;
        }
    }
}
