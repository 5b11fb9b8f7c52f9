//! Between a file's bytes and what is stored of them: records pass the users' plugins that the file has, are compressed and
//! encrypted when they are appended, and the other way when they are read.
//!
//! A blob is one record, so a read decodes only those that it touches. The last few that were decoded for a part of them are
//! kept, for those who read on from there. A blob's content never changes, so its number is enough to know it by.
//! Files that ask for no encoding, and blobs that have none, pass through here with one look at a byte. What has a digest is read as a
//! whole too, so that no byte of it is given that the digest does not speak for.
//! Read next: the crates plugin and crypt, `encrypted.rs`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use stere_crypt::{CryptError, DataKey, Keyring, Place, RECORD_EXTRA_BYTES};
use stere_device::BufferPool;
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobFlags, BlobValue, ChecksumKind, DeviceIndex, SECTOR_BYTES};
use stere_plugin::{Coders, Encoded};
use stere_store::{BlobHandle, Content, Io, NewBlob, Owner, Piece, Recoded, Store};

use crate::context::Context;
use crate::encoding::{AskedEncoding, Decoded, Known, STORED_BYTES_KEPT, Storing};
use crate::error::Error;
use crate::pieces::{fill_holes, gather};
use crate::plugins::Plugins;
use crate::record::RECORD_BYTES;

const _: () = assert!(RECORD_EXTRA_BYTES <= SECTOR_BYTES, "encryption makes a record larger by a sector at most");

/// A blob and its place in the file.
pub(crate) struct Appended {
    pub start: u64,
    pub blob: NewBlob,
}

impl Appended {
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.blob.length())
    }
}

/// A record that passed plugins and compression, as it is to be encrypted and stored.
#[derive(Debug)]
pub(crate) struct Passed<'data> {
    bytes: Cow<'data, [u8]>,
    logical_bytes: u32,
    encoding: BlobEncoding,
    stack: u16,
    gave_up: BlobFlags,
    /// A planted bug left it as it was.
    is_passed_over: bool,
}

impl Passed<'_> {
    fn content(&self, checksum: ChecksumKind) -> Content<'_> {
        let Passed { logical_bytes, encoding, stack, gave_up: flags, .. } = *self;
        Content { stored: &self.bytes, logical_bytes, encoding, key: 0, stack, flags, checksum }
    }
}

/// What plugins and compression make of a record.
fn pass<'data>(storing: &Storing, data: &'data [u8]) -> Result<Passed<'data>, Error> {
    let logical_bytes = u32::try_from(data.len()).expect("a record is far below 4 GiB");
    let (encoding, gave_up) = (BlobEncoding::PLAIN, BlobFlags::NONE);
    let plain =
        Passed { bytes: Cow::Borrowed(data), logical_bytes, encoding, stack: 0, gave_up, is_passed_over: false };
    if !storing.is_coded() {
        return Ok(plain);
    }
    let stack = storing.stack.as_ref();
    let made = match stere_plugin::encode_record(stack.map(|(_, stack)| &**stack), storing.compression, data) {
        Err(_) if is_planted(Bug::PluginPassedOver) => return Ok(Passed { is_passed_over: true, ..plain }),
        made => made.map_err(Error::Plugin)?,
    };
    let stere_plugin::Passed { bytes, encoding, gave_up } = made;
    Ok(Passed { bytes, encoding, gave_up, stack: storing.stack(), ..plain })
}

thread_local! {
    /// Encrypted bytes on their way to the store: fresh memory for each of them would cost as much as encrypting does.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn undecodable(blob: &BlobHandle, why: &dyn std::fmt::Display) -> Error {
    tracing::error!(blob = blob.id, %why, "content cannot be decoded");
    Error::Undecodable { blob: blob.id, why: why.to_string() }
}

/// Puts content into blobs and gets it out of them.
pub(crate) struct Codec {
    store: Arc<Store>,
    keyring: Arc<Keyring>,
    plugins: Arc<Plugins>,
    coders: Coders,
    decoded: Decoded,
    /// What was read of encoded blobs, until it is decoded.
    stored: BufferPool,
}

impl Codec {
    pub(crate) fn new(store: Arc<Store>, keyring: Arc<Keyring>, plugins: Arc<Plugins>, coders: Coders) -> Codec {
        let (decoded, stored) = (Decoded::default(), BufferPool::new(STORED_BYTES_KEPT));
        Codec { store, keyring, plugins, coders, decoded, stored }
    }

    /// Whether a key is unlocked.
    pub(crate) fn may_open(&self, key: u16) -> bool {
        self.keyring.open_key(key).is_ok()
    }

    /// Whether the plugins of a record can be run.
    pub(crate) fn may_undo(&self, stack: u16) -> bool {
        self.plugins.stack(stack).is_ok()
    }

    /// Forgets what was decrypted.
    pub(crate) fn forget_encrypted(&self) {
        self.decoded.forget_encrypted();
    }

    /// What plugins and compression make of records, by all processors at once where that is slow.
    pub(crate) fn pass_many<'data>(
        &self,
        storing: &Storing,
        records: Vec<&'data [u8]>,
    ) -> impl Iterator<Item = Result<Passed<'data>, Error>> + use<'data> {
        let coders = if storing.is_coded() { self.coders.clone() } else { Coders::default() };
        coders.map(records, |data| pass(storing, data)).into_iter()
    }

    /// Encrypts and appends what passed.
    pub(crate) fn append_passed(
        &self,
        io: Io<'_>,
        storing: &Storing,
        home: Option<DeviceIndex>,
        owner: Owner,
        passed: Passed<'_>,
    ) -> Result<NewBlob, Error> {
        assert!(owner.offset % BLOCK_BYTES as u64 == 0, "a blob begins at a block of its file, not {}", owner.offset);
        assert!((1..=RECORD_BYTES).contains(&u64::from(passed.logical_bytes)), "a blob is a record or a part of one");
        assert_eq!(passed.stack != 0, passed.encoding.is_plugged(), "what passed plugins says which");
        let append =
            |content: &Content<'_>| self.store.append_blob_at_home(io, storing.placement, home, owner, content);
        let content = passed.content(storing.checksum);
        let Some(key) = storing.sealing.as_ref().filter(|_| !is_planted(Bug::LeftInTheClear)) else {
            return Ok(append(&content)?);
        };
        if passed.is_passed_over {
            return Ok(append(&content)?);
        }
        let encoding = content.encoding.encrypted();
        let (inode, offset, logical_bytes) = (owner.inode, owner.offset, content.logical_bytes);
        let place = Place { inode, offset, logical_bytes, encoding: encoding.0 };
        let nonce = if is_planted(Bug::NonceRepeated) { [7; 24] } else { self.keyring.nonce().map_err(Error::Key)? };
        STORED.with_borrow_mut(|sealed| {
            stere_crypt::seal_record(key, &nonce, &place, content.stored, sealed);
            Ok(append(&Content { stored: sealed, encoding, key: key.number(), ..content })?)
        })
    }

    /// Reads pieces of blobs, whatever their encoding; bytes of `out` between pieces stay as they are. `origin`: the file, and where
    /// in it `out` begins.
    pub(crate) fn read_pieces(&self, io: Io<'_>, pieces: &[Piece], out: &mut [u8], origin: Owner) -> Result<(), Error> {
        if pieces.iter().all(is_read_by_blocks) {
            return Ok(self.store.read_blobs(io, pieces, out)?);
        }
        let (by_blocks, whole): (Vec<Piece>, Vec<Piece>) = pieces.iter().cloned().partition(is_read_by_blocks);
        if !by_blocks.is_empty() {
            self.store.read_blobs(io, &by_blocks, out)?;
        }
        let (mut unread, mut later): (Vec<(Piece, Option<Opening>)>, Vec<_>) =
            (Vec::with_capacity(whole.len()), Vec::new());
        for piece in whole {
            let opening = self.opening(&piece, origin)?;
            match self.decoded.get(&known(&piece, &opening)) {
                Some(content) => copy_piece(&piece, &content, out)?,
                None if unread.last().is_some_and(|(last, _)| last.blob.id == piece.blob.id) => {
                    later.push((piece, opening))
                }
                None => unread.push((piece, opening)),
            }
        }
        self.read_encoded(io, &unread, out)?;
        for (piece, opening) in later {
            match self.decoded.get(&known(&piece, &opening)) {
                Some(content) => copy_piece(&piece, &content, out)?,
                None => self.read_encoded(io, &[(piece, opening)], out)?,
            }
        }
        Ok(())
    }

    /// What opens the blob of a piece, if it is encrypted.
    fn opening(&self, piece: &Piece, origin: Owner) -> Result<Option<Opening>, Error> {
        let value = &*piece.blob.value;
        if !value.encoding.is_encrypted() || !value.encoding.is_known() {
            return Ok(None);
        }
        let key = self.keyring.closing_key(value.key).map_err(Error::Key)?;
        let begins = origin.offset.wrapping_add(piece.at as u64).wrapping_sub(u64::from(piece.offset));
        let (logical_bytes, encoding) = (value.logical_bytes, value.encoding.0);
        Ok(Some(Opening { key, place: Place { inode: origin.inode, offset: begins, logical_bytes, encoding } }))
    }

    fn read_encoded(&self, io: Io<'_>, pieces: &[(Piece, Option<Opening>)], out: &mut [u8]) -> Result<(), Error> {
        if pieces.is_empty() {
            return Ok(());
        }
        let length = |piece: &Piece| piece.blob.value.address.length as usize;
        // Each from a sector on, as it lies on devices, so that they can read it to its place.
        let room = |piece: &Piece| length(piece).next_multiple_of(SECTOR_BYTES);
        let mut buffer = self.stored.take(pieces.iter().map(|(piece, _)| room(piece)).sum());
        let (mut stored, mut rest) = (Vec::with_capacity(pieces.len()), buffer.as_mut_slice());
        for (piece, _) in pieces {
            let (one, others) = rest.split_at_mut(room(piece));
            stored.push(&mut one[..length(piece)]);
            rest = others;
        }
        let wanted = pieces.iter().zip(&mut stored).map(|((piece, _), stored)| (&piece.blob, &mut **stored)).collect();
        self.store.read_stored(io, wanted)?;
        let (mut whole, mut parts, mut rest, mut at) = (Vec::with_capacity(pieces.len()), Vec::new(), &mut *out, 0);
        for ((piece, opening), stored) in pieces.iter().zip(stored) {
            if piece.offset != 0 || piece.length != piece.blob.value.logical_bytes {
                parts.push((piece, opening, stored));
                continue;
            }
            assert!(piece.at >= at, "a piece at {} follows one that ends at {at}", piece.at);
            let (into, behind) = rest.split_at_mut(piece.at - at).1.split_at_mut(piece.length as usize);
            (rest, at) = (behind, piece.at + piece.length as usize);
            whole.push((piece, opening, stored, into));
        }
        let plugins = &self.plugins;
        let decode_whole = |(piece, opening, stored, into): (&Piece, &Option<Opening>, &mut [u8], &mut [u8])| {
            decode(plugins, &piece.blob, opening.as_ref(), stored, into)
        };
        self.coders.map(whole, decode_whole).into_iter().collect::<Result<(), Error>>()?;
        for (piece, opening, stored) in parts {
            let value = &piece.blob.value;
            let mut content = vec![0; value.logical_bytes as usize];
            decode(&self.plugins, &piece.blob, opening.as_ref(), stored, &mut content)?;
            let content: Arc<[u8]> = content.into();
            copy_piece(piece, &content, out)?;
            self.decoded.keep(known(piece, opening), content);
        }
        Ok(())
    }

    /// A blob's content as the policy wants it stored.
    pub(crate) fn recode(&self, io: Io<'_>, blob: &BlobHandle, asked: AskedEncoding) -> Result<Recoded, Error> {
        let value = &*blob.value;
        let mut content = vec![0; value.logical_bytes as usize];
        let is_own = value.encoding.is_encrypted() || value.encoding.is_plugged();
        assert!(!is_own, "what is encrypted, or passed plugins, is stored anew through the file");
        self.read_pieces(io, &live_pieces(blob), &mut content, Owner { inode: 0, offset: 0 })?;
        let flags = value.flags.without(stere_plugin::GAVE_UP);
        let checksum = asked.checksum;
        Ok(match stere_plugin::encode(asked.compression, &content) {
            Encoded::Stored { encoding, bytes } => Recoded { encoding, flags, checksum, stored: bytes },
            Encoded::Plain { gave_up } => {
                let stored = live_bytes(value, content);
                Recoded { encoding: BlobEncoding::PLAIN, flags: flags.with(gave_up), checksum, stored }
            }
        })
    }

    /// Reads what the store has, whatever is dirty in memory; zeros in holes and behind the end.
    pub(crate) fn read_stored(&self, io: Io<'_>, inode: u64, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let length = out.len();
        let pieces = self.store.view(io, |view| gather(view, inode, offset, length))?;
        fill_holes(&pieces, out);
        if !pieces.is_empty() {
            self.read_pieces(io, &pieces, out, Owner { inode, offset })?;
        }
        Ok(())
    }

    pub(crate) fn append_whole(
        &self,
        context: &Context<'_>,
        storing: &Storing,
        home: Option<DeviceIndex>,
        owner: Owner,
        data: &[u8],
    ) -> Result<Vec<Appended>, Error> {
        let pieces = storing.cut(owner.offset, data).map(|(_, piece)| piece).collect();
        self.append_cut(context, storing, home, owner, data, &mut self.pass_many(storing, pieces))
    }

    /// Appends what passed of the blobs that `data` is cut into.
    pub(crate) fn append_cut<'data>(
        &self,
        context: &Context<'_>,
        storing: &Storing,
        mut home: Option<DeviceIndex>,
        owner: Owner,
        data: &'data [u8],
        passed: &mut impl Iterator<Item = Result<Passed<'data>, Error>>,
    ) -> Result<Vec<Appended>, Error> {
        let mut blobs = Vec::with_capacity(1);
        for ((start, _), passed) in storing.cut(owner.offset, data).zip(passed) {
            let owner = Owner { offset: start, ..owner };
            let blob = self.append_passed(context.io, storing, home, owner, passed?)?;
            home = blob.home();
            blobs.push(Appended { start, blob });
        }
        let end = owner.offset + data.len() as u64;
        assert_eq!(blobs.last().map(Appended::end), Some(end), "all of the data is in blobs");
        Ok(blobs)
    }
}

/// Whether a piece is read by itself: what is stored as it is, and has no digest or is all of what has it.
fn is_read_by_blocks(piece: &Piece) -> bool {
    let value = &piece.blob.value;
    let is_all = || piece.offset == 0 && piece.length == value.logical_bytes && value.live_blocks() == value.blocks();
    value.encoding == BlobEncoding::PLAIN && (!value.checksums.has_digest() || is_all())
}

/// What opens an encrypted blob.
struct Opening {
    key: Arc<DataKey>,
    place: Place,
}

fn known(piece: &Piece, opening: &Option<Opening>) -> Known {
    (piece.blob.id, opening.as_ref().map(|opening| opening.place))
}

fn decode(
    plugins: &Plugins,
    blob: &BlobHandle,
    opening: Option<&Opening>,
    stored: &mut [u8],
    out: &mut [u8],
) -> Result<(), Error> {
    let Some(Opening { key, place }) = opening else { return decode_opened(plugins, blob, stored, out) };
    let content = match stere_crypt::open_record(key, place, stored) {
        Ok(content) => content,
        Err(error @ (CryptError::NotAuthentic(_) | CryptError::Malformed(_))) => return Err(undecodable(blob, &error)),
        Err(error) => return Err(Error::Key(error)),
    };
    decode_opened(plugins, blob, content, out)
}

/// Lays the stored blocks of a plain blob where they are in its content, zeros between them.
fn spread(value: &BlobValue, stored: &[u8], out: &mut [u8]) {
    assert_eq!(out.len(), value.logical_bytes as usize, "a blob is decoded as a whole");
    for (block, bytes) in (0..).zip(out.chunks_mut(BLOCK_BYTES)) {
        match value.stored_offset_of_block(block) {
            Some(at) => bytes.copy_from_slice(&stored[at as usize..at as usize + bytes.len()]),
            None => bytes.fill(0),
        }
    }
}

/// Undoes what was done before a record was encrypted.
fn decode_opened(plugins: &Plugins, blob: &BlobHandle, stored: &[u8], out: &mut [u8]) -> Result<(), Error> {
    let (encoding, number) = (blob.value.encoding, blob.value.stack);
    if encoding == BlobEncoding::PLAIN {
        spread(&blob.value, stored, out);
        return Ok(());
    }
    let of = if encoding.is_known() { encoding.compression() } else { encoding };
    if !encoding.is_known() || !encoding.is_plugged() {
        return stere_plugin::decode(of, stored, out).map_err(|why| undecodable(blob, &why));
    }
    let stack = plugins.stack(number).map_err(|why| undecodable(blob, &why))?;
    stere_plugin::decode_plugged(&stack, encoding, stored, out).map_err(|why| undecodable(blob, &why))
}

fn copy_piece(piece: &Piece, content: &[u8], out: &mut [u8]) -> Result<(), Error> {
    let from = piece.offset as usize..(piece.offset + piece.length) as usize;
    let bytes = content.get(from).ok_or_else(|| {
        let detail = format!("it reaches beyond blob {}", piece.blob.id);
        stere_store::Error::BadValue { what: "an extent", detail }
    })?;
    out[piece.at..piece.at + bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// A blob's live blocks, as pieces at their places in the content.
fn live_pieces(blob: &BlobHandle) -> Vec<Piece> {
    let value = &blob.value;
    let block_bytes = BLOCK_BYTES as u32;
    let piece = |block: u32| {
        let (offset, length) = (block * block_bytes, value.block_bytes(block));
        Piece { blob: blob.clone(), offset, length, at: offset as usize }
    };
    if value.encoding != BlobEncoding::PLAIN || value.live_blocks() == value.blocks() {
        return vec![Piece { blob: blob.clone(), offset: 0, length: value.logical_bytes, at: 0 }];
    }
    value.live.iter().map(piece).collect()
}

/// The bytes of the live blocks, one behind the other.
fn live_bytes(value: &BlobValue, content: Vec<u8>) -> Vec<u8> {
    if value.live_blocks() == value.blocks() {
        return content;
    }
    let blocks = content.chunks(BLOCK_BYTES).zip(0..);
    blocks.filter(|(_, block)| value.is_live(*block)).flat_map(|(bytes, _)| bytes.iter().copied()).collect()
}

/// Whether a blob was looked at by the plugin that a policy asks for, and has its key and checksum.
pub(crate) fn is_as_asked(blob: &BlobHandle, wanted: AskedEncoding) -> bool {
    let (encoding, flags): (BlobEncoding, BlobFlags) = (blob.value.encoding, blob.value.flags);
    (blob.value.key, blob.value.stack, blob.value.checksums.kind()) == (wanted.key, wanted.stack, wanted.checksum)
        && stere_plugin::is_as_asked(wanted.compression, encoding, flags)
}
