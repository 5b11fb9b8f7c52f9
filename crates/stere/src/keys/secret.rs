//! Passphrases and key files: from a file, or typed.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};
use stere_naming::Secret;
use zeroize::{Zeroize, Zeroizing};

use crate::cli::SecretArguments;
use crate::error::{At, Error, Result, refused};

/// Passphrases are hardly longer.
const PASSPHRASE_BYTES: usize = 4 << 10;
/// Key files are read so far.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// A secret on its way to the daemon.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentSecret {
    is_key_file: bool,
    #[serde(deserialize_with = "in_one_place")]
    bytes: Vec<u8>,
}

/// Bytes as they come, without leaving what a vector outgrows behind.
fn in_one_place<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Vec<u8>, D::Error> {
    struct Bytes;

    impl<'de> serde::de::Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("the bytes of a secret")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut from: A) -> std::result::Result<Vec<u8>, A::Error> {
            super::memory::keep_secret();
            let mut bytes = Zeroizing::new(Vec::with_capacity(PASSPHRASE_BYTES));
            while let Some(byte) = from.next_element()? {
                if bytes.len() == bytes.capacity() {
                    let mut larger = Vec::with_capacity(2 * bytes.len());
                    larger.extend_from_slice(&bytes);
                    bytes = Zeroizing::new(larger);
                }
                bytes.push(byte);
            }
            Ok(std::mem::take(&mut *bytes))
        }
    }

    from.deserialize_seq(Bytes)
}

impl Drop for SentSecret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl std::fmt::Debug for SentSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a secret")
    }
}

impl SentSecret {
    /// For whoever opens keys with it.
    pub fn into_secret(mut self) -> Secret {
        super::memory::keep_secret();
        let bytes = Zeroizing::new(std::mem::take(&mut self.bytes));
        if self.is_key_file { Secret::KeyFile(bytes) } else { Secret::Passphrase(bytes) }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    super::memory::keep_secret();
    let file = std::fs::File::open(path).at("open", path)?;
    // In one place from the beginning: what a vector outgrows is not wiped.
    let length = file.metadata().at("read", path)?.len().min(SECRET_BYTES_MAX) as usize;
    let mut bytes = Vec::with_capacity(length + PASSPHRASE_BYTES);
    file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).at("read", path)?;
    match bytes.len() as u64 > SECRET_BYTES_MAX {
        true => {
            refused(format!("{} is larger than 1 MiB; name a file that holds nothing but the secret", path.display()))
        }
        false => Ok(bytes),
    }
}

/// All bytes of a file.
pub fn key_file(path: &Path) -> Result<SentSecret> {
    Ok(SentSecret { is_key_file: true, bytes: read(path)? })
}

/// What the arguments say, else what is typed. A new passphrase is typed twice.
pub fn gather(arguments: &SecretArguments, prompt: &str, is_new: bool) -> Result<SentSecret> {
    if let Some(path) = &arguments.key_file {
        return key_file(path);
    }
    let mut bytes = match &arguments.passphrase_file {
        Some(path) => read(path)?,
        None => typed(prompt, is_new)?,
    };
    // As editors and echo leave it.
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(SentSecret { is_key_file: false, bytes })
}

fn typed(prompt: &str, is_new: bool) -> Result<Vec<u8>> {
    if !std::io::stdin().is_terminal() {
        return line();
    }
    let first = Zeroizing::new(unseen(prompt)?);
    if is_new && *Zeroizing::new(unseen("the same again")?) != *first {
        return refused("the passphrases differ; try again");
    }
    Ok(first.to_vec())
}

fn line() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_until(b'\n', &mut bytes).map_err(Error::System)?;
    Ok(bytes)
}

/// A line that is not shown while it is typed.
fn unseen(prompt: &str) -> Result<Vec<u8>> {
    let system = |error: rustix::io::Errno| Error::System(error.into());
    eprint!("{prompt}: ");
    // A prompt that cannot be shown stops nobody.
    drop(std::io::stderr().flush());
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).map_err(system)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(system)?;
    let typed = line();
    let restored = tcsetattr(&stdin, OptionalActions::Now, &before).map_err(system);
    eprintln!();
    restored.and(typed)
}
