//! Digests of files: a token for the content as it is, and a digest stored only if the token still holds.
//!
//! Only the control socket stores digests, so nobody can say one who may not change the pool.

use stere_file::DigestKind;
use stere_naming::{FileSystem, Io};

use stere_control::digest::{Order, from_hex};
use stere_control::message::Answer;
use stere_machine::clock;
use stere_machine::error::{Result, refused};

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    match order {
        Order::Begin { inode } => Ok(Answer::DigestBegun { token: filesystem.digests().begin_digest(&caller, inode)? }),
        Order::Store { inode, token, algorithm, digest } => {
            let kind = match algorithm.as_str() {
                "sha256" => DigestKind::Sha256,
                "blake3" => DigestKind::Blake3,
                other => return refused(format!("there is no digest '{other}'; there are sha256 and blake3")),
            };
            let Some(digest) = from_hex(&digest) else { return refused("a digest has 64 hexadecimal digits") };
            Ok(Answer::DigestStored {
                is_stored: filesystem.digests().store_digest(&caller, inode, token, kind, digest)?,
            })
        }
    }
}
