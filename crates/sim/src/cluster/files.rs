//! Files of the area `cluster`, below naming: an inode, whose value names a blob and what it holds.
//!
//! Invariant: what a file holds follows from its seed, so nobody has to keep it. Read next: `cluster.rs`.

use stere_direct::{Encoding, Nodes, Records};
use stere_format::{Key, Scheme, Site};
use stere_store::{Error, GivenRow, Io, NewBlob, Owner, Piece, Placement, Store};

use crate::random::Random;

const FILE_BYTES_MAX: u64 = 120_000;

/// A file: its blob, and what the blob holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File {
    pub(super) blob: u64,
    pub(super) length: u32,
    pub(super) seed: u64,
}

/// Word by word: histories spent most of their time here when each byte passed an iterator.
fn content(seed: u64, length: u32) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; length as usize];
    let mut words = bytes.chunks_exact_mut(8);
    words.by_ref().for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    let rest = words.into_remainder();
    rest.copy_from_slice(&random.next_u64().to_le_bytes()[..rest.len()]);
    bytes
}

/// Whether these are the bytes of a file.
pub(super) fn holds(file: &File, bytes: &[u8]) -> bool {
    let mut random = Random::new(file.seed);
    let mut words = bytes.chunks_exact(8);
    let is_right = words.by_ref().all(|word| *word == random.next_u64().to_le_bytes());
    let rest = words.remainder();
    is_right && *rest == random.next_u64().to_le_bytes()[..rest.len()] && bytes.len() == file.length as usize
}

/// Writes one more file, on one device or on two. Its inode, and what it is.
pub(super) fn write(store: &Store, random: &mut Random) -> Result<(u64, File), Error> {
    let parity = random.below(2) as u8;
    let length = random.between(1, FILE_BYTES_MAX) as u32;
    let seed = random.next_u64();
    let placement = Placement { scheme: Scheme { data: 1, parity }, class: 2, site: Site::ANYWHERE };
    let blob = store.append_blob(Io::BLOCKING, placement, Owner { inode: 0, offset: 0 }, &content(seed, length))?;
    let file = File { blob: blob.id, length, seed };
    Ok((enter(store, &blob, file)?, file))
}

/// Enters a file that has this blob.
fn enter(store: &Store, blob: &NewBlob, file: File) -> Result<u64, Error> {
    store.update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        transaction.insert_blob(blob);
        let mut value = file.blob.to_le_bytes().to_vec();
        value.extend(file.length.to_le_bytes());
        value.extend(file.seed.to_le_bytes());
        transaction.put(Key::inode(inode), &value);
        Ok::<_, Error>(inode)
    })
}

/// A row for a few files of two copies, which a machine that mounts through the owner writes.
pub(super) struct Lent {
    pub(super) row: GivenRow,
    records: Records,
    blobs: Vec<(NewBlob, File)>,
}

/// Gives a row away; none where the owner would write it itself.
pub(super) fn lend(store: &Store, random: &mut Random) -> Result<Option<Lent>, Error> {
    let scheme = Scheme { data: 1, parity: u8::from(!random.chance(1, 3)) };
    let placement = Placement { scheme, class: 2, site: Site::ANYWHERE };
    let encoding = Encoding { record_bytes: 16_384, ..Encoding::default() };
    let (mut data, mut seeds) = (Vec::new(), Vec::new());
    for _ in 0..random.between(1, 4) {
        let seed = random.next_u64();
        data.extend(content(seed, encoding.record_bytes));
        seeds.push(seed);
    }
    let records = Records::of(&encoding, None, 0, data).expect("plain content can be encoded");
    let owner = Owner { inode: 0, offset: 0 };
    let Some((row, blobs)) = store.places().give_row(placement, None, owner, records.offer.records.clone())? else {
        return Ok(None);
    };
    row.wait()?;
    let file = |(blob, seed): (NewBlob, u64)| {
        let file = File { blob: blob.id, length: encoding.record_bytes, seed };
        (blob, file)
    };
    Ok(Some(Lent { row, records, blobs: blobs.into_iter().zip(seeds).map(file).collect() }))
}

impl Lent {
    /// The machine writes; whether it was told that all is written.
    pub(super) fn write(&self, nodes: &Nodes, epoch: u64) -> bool {
        nodes.write(&self.row.grant(1, epoch), &self.records, 0).is_ok()
    }

    /// The owner takes what is written for its own.
    pub(super) fn enter(&self, store: &Store) -> Result<Vec<(u64, File)>, Error> {
        store.log().note_given_written(&self.row);
        self.blobs.iter().map(|(blob, file)| Ok((enter(store, blob, *file)?, *file))).collect()
    }
}

pub(super) fn remove(store: &Store, inode: u64, file: &File) -> Result<(), Error> {
    store.update(Io::BLOCKING, |transaction| {
        transaction.delete(Key::inode(inode));
        transaction.release_blob(file.blob, 0..file.length)
    })
}

pub(super) fn file_of(store: &Store, inode: u64) -> Result<Option<File>, Error> {
    let value = store.view(Io::BLOCKING, |view| view.get(&Key::inode(inode)))?;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(value.map(|value| File {
        blob: number(&value[..8]),
        length: number(&value[8..12]) as u32,
        seed: number(&value[12..20]),
    }))
}

pub(super) fn read(store: &Store, file: &File) -> Result<Vec<u8>, Error> {
    let blob = store.view(Io::BLOCKING, |view| view.blob(file.blob))?;
    let mut out = vec![0; file.length as usize];
    store.read_blobs(Io::BLOCKING, &[Piece { blob, offset: 0, length: file.length, at: 0 }], &mut out)?;
    Ok(out)
}
