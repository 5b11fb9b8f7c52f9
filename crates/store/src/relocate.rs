//! Changing how blobs are stored: the same relocation as cleaning, to the stream that a policy asks for.
//!
//! A blob is appended to the new stream and then its entry changes, both durable by the same commit; the old copy goes only
//! after that, when its segment is emptied or cleaned. So a crash leaves the old copy or the new one, each whole and with its
//! full protection. Blobs that several files share move once, for all of them. Read next: `clean.rs`.

use std::collections::VecDeque;

use stere_device::planted::{Bug, is_planted};
use stere_format::{
    BlobEncoding, BlobFlags, BlobValue, BlockBitmap, DeviceIndex, Scheme, block_checksums, sector_aligned,
};
use stere_log::{StreamKey, Wait};

use crate::Store;
use crate::error::Error;
use crate::view::BlobHandle;
use crate::write::{Owner, Placement};

/// Blobs that move are read in groups of so many bytes: device reads beside each other make full use of slow devices.
const READ_TOGETHER_BYTES: usize = 8 << 20;

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
        let flags = self.flags;
        BlobValue { encoding, flags, present, checksums: block_checksums(&self.stored), ..old.clone() }
    }
}

impl Move {
    fn stored_bytes(&self) -> u64 {
        let stored = self.recoded.as_ref().map_or(self.blob.value.address.length, |new| new.stored.len() as u32);
        u64::from(sector_aligned(stored))
    }
}

/// What came of moving blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Stored bytes that lie in the new place now.
    pub bytes: u64,
    /// Blobs that were changed or removed meanwhile: whoever looks again sees their new state.
    pub overtaken: u32,
    /// Blobs whose content cannot be read: they stay as they are.
    pub damaged: u32,
}

fn raw_bytes(scheme: Scheme, bytes: u64) -> u64 {
    bytes * scheme.width() as u64 / u64::from(scheme.data)
}

impl Store {
    /// Moves blobs to the stream of this placement, in one update. Durable with the next commit; until then, and where it
    /// fails, the old copies are what counts.
    pub fn relocate(&self, moves: &[Move], placement: Placement, home: Option<DeviceIndex>) -> Result<Moved, Error> {
        self.relocate_to(moves, placement, home, 0)
    }

    /// The same to a stream whose segments are copied to these tertiary volumes. Until all of them have it, and as long as nobody
    /// releases it, the content lies on devices as this placement says.
    pub fn archive(&self, moves: &[Move], placement: Placement, tertiary: u16) -> Result<Moved, Error> {
        assert!(tertiary != 0, "archiving is to volumes");
        self.volumes.note_archived(moves.iter().map(Move::stored_bytes).sum());
        self.relocate_to(moves, self.staging_placement(placement), None, self.in_place_of(tertiary))
    }

    fn relocate_to(
        &self,
        moves: &[Move],
        placement: Placement,
        home: Option<DeviceIndex>,
        tertiary: u16,
    ) -> Result<Moved, Error> {
        self.check_writable()?;
        self.bound_unproven(Wait::Allowed)?;
        let mut placement = placement;
        if is_planted(Bug::RelocatedToFewer) {
            placement.scheme.parity = placement.scheme.parity.saturating_sub(1);
        }
        let scheme = self.fit(placement.scheme);
        // What takes less room than before needs none to be free in the books.
        let before = |one: &Move| u64::from(sector_aligned(one.blob.value.address.length));
        let grown = |one: &Move| {
            raw_bytes(scheme, one.stored_bytes()).saturating_sub(raw_bytes(one.blob.scheme(), before(one)))
        };
        let _room_until_entered = match moves.iter().map(grown).sum::<u64>() {
            0 => None,
            _ => Some(self.reserve(Wait::Allowed, placement, moves.iter().map(Move::stored_bytes).sum())?),
        };
        let key = StreamKey { tertiary, ..self.stream_key(placement, 0, home) };
        let mut moved = Moved::default();
        let mut appended = Vec::with_capacity(moves.len());
        let mut read: VecDeque<Option<Vec<u8>>> = VecDeque::new();
        for (index, one) in moves.iter().enumerate() {
            if one.recoded.is_none() && read.is_empty() {
                read = self.read_together(&moves[index..]);
            }
            let mut stored = if one.recoded.is_none() { read.pop_front().flatten() } else { None };
            let (inode, offset) = (one.owner.inode, one.owner.offset);
            let mut copy = || match &one.recoded {
                None => match stored.take() {
                    Some(stored) => self.append_live(&one.blob, stored, inode, offset, &key),
                    None => self.append_copy(&one.blob, inode, offset, &key),
                },
                Some(new) => {
                    let value = new.value(&one.blob.value);
                    self.append_stored(one.blob.id, value, &new.stored, inode, offset, &key)
                }
            };
            let copied = match copy() {
                Err(Error::NoSpace) => {
                    self.make_room(&StreamKey { home: None, ..key })?;
                    copy()
                }
                other => other,
            };
            match copied {
                Ok((value, to)) => appended.push((&one.blob, value, to)),
                Err(Error::Damaged { .. }) => moved.damaged += 1,
                Err(error) => return Err(error),
            }
        }
        let entered: Vec<bool> = self.update(Wait::Allowed, |transaction| {
            appended.iter().map(|(blob, value, to)| transaction.move_blob(blob, value, to)).collect()
        })?;
        for ((_, value, _), is_entered) in appended.iter().zip(entered) {
            match is_entered {
                true => moved.bytes += u64::from(sector_aligned(value.address.length)),
                false => moved.overtaken += 1,
            }
        }
        Ok(moved)
    }

    /// What is stored of the first of these blobs that keep their encoding, read from all devices at once; nothing in the place of each
    /// if some of it cannot be read so: then each is read alone, and those that are damaged are told apart.
    fn read_together(&self, moves: &[Move]) -> VecDeque<Option<Vec<u8>>> {
        let kept = || moves.iter().filter(|one| one.recoded.is_none()).map(|one| &one.blob);
        let mut read = Vec::new();
        let mut bytes = 0;
        // The content of a released segment comes from volumes, record by record.
        for blob in kept().take_while(|blob| !blob.is_released()) {
            let length = blob.value.address.length as usize;
            bytes += length;
            if bytes > READ_TOGETHER_BYTES && !read.is_empty() {
                break;
            }
            read.push(vec![0; length]);
        }
        if read.is_empty() {
            return VecDeque::from([None]);
        }
        let wanted = kept().zip(&mut read).map(|(blob, into)| (blob, &mut into[..])).collect();
        match self.read_stored(Wait::Allowed, wanted) {
            Ok(()) => read.into_iter().map(Some).collect(),
            Err(_) => read.into_iter().map(|_| None).collect(),
        }
    }
}
