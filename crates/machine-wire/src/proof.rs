//! That both sides know the secret of the owner's term, and that a frame is theirs: BLAKE3 keyed with it.
//!
//! Invariants: a proof is over both nonces and all that was said, so an old one proves nothing; the two sides' proofs and seals differ
//! by their first bytes, so none can be given back; a seal counts, so a frame that is repeated, left out or moved is noticed.

use crate::greeting::{Challenge, Greeting, Hello};

#[cfg(test)]
mod tests;

/// What a frame is followed by once both sides have proven themselves.
pub const SEAL_BYTES: usize = 32;

const OF_CLIENT: &[u8] = b"stere machine frames 1: client\0\0";
const OF_OWNER: &[u8] = b"stere machine frames 1: owner\0\0\0";
const OF_FRAMES: &[u8] = b"stere machine frames 1: frames\0\0";

/// What the owner announced to the machines of its pool.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}

fn keyed(secret: &Secret, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    // Compares in constant time.
    blake3::Hash::from_bytes(*one) == blake3::Hash::from_bytes(*other)
}

impl Secret {
    /// What a client puts into its Hello, whose own proof counts as nothing here.
    #[must_use]
    pub fn client_proof(&self, greeting: &Greeting, challenge: &Challenge, hello: &Hello) -> [u8; 32] {
        keyed(self, &[OF_CLIENT, &greeting.nonce, &challenge.nonce, &hello.told()])
    }

    /// What the owner puts into its Welcome.
    #[must_use]
    pub fn owner_proof(&self, greeting: &Greeting, challenge: &Challenge, hello: &Hello, is_resumed: bool) -> [u8; 32] {
        let resumed = [u8::from(is_resumed)];
        keyed(self, &[OF_OWNER, &greeting.nonce, &challenge.nonce, &hello.told(), &resumed])
    }

    #[must_use]
    pub fn is_client(&self, greeting: &Greeting, challenge: &Challenge, hello: &Hello) -> bool {
        is_same(&self.client_proof(greeting, challenge, hello), &hello.proof)
    }

    #[must_use]
    pub fn is_owner(
        &self,
        greeting: &Greeting,
        challenge: &Challenge,
        hello: &Hello,
        (is_resumed, proof): (bool, &[u8; 32]),
    ) -> bool {
        is_same(&self.owner_proof(greeting, challenge, hello, is_resumed), proof)
    }

    /// The seals of one direction of the connection that began so.
    #[must_use]
    pub fn seal(&self, greeting: &Greeting, challenge: &Challenge, direction: Direction) -> Seal {
        let way = [match direction {
            Direction::ToOwner => 1,
            Direction::ToClient => 2,
        }];
        Seal { key: keyed(self, &[OF_FRAMES, &greeting.nonce, &challenge.nonce, &way]), count: 0 }
    }
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToOwner,
    ToClient,
}

/// Seals the frames of one direction, or looks at their seals, one after the other.
pub struct Seal {
    key: [u8; 32],
    count: u64,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Seal").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Seal {
    fn next(&mut self, frame: &[&[u8]]) -> [u8; SEAL_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.count.to_le_bytes());
        for part in frame {
            hasher.update(part);
        }
        self.count += 1;
        *hasher.finalize().as_bytes()
    }

    /// The seal of the next frame, whose head and body these are.
    #[must_use]
    pub fn of(&mut self, frame: &[u8]) -> [u8; SEAL_BYTES] {
        self.next(&[frame])
    }

    /// Whether this is the next frame of the other side.
    #[must_use]
    pub fn is_good(&mut self, head: &[u8], body: &[u8], seal: &[u8; SEAL_BYTES]) -> bool {
        is_same(&self.next(&[head, body]), seal)
    }
}
