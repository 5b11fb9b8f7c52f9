//! What no name leads to: inodes without names, blobs without inodes, and pieces that are found only in the segments.
//!
//! A summary tells of each blob its id, inode, place in the file and checksum. Ids are handed out once, so a blob that is found
//! by its id is the blob; where a crash let an id be handed out twice the two differ, and then neither is believed. What is
//! certainly dead (the blob map is whole there and does not know it) is left. Memory: one entry for each blob that is looked for.

use std::collections::{BTreeMap, HashMap, HashSet};

use stere_crypt::Place;
use stere_format::{
    Address, BLOCK_BYTES, BlobEncoding, BlobValue, BlockBitmap, FileKind, InodeValue, Key, RecordSubject, SegmentKind,
    SegmentValue, key,
};

use crate::content::{Hole, Piece};
use crate::error::Error;
use crate::keys::Trust;
use crate::sink::Verdict;
use crate::unlock::Unlocked;
use crate::walk::Walk;

const BLOCK: u32 = BLOCK_BYTES as u32;

/// A copy of a blob that a summary tells of.
#[derive(Clone)]
struct Seen {
    blob: u64,
    inode: u64,
    file_offset: u64,
    logical_bytes: u32,
    present: BlockBitmap,
    encoding: BlobEncoding,
    address: Address,
    crc32c: u32,
}

impl Seen {
    /// The present blocks, from what is stored of them. What is encoded otherwise than the blob map says is not the blob, or
    /// not the one that is meant; what is encoded as it says must be what it says byte for byte.
    fn content(
        &self,
        unlocked: &Unlocked,
        inode: u64,
        offset: u64,
        stored: Vec<u8>,
        value: Option<&BlobValue>,
    ) -> Option<Vec<u8>> {
        if value.is_some_and(|value| value.encoding != self.encoding || value.logical_bytes != self.logical_bytes) {
            return None;
        }
        if self.encoding == BlobEncoding::PLAIN {
            return Some(stored);
        }
        if value.is_some_and(|value| !value.checksums.are_of(&stored)) {
            return None;
        }
        let place = Place { inode, offset, logical_bytes: self.logical_bytes, encoding: self.encoding.0 };
        unlocked.content(&place, stored)
    }
}

impl Walk<'_> {
    /// Copies what names do not lead to, and looks for the pieces that are still wanted.
    pub fn lost_and_found(&mut self) -> Result<(), Error> {
        let nameless = self.nameless_inodes();
        let mut is_entered = false;
        if !nameless.is_empty() {
            is_entered = self.enter_lost_and_found()?;
            if is_entered {
                self.copy_nameless(&nameless)?;
            }
        }
        let is_tree_damaged = !self.keys.damaged_nodes.is_empty() || self.report.state.root == "segments";
        let wanted: HashSet<u64> = self.holes.iter().flat_map(|hole| &hole.pieces).map(|piece| piece.blob).collect();
        if (is_tree_damaged || !wanted.is_empty()) && !self.names_only {
            let seen = self.search_nodes(&wanted, is_tree_damaged);
            let holes = std::mem::take(&mut self.holes);
            let (found, loose) = seen;
            if !loose.is_empty() {
                is_entered = is_entered || self.enter_lost_and_found()?;
                if is_entered {
                    self.copy_loose(loose)?;
                }
            }
            self.leave_lost_and_found(is_entered)?;
            for hole in holes {
                self.fill(hole, &found)?;
            }
            return Ok(());
        }
        self.leave_lost_and_found(is_entered)?;
        for hole in std::mem::take(&mut self.holes) {
            self.fill(hole, &HashMap::new())?;
        }
        Ok(())
    }

    fn enter_lost_and_found(&mut self) -> Result<bool, Error> {
        assert!(self.path.is_empty(), "lost+found is made at the top");
        let Some(name) = self.named_as(b"lost+found", |sink, name| sink.enter(name))? else { return Ok(false) };
        self.path = [b"/", name.as_slice()].concat();
        Ok(true)
    }

    fn leave_lost_and_found(&mut self, is_entered: bool) -> Result<(), Error> {
        if is_entered {
            let outcome = self.sink.leave(None);
            self.check(outcome)?;
        }
        self.path.clear();
        Ok(())
    }

    /// Inodes that exist, that no name led to, and that are not just waiting to be freed; with their kind and parent.
    fn nameless_inodes(&mut self) -> BTreeMap<u64, (FileKind, u64)> {
        let mut nameless = BTreeMap::new();
        let mut next = Some(Key::new(key::tree::NAMES, 0, 0, 0));
        while let Some(from) = next {
            let batch = self.keys.scan(from, Key::new(key::tree::NAMES + 1, 0, 0, 0));
            next = batch.next;
            for (at, bytes, _) in batch.entries {
                if self.visited.contains(at.object) {
                    continue;
                }
                match at.kind {
                    key::kind::INODE => {
                        let Ok(value) = InodeValue::decode(&bytes) else { continue };
                        if let Some(kind) = value.kind().filter(|_| value.nlink > 0) {
                            nameless.insert(at.object, (kind, value.parent));
                        } else {
                            // Removed; not to come back by its extents either.
                            self.visited.insert(at.object);
                        }
                    }
                    key::kind::EXTENT => {
                        nameless.entry(at.object).or_insert((FileKind::File, 0));
                    }
                    key::kind::DIRENT => {
                        nameless.entry(at.object).or_insert((FileKind::Directory, 0));
                    }
                    _ => {}
                }
            }
        }
        nameless
    }

    /// Copies them into the current directory; directories from the uppermost one that has no name.
    fn copy_nameless(&mut self, nameless: &BTreeMap<u64, (FileKind, u64)>) -> Result<(), Error> {
        for inode in nameless.iter().filter(|(_, (kind, _))| *kind == FileKind::Directory).map(|(inode, _)| *inode) {
            let mut top = inode;
            let mut path = HashSet::from([top]);
            while let Some((_, parent)) = nameless.get(&top) {
                let is_above = nameless.get(parent).is_some_and(|(kind, _)| *kind == FileKind::Directory);
                if !is_above || self.visited.contains(*parent) || !path.insert(*parent) {
                    break;
                }
                top = *parent;
            }
            for inode in [top, inode] {
                if !self.visited.contains(inode) {
                    self.report.counts.nameless += 1;
                    self.nameless_directory(inode)?;
                }
            }
        }
        for (inode, (kind, _)) in nameless {
            if !self.visited.contains(*inode) {
                self.report.counts.nameless += 1;
                self.leaf(inode.to_string().as_bytes(), *inode, *kind, Trust::Certain)?;
            }
        }
        Ok(())
    }

    /// Goes through the summaries of all data segments: copies of wanted blobs, and blobs that nothing names any more.
    fn search_nodes(&mut self, wanted: &HashSet<u64>, with_loose: bool) -> (HashMap<u64, Vec<Seen>>, Vec<Seen>) {
        let mut found: HashMap<u64, Vec<Seen>> = HashMap::new();
        let mut loose: Vec<Seen> = Vec::new();
        let segments = self.keys.media.found();
        for (segment, it) in segments.iter().filter(|(_, it)| it.kind == SegmentKind::Data) {
            // Where the segment table tells of the segment, what an abandoned history left under its number does not count.
            let told = self.keys.get(&Key::segment(*segment)).0.and_then(|bytes| SegmentValue::decode(&bytes).ok());
            let mut ways = match told {
                None => it.ways(),
                // Its copies on volumes count as its chunks do, of which a released one has none.
                Some(value) if !value.tertiary.is_none() => [vec![value.place], it.ways()].concat(),
                Some(value) => vec![value.place],
            };
            ways.retain(|place| !place.chunks.is_empty());
            let mut seen: Vec<Seen> = Vec::new();
            for place in &ways {
                self.keys.media.rows(*segment, place, |row| {
                    seen.extend(row.entries.iter().filter_map(|entry| {
                        let RecordSubject::Blob { blob, inode, file_offset, logical_bytes, encoding, present } =
                            entry.subject
                        else {
                            return None;
                        };
                        let (address, crc32c) = (row.address(entry)?, entry.crc32c);
                        let seen = Seen { blob, inode, file_offset, logical_bytes, present, encoding, address, crc32c };
                        encoding.is_known().then_some(seen)
                    }));
                });
            }
            for seen in seen {
                if wanted.contains(&seen.blob) {
                    found.entry(seen.blob).or_default().push(seen.clone());
                }
                if with_loose && self.is_loose(&seen) {
                    loose.push(seen);
                }
            }
        }
        (found, loose)
    }

    /// Whether nothing names a blob any more although it may be alive.
    fn is_loose(&mut self, seen: &Seen) -> bool {
        let is_unknown = !self.visited.contains(seen.inode) || self.lost_extents.contains(&seen.inode);
        if self.named.contains(seen.blob) || !is_unknown {
            return false;
        }
        match self.keys.get(&Key::blob(seen.blob)) {
            (Some(_), _) => true,
            (None, trust) => trust > Trust::Certain,
        }
    }

    /// Copies blobs without names into the current directory, one file for each inode.
    fn copy_loose(&mut self, mut loose: Vec<Seen>) -> Result<(), Error> {
        // Of one inode the later blobs lie over the earlier ones.
        loose.sort_by_key(|seen| (seen.inode, seen.blob, seen.address));
        for of_inode in loose.chunk_by(|one, next| one.inode == next.inode && one.inode != 0) {
            let Some(first) = of_inode.first() else { continue };
            let name = if first.inode == 0 { format!("blob-{}", first.blob) } else { first.inode.to_string() };
            let path_length = self.path.len();
            let Some(name) = self.named_as(name.as_bytes(), |sink, name| sink.create(name))? else { continue };
            self.path.push(b'/');
            self.path.extend_from_slice(&name);
            let (mut end, mut is_lost) = (0, false);
            for versions in of_inode.chunk_by(|one, next| one.blob == next.blob) {
                let Some(first) = versions.first() else { continue };
                end = end.max(first.file_offset.saturating_add(first.logical_bytes.into()));
                let blocks: Vec<u32> =
                    versions.iter().fold(BlockBitmap::EMPTY, |all, seen| union(all, seen.present)).iter().collect();
                let contents = self.contents(versions, None, (first.inode, first.file_offset));
                for block in blocks {
                    match contents.get(&block) {
                        Some(bytes) => {
                            let offset = first.file_offset.saturating_add(u64::from(block * BLOCK));
                            let outcome = self.sink.write(offset, bytes);
                            self.report.counts.bytes += bytes.len() as u64;
                            self.check(outcome)?;
                        }
                        None => is_lost = true,
                    }
                }
            }
            let outcome = self.sink.finish(Some(end), None);
            self.check(outcome)?;
            self.report.counts.files += 1;
            self.report.counts.nameless += 1;
            let verdict = if is_lost { Verdict::Damaged } else { Verdict::Older };
            if is_lost {
                self.damage(first.inode, "parts of it cannot be read".into(), Vec::new());
            }
            self.tell(first.inode, FileKind::File, end, verdict);
            self.path.truncate(path_length);
        }
        Ok(())
    }

    /// The blocks of a blob that some copy of it gives; none of those in which copies differ. What the blob map says of it is
    /// checked block by block, else each copy as a whole.
    /// An encrypted one opens only at the place where the blob begins: its inode, and where in the file.
    fn contents(
        &mut self,
        versions: &[Seen],
        value: Option<&BlobValue>,
        (inode, begins): (u64, u64),
    ) -> BTreeMap<u32, Vec<u8>> {
        let mut blocks: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut differing = HashSet::new();
        for seen in versions {
            let place = self.places.get(&mut self.keys, seen.address.segment);
            let is_right = |bytes: &[u8]| stere_format::crc32c(bytes) == seen.crc32c;
            let Some(bytes) = self.keys.media.record(&seen.address, place.as_deref(), &is_right) else { continue };
            let Some(bytes) = seen.content(&self.unlocked, inode, begins, bytes, value) else { continue };
            let value = value.filter(|value| value.encoding == BlobEncoding::PLAIN);
            let block_of = |index: usize| seen.present.iter().nth(index);
            for (index, content) in bytes.chunks(BLOCK_BYTES).enumerate() {
                let Some(block) = block_of(index) else { break };
                if let Some(value) = value {
                    let told = value.stored_index_of_block(block).and_then(|at| value.checksums.get(at as usize));
                    if told != Some(&stere_format::crc32c(content)) {
                        continue;
                    }
                }
                if blocks.get(&block).is_some_and(|other| other != content) {
                    differing.insert(block);
                }
                blocks.insert(block, content.to_vec());
            }
        }
        blocks.retain(|block, _| !differing.contains(block));
        blocks
    }

    /// Looks for the missing pieces of a file among the blobs that were found.
    fn fill(&mut self, hole: Hole, found: &HashMap<u64, Vec<Seen>>) -> Result<(), Error> {
        let Hole { path, inode, size, mut verdict, pieces } = hole;
        let mut lost: Vec<Piece> = Vec::new();
        let mut is_open = false;
        let mut last: Option<(u64, BTreeMap<u32, Vec<u8>>)> = None;
        for piece in pieces {
            let Some(versions) = found.get(&piece.blob) else {
                lost.push(piece);
                continue;
            };
            if last.as_ref().is_none_or(|(blob, _)| *blob != piece.blob) {
                let begins = piece.file_offset.wrapping_sub(u64::from(piece.blob_offset));
                last = Some((piece.blob, self.contents(versions, piece.value.as_deref(), (inode, begins))));
            }
            let Some((_, blocks)) = &last else { continue };
            for (part, bytes) in parts(&piece, blocks) {
                let Some(bytes) = bytes else {
                    lost.push(part);
                    continue;
                };
                if !is_open {
                    let outcome = self.sink.reopen(&path);
                    is_open = outcome.is_ok();
                    self.check(outcome)?;
                }
                if !is_open {
                    lost.push(part);
                    continue;
                }
                let outcome = self.sink.write(part.file_offset, bytes);
                self.report.counts.bytes += bytes.len() as u64;
                self.check(outcome)?;
                if piece.value.is_none() {
                    verdict = verdict.max(Verdict::Older);
                }
            }
        }
        if is_open {
            let facts = self.inode(inode);
            let outcome = self.sink.finish(facts.value.as_ref().map(|value| value.size), facts.attributes().as_ref());
            self.check(outcome)?;
        }
        if !lost.is_empty() {
            verdict = Verdict::Damaged;
            self.lost_pieces(&path, inode, &lost);
        }
        self.tell_of(&path, inode, FileKind::File, size, verdict);
        Ok(())
    }
}

fn union(one: BlockBitmap, other: BlockBitmap) -> BlockBitmap {
    let mut all = one;
    other.iter().for_each(|block| all.insert(block..block + 1));
    all
}

/// Cuts a piece at block boundaries, each part with its bytes where they were found.
fn parts<'a>(piece: &Piece, blocks: &'a BTreeMap<u32, Vec<u8>>) -> Vec<(Piece, Option<&'a [u8]>)> {
    let mut parts = Vec::new();
    let end = piece.blob_offset + piece.length;
    let mut at = piece.blob_offset;
    while at < end {
        let block = at / BLOCK;
        let part_end = end.min((block + 1) * BLOCK);
        let part = Piece {
            file_offset: piece.file_offset + u64::from(at - piece.blob_offset),
            blob_offset: at,
            length: part_end - at,
            ..piece.clone()
        };
        let within = (at % BLOCK) as usize..(at % BLOCK + part_end - at) as usize;
        parts.push((part, blocks.get(&block).and_then(|bytes| bytes.get(within))));
        at = part_end;
    }
    parts
}
