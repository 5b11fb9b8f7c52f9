//! What can be wrong with keys and with what they encrypt. Bad media is an error, never a panic.

/// Why something cannot be encrypted or decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CryptError {
    /// The key is there, and nobody has unlocked it.
    #[error("the key '{0}' is locked; unlock it with `stere key unlock`")]
    Locked(String),
    /// The pool has no such key (any more).
    #[error("key #{0}, which this is encrypted with, is not in the pool; it was removed, or its record is damaged")]
    NoSuchKey(u16),
    /// `encrypt=yes`, and nobody said with what.
    #[error("the pool has no key yet; make one with `stere key create`")]
    NoDefaultKey,
    /// The bytes are not what was encrypted for this place.
    #[error("the {0} does not authenticate: it was changed, or belongs to another place; restore it from a backup")]
    NotAuthentic(&'static str),
    /// Not even the form is right.
    #[error("the {0} is not in a form that this version knows; use the stere that wrote it")]
    Malformed(&'static str),
    /// None of the key's wrappings opens with this.
    #[error("this {kind} does not open the key '{name}'; try another one (`stere key list` tells what opens it)")]
    WrongSecret {
        /// What was tried.
        kind: &'static str,
        /// Of which key.
        name: String,
    },
    /// Nothing of this kind was ever set.
    #[error("no {kind} opens the key '{name}'; `stere key list` tells what does")]
    NoSuchWrapping {
        /// What was tried.
        kind: &'static str,
        /// Of which key.
        name: String,
    },
    /// Too short to be a key.
    #[error("a key file has 32 bytes at least; make one with `head -c 32 /dev/urandom`")]
    KeyFileTooShort,
    /// Nothing to stretch.
    #[error("the passphrase is empty; give one")]
    EmptyPassphrase,
    /// The machine cannot do what the record asks for.
    #[error("the passphrase cannot be stretched: {0}; see that there is memory enough")]
    Argon2(String),
    /// The environment gave nothing to make nonces of.
    #[error(
        "no randomness was given at the mount, so nothing can be encrypted; this is a bug of the program that mounts"
    )]
    NoSalt,
}
