//! A machine's key pair of Ed25519, and public keys as people compare them.
//!
//! Invariant: the private key is never shown. Read next: `config.rs`.

use std::sync::Arc;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::sign::{CertifiedKey, SigningKey};

/// In front of the 32 bytes of a public key: the SubjectPublicKeyInfo of RFC 8410.
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// In front of the 32 bytes of a private key: PKCS #8 as in RFC 8410.
const PRIVATE_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("this machine gives no random bytes: {0}")]
    Random(getrandom::Error),
    #[error("the key of this machine is none of Ed25519: {0}")]
    Unusable(rustls::Error),
}

/// The public half of a machine's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A machine's key pair.
#[derive(Clone)]
pub struct MachineKey {
    private: [u8; 32],
    public: PublicKey,
    signing: Arc<dyn SigningKey>,
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "PublicKey({})", self.fingerprint())
    }
}

impl std::fmt::Debug for MachineKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "MachineKey({})", self.public.fingerprint())
    }
}

impl PublicKey {
    /// What people compare: 32 digits of the BLAKE3 of the key, in groups of four.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let digits = blake3::hash(&self.0).to_hex();
        let groups: Vec<&str> = (0..8).map(|at| &digits[4 * at..4 * at + 4]).collect();
        groups.join("-")
    }

    /// As TLS tells it.
    pub(crate) fn told(&self) -> Vec<u8> {
        [&PUBLIC_HEAD[..], &self.0].concat()
    }

    pub(crate) fn of_told(told: &[u8]) -> Option<PublicKey> {
        told.strip_prefix(&PUBLIC_HEAD)?.try_into().ok().map(PublicKey)
    }
}

impl MachineKey {
    /// A new one.
    ///
    /// # Errors
    /// Without random bytes.
    pub fn new() -> Result<MachineKey, KeyError> {
        let mut private = [0; 32];
        getrandom::fill(&mut private).map_err(KeyError::Random)?;
        MachineKey::of(private)
    }

    /// The one with this private half.
    ///
    /// # Errors
    /// Where the cryptography does not take it.
    pub fn of(private: [u8; 32]) -> Result<MachineKey, KeyError> {
        let encoded = PrivatePkcs8KeyDer::from([&PRIVATE_HEAD[..], &private].concat());
        let signing = rustls::crypto::ring::sign::any_eddsa_type(&encoded).map_err(KeyError::Unusable)?;
        let told = signing.public_key().and_then(|told| PublicKey::of_told(told.as_ref()));
        let public = told.ok_or_else(|| KeyError::Unusable(rustls::Error::General("it has no public key".into())))?;
        Ok(MachineKey { private, public, signing })
    }

    /// To be stored where only this machine reads it.
    #[must_use]
    pub fn private(&self) -> &[u8; 32] {
        &self.private
    }

    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::new(CertifiedKey::new(vec![self.public.told().into()], self.signing.clone()))
    }
}

#[cfg(test)]
mod tests;
