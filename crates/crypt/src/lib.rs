//! Encryption of file contents and names: keys, what wraps them, and records and names under them.
//!
//! Pure: no I/O, no clock, and no randomness. Keys, salts and nonces of wrappings come from the caller; nonces of records are made
//! of a salt that the caller draws at every mount and a counter, so none is ever used twice, whatever a crash made forgotten.
//! The design and what it is good against is `docs/design/encryption.md`; the bytes are in `docs/format/encryption-key.md`,
//! `blob.md`, `dirent.md` and `inode.md`.
//!
//! Invariants: keys are wiped from memory when they are let go; what does not authenticate is refused, whatever it is; a record
//! opens only at the place of the file that it was made for.
//! Read next: `keyring` (which keys there are), `key` (what is derived from one), `record`, `name`, `wrapping`, `aead`.

mod aead;
mod error;
mod key;
mod keyring;
mod locked;
mod name;
mod record;
mod wrapping;

pub use error::CryptError;
pub use key::DataKey;
pub use keyring::{KeyState, Keyring};
pub use name::{OPAQUE_PREFIX, opaque_name, opaque_sequence};
pub use record::{Place, RECORD_EXTRA_BYTES, open_record, record_key, seal_record};
pub use wrapping::{KEY_FILE_BYTES_MIN, PassphraseCost, Secret, WrappingSeed, unwrap, wrap};

#[cfg(test)]
mod tests;
