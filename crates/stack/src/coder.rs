//! Turns records into what is stored of them and back, by the way of their file: plugins, then compression, then encryption.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use stere_crypt::{DataKey, Place};
use stere_format::BlobEncoding;
use stere_plugin::{Encoded, Member, Stack, UserPlugin};

use crate::error::Error;
use crate::layout::RECORD_BYTES;
use crate::way::Way;

/// What files of a source may need: plugins by name, and a key.
#[derive(Default)]
pub struct Coder {
    pub plugins: BTreeMap<String, Arc<dyn UserPlugin>>,
    pub key: Option<DataKey>,
}

impl fmt::Debug for Coder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.plugins.keys().collect();
        formatter.debug_struct("Coder").field("plugins", &names).field("has_key", &self.key.is_some()).finish()
    }
}

/// A record as it is stored.
pub(crate) struct Coded {
    pub encoding: BlobEncoding,
    pub bytes: Vec<u8>,
}

impl Coder {
    /// The plugins of a way; an error if one was not given.
    pub fn stack(&self, way: &Way) -> Result<Stack, Error> {
        let member = |(name, parameters): &(String, String)| {
            let plugin = self.plugins.get(name).cloned().ok_or_else(|| Error::NoPlugin(name.clone()))?;
            Ok(Member { name: name.clone(), parameters: parameters.clone(), plugin })
        };
        Ok(Stack { members: way.plugins.iter().map(member).collect::<Result<_, Error>>()? })
    }

    /// `id` and `offset`: which file, and where in it.
    pub(crate) fn encode(&self, way: &Way, id: u64, offset: u64, content: &[u8]) -> Result<Coded, Error> {
        let length = content.len() as u64;
        assert!(offset % RECORD_BYTES == 0 && length <= RECORD_BYTES, "{length} bytes from {offset} on are no record");
        let stack = self.stack(way)?;
        let passed = if stack.is_transparent() { None } else { Some(stack.encode(content)?) };
        let inner = passed.as_deref().unwrap_or(content);
        let (mut encoding, mut bytes) = match stere_plugin::encode(way.compression, inner) {
            Encoded::Stored { encoding, bytes } => (encoding, bytes),
            Encoded::Plain { .. } => (BlobEncoding::PLAIN, inner.to_vec()),
        };
        if passed.is_some() {
            encoding = encoding.plugged();
            bytes.splice(0..0, (inner.len() as u32).to_le_bytes());
        }
        if way.is_encrypted {
            let key = self.key.as_ref().ok_or(Error::NoKey)?;
            encoding = encoding.encrypted();
            let place = Place { inode: id, offset, logical_bytes: content.len() as u32, encoding: encoding.0 };
            let mut sealed = Vec::new();
            stere_crypt::seal_record(key, &random(), &place, &bytes, &mut sealed);
            bytes = sealed;
        }
        Ok(Coded { encoding, bytes })
    }

    /// The content again, which is as long as `out`.
    pub(crate) fn decode(&self, way: &Way, id: u64, offset: u64, coded: Coded, out: &mut [u8]) -> Result<(), Error> {
        let length = out.len() as u64;
        assert!(offset % RECORD_BYTES == 0 && length <= RECORD_BYTES, "{length} bytes from {offset} on are no record");
        let Coded { encoding, mut bytes } = coded;
        if !encoding.is_known() {
            return Err(Error::Damaged(format!("a record is in encoding {:#04x}", encoding.0)));
        }
        let malformed = |why: stere_plugin::PluginError| Error::Damaged(why.to_string());
        let opened: &[u8] = if encoding.is_encrypted() {
            let key = self.key.as_ref().ok_or(Error::NoKey)?;
            let place = Place { inode: id, offset, logical_bytes: out.len() as u32, encoding: encoding.0 };
            stere_crypt::open_record(key, &place, &mut bytes)?
        } else {
            &bytes
        };
        if !encoding.is_plugged() {
            return stere_plugin::decode(encoding.compression(), opened, out).map_err(malformed);
        }
        let (length, rest) = opened.split_first_chunk().ok_or_else(|| Error::Damaged("a record is cut".into()))?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > stere_plugin::encoded_bytes_max(out.len()) {
            return Err(Error::Damaged("a record is longer than plugins may make it".into()));
        }
        let mut passed = vec![0; length];
        stere_plugin::decode(encoding.compression(), rest, &mut passed).map_err(malformed)?;
        Ok(self.stack(way)?.decode(&passed, out)?)
    }
}

/// Random bytes of the operating system. A nonce of 24 of them is never met twice.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
