//! Streams: sealed frames arrive, and nothing else does.

use super::*;
use crate::greeting::{Challenge, Greeting};
use crate::proof::{Direction, Secret};
use crate::{Refusal, VERSION};

fn seal() -> Seal {
    let greeting = Greeting { version: VERSION, nonce: [1; 32] };
    let challenge = Challenge { version: VERSION, epoch: 1, nonce: [2; 32] };
    Secret([3; 32]).seal(&greeting, &challenge, Direction::ToOwner)
}

fn sent(seal: Option<Seal>, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut outgoing = Outgoing::new(&mut bytes);
    seal.into_iter().for_each(|seal| outgoing.set_seal(seal));
    frames.iter().for_each(|frame| outgoing.send(frame).expect("memory takes it"));
    bytes
}

#[test]
fn frames_arrive_in_order_and_what_was_changed_does_not() {
    let frames = [Frame::Ping, Frame::Definite { mark: 7 }];
    let bytes = sent(Some(seal()), &frames);
    let mut incoming = Incoming::new(&bytes[..]);
    incoming.set_seal(seal());
    assert_eq!(incoming.next_frame().expect("the first"), frames[0]);
    assert_eq!(incoming.next_frame().expect("the second"), frames[1]);
    assert!(matches!(incoming.next_frame(), Err(StreamError::Ended)));
    for at in 0..bytes.len() {
        let mut harmed = bytes.clone();
        harmed[at] ^= 1;
        let mut incoming = Incoming::new(&harmed[..]);
        incoming.set_seal(seal());
        let taken = incoming.next_frame().is_ok() && incoming.next_frame().is_ok();
        assert!(!taken, "byte {at} was changed");
    }
}

#[test]
fn a_stranger_is_heard_no_longer_than_a_greeting() {
    let bytes = sent(None, &[Frame::Ping]);
    assert!(matches!(Incoming::new(&bytes[..]).next_frame(), Err(StreamError::Order)));
    let bytes = sent(None, &[Frame::Refused(Refusal::Proof)]);
    assert_eq!(Incoming::new(&bytes[..]).next_frame().expect("a frame"), Frame::Refused(Refusal::Proof));
}
