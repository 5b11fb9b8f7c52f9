//! Changing how blobs are stored: the same relocation as cleaning, to the stream that a policy asks for.
//!
//! A blob is appended to the new stream and then its entry changes, both durable by the same commit; the old copy goes only
//! after that, when its segment is emptied or cleaned. So a crash leaves the old copy or the new one, each whole and with its
//! full protection. Blobs that several files share move once, for all of them. Read next: `clean.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use stere_device::Buffer;
use stere_faults::{Bug, is_planted};
use stere_format::{
    BlobEncoding, BlobFlags, BlobValue, BlockBitmap, ChecksumKind, Checksums, DeviceIndex, Key, Scheme, sector_aligned,
};
use stere_log::{Io, Segment, StreamKey};

use crate::clean::Cleaning;
use crate::content::{Owner, Placement};
use crate::error::Error;
use crate::make_room::Purpose;
use stere_recall::BlobHandle;

/// Blobs that move are read in groups of so many bytes: device reads beside each other make full use of slow devices.
const READ_TOGETHER_BYTES: usize = 4 << 20;
/// So often a blob that was moved or changed meanwhile is taken anew.
const TRIES_MAX: u32 = 8;

/// A blob to be moved, and whose it is.
#[derive(Clone, Debug)]
pub struct Move {
    pub blob: BlobHandle,
    pub owner: Owner,
    /// Its content in another encoding, if it is not to stay as it is.
    pub recoded: Option<Recoded>,
}

/// What is to be stored in the place of a blob's stored bytes: the same content in another encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recoded {
    pub encoding: BlobEncoding,
    pub flags: BlobFlags,
    pub checksum: ChecksumKind,
    /// In the plain encoding the live blocks only, else the whole content, with anything where it is dead.
    pub stored: Vec<u8>,
}

impl Recoded {
    fn value(&self, old: &BlobValue) -> BlobValue {
        let present = match self.encoding {
            BlobEncoding::PLAIN => old.live,
            _ => BlockBitmap::full(old.blocks()),
        };
        let encoding = if is_planted(Bug::EncodingForgotten) { old.encoding } else { self.encoding };
        // Whether others share it is as it is now, not as it was when it was recoded.
        let shared = BlobFlags(old.flags.0 & BlobFlags::SHARED.0);
        let flags = self.flags.without(BlobFlags::SHARED).with(shared);
        BlobValue { encoding, flags, present, checksums: Checksums::of(self.checksum, &self.stored), ..old.clone() }
    }
}

impl Move {
    fn stored_bytes(&self) -> u64 {
        let stored = self.recoded.as_ref().map_or(self.blob.value.address.length, |new| new.stored.len() as u32);
        u64::from(sector_aligned(stored))
    }

    /// None of what has its new encoding; the content of a released segment comes from volumes, record by record.
    fn bytes_to_read(&self) -> usize {
        match self.recoded.is_some() || self.blob.is_released() {
            true => 0,
            false => self.blob.value.address.length as usize,
        }
    }
}

/// Blobs that are read together, and what was read.
#[derive(Default)]
struct Group<'a> {
    moves: &'a [Move],
    /// How much of each is read here: asked once, because a segment may be released at any time.
    lengths: Vec<usize>,
    /// What is stored of those that are read here, one behind the other. From the pool: fresh memory would cost more than reading.
    buffer: Option<Buffer>,
    /// Not if some of it cannot be read so: then each is read alone, and those that are damaged are told apart.
    is_read: bool,
}

/// A blob to be moved, its new value, and the segment in which that lies.
type Appended<'a> = (&'a Move, BlobValue, Arc<Segment>);

/// What came of moving blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Stored bytes that lie in the new place now.
    pub bytes: u64,
    /// Blobs whose content was changed after it was recoded, or that others moved again and again: they stay as they are.
    pub overtaken: u32,
    /// Blobs whose content cannot be read: they stay as they are.
    pub damaged: u32,
}

/// Whether one has the live content of the other in the same encoding, wherever it lies and however many share it.
fn has_same_content(one: &BlobValue, other: &BlobValue) -> bool {
    let content = |value: &BlobValue| (value.encoding, value.key, value.stack, value.live, value.logical_bytes);
    content(one) == content(other)
}

fn raw_bytes(scheme: Scheme, bytes: u64) -> u64 {
    bytes * scheme.width() as u64 / u64::from(scheme.data)
}

impl Cleaning<'_> {
    /// Moves one blob to the cold stream of its scheme; without an owner where that is not known.
    pub fn relocate_blob(&self, handle: &BlobHandle, owner: Option<Owner>) -> Result<(), Error> {
        let key = self.engine.moving().cold_stream(&handle.segment);
        let owner = owner.unwrap_or(Owner { inode: 0, offset: 0 });
        let (value, to) = self.engine.moving().append_copy(handle, owner.inode, owner.offset, &key)?;
        self.engine.update(Io::BLOCKING, |transaction| transaction.move_blob(handle, &value, &to)).map(drop)
    }

    /// Moves blobs to the stream of this placement, in one update. Durable with the next commit; until then, and where it
    /// fails, the old copies are what counts.
    pub fn relocate(&self, moves: &[Move], placement: Placement, home: Option<DeviceIndex>) -> Result<Moved, Error> {
        self.relocate_to(moves, placement, home, 0, 0)
    }

    /// The same to a stream whose segments are copied to these media. Until all of them have it, and as long as nobody
    /// releases it, the content lies on devices as this placement says.
    pub fn archive(&self, moves: &[Move], placement: Placement, tertiary: u16) -> Result<Moved, Error> {
        self.archive_used(moves, placement, tertiary, 0)
    }

    /// The same for what was used last at this time.
    pub fn archive_used(
        &self,
        moves: &[Move],
        placement: Placement,
        tertiary: u16,
        used_seconds: i64,
    ) -> Result<Moved, Error> {
        assert!(tertiary != 0, "archiving is to volumes");
        self.engine.volumes.note_archived(moves.iter().map(Move::stored_bytes).sum());
        let tertiary = self.engine.volumes.with_heirs(tertiary);
        self.relocate_to(moves, placement, None, tertiary, used_seconds)
    }

    fn relocate_to(
        &self,
        moves: &[Move],
        placement: Placement,
        home: Option<DeviceIndex>,
        tertiary: u16,
        used_seconds: i64,
    ) -> Result<Moved, Error> {
        self.engine.check_writable()?;
        self.engine.bound_unproven(Io::BLOCKING)?;
        let mut placement = placement;
        if is_planted(Bug::RelocatedToFewer) {
            placement.scheme.parity = placement.scheme.parity.saturating_sub(1);
        }
        let key = StreamKey { tertiary, ..self.engine.stream_for(placement, 0, home) };
        let mut moved = Moved::default();
        let mut left = self.relocate_once(moves, placement, &key, used_seconds, &mut moved)?;
        // Cleaning moves blobs too, also on behalf of this very move where there is no room; writers change them.
        for _ in 0..TRIES_MAX {
            let again = self.taken_anew(&left, &mut moved)?;
            if again.is_empty() {
                return Ok(moved);
            }
            left = self.relocate_once(&again, placement, &key, used_seconds, &mut moved)?;
        }
        moved.overtaken += left.len() as u32;
        Ok(moved)
    }

    /// These blobs as they are now; without those that are gone, or have other content than what they were recoded to.
    fn taken_anew(&self, overtaken: &[Move], moved: &mut Moved) -> Result<Vec<Move>, Error> {
        if overtaken.is_empty() {
            return Ok(Vec::new());
        }
        let now: Vec<Move> = self.engine.view(Io::BLOCKING, |view| {
            let mut now = Vec::with_capacity(overtaken.len());
            for one in overtaken {
                if let Some(bytes) = view.get(&Key::blob(one.blob.id))? {
                    now.push(Move { blob: view.handle(one.blob.id, &bytes)?, ..one.clone() });
                }
            }
            Ok::<_, Error>(now)
        })?;
        let before: BTreeMap<u64, &BlobHandle> = overtaken.iter().map(|one| (one.blob.id, &one.blob)).collect();
        let is_as_recoded = |one: &Move| has_same_content(&one.blob.value, &before[&one.blob.id].value);
        let (again, changed): (Vec<Move>, Vec<Move>) =
            now.into_iter().partition(|one| one.recoded.is_none() || is_as_recoded(one));
        moved.overtaken += changed.len() as u32;
        Ok(again)
    }

    /// Moves them; returns those that were moved or changed by others meanwhile.
    fn relocate_once(
        &self,
        moves: &[Move],
        placement: Placement,
        key: &StreamKey,
        used_seconds: i64,
        moved: &mut Moved,
    ) -> Result<Vec<Move>, Error> {
        let scheme = self.engine.places().fit_for(placement);
        // What takes less room than before needs none to be free in the books.
        let before = |one: &Move| u64::from(sector_aligned(one.blob.value.address.length));
        let grown = |one: &Move| {
            raw_bytes(scheme, one.stored_bytes()).saturating_sub(raw_bytes(one.blob.scheme(), before(one)))
        };
        let _room_until_entered = match moves.iter().map(grown).sum::<u64>() {
            0 => None,
            _ => Some(self.engine.space().reserve(
                Io::BLOCKING,
                placement,
                moves.iter().map(Move::stored_bytes).sum(),
            )?),
        };
        let appended = self.append_groups(moves, key, moved)?;
        let entered: Vec<bool> = self.engine.update(Io::BLOCKING, |transaction| {
            appended.iter().map(|(one, value, to)| transaction.move_blob(&one.blob, value, to)).collect()
        })?;
        let mut overtaken = Vec::new();
        for ((one, value, to), is_entered) in appended.into_iter().zip(entered) {
            to.heat.inherit(u64::try_from(used_seconds).unwrap_or(0));
            match is_entered {
                true => moved.bytes += u64::from(sector_aligned(value.address.length)),
                false => overtaken.push(one.clone()),
            }
        }
        Ok(overtaken)
    }

    /// Appends all of them, group after group; while one is appended the next is read, where devices bring threads.
    fn append_groups<'a>(
        &self,
        moves: &'a [Move],
        key: &StreamKey,
        moved: &mut Moved,
    ) -> Result<Vec<Appended<'a>>, Error> {
        let damaged_before = moved.damaged;
        let mut appended = Vec::with_capacity(moves.len());
        let (mut current, mut following) = (Group::default(), Group::default());
        let mut rest = self.read_group(moves, &mut current);
        while !current.moves.is_empty() {
            let mut outcome = Ok(());
            let next = rest;
            let read = Box::new(|| rest = self.read_group(next, &mut following));
            let append = Box::new(|| outcome = self.append_group(&current, key, &mut appended, moved));
            self.engine.log.stripe.run_beside(vec![read], append);
            outcome?;
            std::mem::swap(&mut current, &mut following);
        }
        let damaged = (moved.damaged - damaged_before) as usize;
        assert_eq!(appended.len() + damaged, moves.len(), "each blob is appended elsewhere, or is damaged");
        Ok(appended)
    }

    /// Takes the first of these blobs and reads what is stored of them from all devices at once; returns the others.
    fn read_group<'a>(&self, moves: &'a [Move], group: &mut Group<'a>) -> &'a [Move] {
        group.lengths.clear();
        let mut bytes = 0;
        for one in moves {
            let length = one.bytes_to_read();
            if bytes + length > READ_TOGETHER_BYTES && bytes > 0 {
                break;
            }
            bytes += length;
            group.lengths.push(length);
        }
        assert!(moves.is_empty() || !group.lengths.is_empty(), "a group takes one blob at least");
        let (first, rest) = moves.split_at(group.lengths.len());
        group.moves = first;
        // Given back before another one is taken.
        group.buffer = None;
        let buffer = group.buffer.insert(self.engine.log.stripe.buffers().take(bytes));
        let mut left = &mut buffer[..];
        let mut wanted = Vec::with_capacity(first.len());
        for (one, length) in first.iter().zip(&group.lengths).filter(|(_, length)| **length > 0) {
            let (into, behind) = std::mem::take(&mut left).split_at_mut(*length);
            wanted.push((&one.blob, into));
            left = behind;
        }
        assert!(left.is_empty(), "{} bytes of the buffer are read for no blob", left.len());
        group.is_read = wanted.is_empty() || self.engine.read_stored(Io::BLOCKING, wanted).is_ok();
        rest
    }

    fn append_group<'a>(
        &self,
        group: &Group<'a>,
        key: &StreamKey,
        appended: &mut Vec<Appended<'a>>,
        moved: &mut Moved,
    ) -> Result<(), Error> {
        let mut left = group.buffer.as_deref().unwrap_or_default();
        for (one, length) in group.moves.iter().zip(&group.lengths) {
            let (read, behind) = left.split_at(*length);
            left = behind;
            let stored = Some(read).filter(|read| group.is_read && !read.is_empty());
            let copied = match self.append_moved(one, stored, key) {
                Err(Error::NoSpace) => {
                    self.make_room(&StreamKey { home: None, ..*key }, Purpose::Refusable)?;
                    self.append_moved(one, stored, key)
                }
                other => other,
            };
            match copied {
                Ok((value, to)) => appended.push((one, value, to)),
                Err(Error::Damaged { .. }) => moved.damaged += 1,
                Err(error) => return Err(error),
            }
        }
        assert!(left.is_empty(), "{} bytes were read of no blob", left.len());
        Ok(())
    }

    fn append_moved(
        &self,
        one: &Move,
        stored: Option<&[u8]>,
        key: &StreamKey,
    ) -> Result<(BlobValue, Arc<Segment>), Error> {
        let (inode, offset) = (one.owner.inode, one.owner.offset);
        match (&one.recoded, stored) {
            (None, Some(stored)) => self.engine.moving().append_live(&one.blob, stored, inode, offset, key),
            (None, None) => self.engine.moving().append_copy(&one.blob, inode, offset, key),
            (Some(new), _) => {
                let value = new.value(&one.blob.value);
                self.engine.moving().append_stored(one.blob.id, value, &new.stored, inode, offset, key)
            }
        }
    }
}
