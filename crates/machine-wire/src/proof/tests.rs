//! Proofs and seals (P-237): right ones are taken, and everything else is not.

use super::*;
use crate::{Purpose, VERSION};

fn said() -> (Greeting, Challenge, Hello) {
    let hello = Hello {
        pool: [1; 16],
        machine: [2; 16],
        session: [3; 16],
        epoch: 4,
        kernel_minor: 45,
        purpose: Purpose::Mount,
        kernel_flags: 6,
        proof: [0; 32],
    };
    (Greeting { version: VERSION, nonce: [7; 32] }, Challenge { version: VERSION, epoch: 4, nonce: [8; 32] }, hello)
}

#[test]
fn both_prove_themselves_and_neither_by_what_the_other_said() {
    let secret = Secret([9; 32]);
    let (greeting, challenge, mut hello) = said();
    hello.proof = secret.client_proof(&greeting, &challenge, &hello);
    assert!(secret.is_client(&greeting, &challenge, &hello));
    let proof = secret.owner_proof(&greeting, &challenge, &hello, true);
    assert!(secret.is_owner(&greeting, &challenge, &hello, (true, &proof)));
    assert!(!secret.is_owner(&greeting, &challenge, &hello, (false, &proof)), "it was said otherwise");
    assert!(!secret.is_owner(&greeting, &challenge, &hello, (true, &hello.proof)), "the client's own is no proof");
    assert!(!Secret([1; 32]).is_client(&greeting, &challenge, &hello), "another secret");
    let older = Challenge { nonce: [0; 32], ..challenge.clone() };
    assert!(!secret.is_client(&greeting, &older, &hello), "another connection");
    let forged = Hello { session: [0; 16], ..hello.clone() };
    assert!(!secret.is_client(&greeting, &challenge, &forged), "somebody changed it on the way");
    let forged = Hello { purpose: Purpose::Commands, ..hello.clone() };
    assert!(!secret.is_client(&greeting, &challenge, &forged), "nobody makes a mount's connection one of commands");
}

#[test]
fn a_frame_that_is_changed_repeated_or_sent_back_is_noticed() {
    let secret = Secret([9; 32]);
    let (greeting, challenge, _) = said();
    let seal = |direction| secret.seal(&greeting, &challenge, direction);
    let mut sender = seal(Direction::ToOwner);
    let (first, second) = (sender.of(b"headbody"), sender.of(b"headbody"));
    let mut receiver = seal(Direction::ToOwner);
    assert!(receiver.is_good(b"head", b"body", &first));
    assert!(receiver.is_good(b"head", b"body", &second));
    assert!(!seal(Direction::ToOwner).is_good(b"head", b"body", &second), "not the first");
    assert!(!seal(Direction::ToOwner).is_good(b"head", b"bodi", &first), "changed");
    assert!(!seal(Direction::ToClient).is_good(b"head", b"body", &first), "sent back");
}
