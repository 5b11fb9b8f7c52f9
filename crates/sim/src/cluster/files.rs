//! Files of the area `cluster`, below naming: an inode, whose value names a blob and what it holds.
//!
//! Invariant: what a file holds follows from its seed, so nobody has to keep it. Read next: `cluster.rs`.

use stere_format::{Key, Scheme, Site};
use stere_store::{Error, Io, Owner, Piece, Placement, Store};

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
    let inode = store.update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        transaction.insert_blob(&blob);
        let mut value = file.blob.to_le_bytes().to_vec();
        value.extend(file.length.to_le_bytes());
        value.extend(file.seed.to_le_bytes());
        transaction.put(Key::inode(inode), &value);
        Ok::<_, Error>(inode)
    })?;
    Ok((inode, file))
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
