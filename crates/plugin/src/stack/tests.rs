//! What a stack of plugins does with records and events, and how it finds out who loses data (P-65).

use std::sync::Arc;

use super::*;
use crate::user::EventKind;

/// Adds its number to every byte and puts it in front; or loses what it is told to.
#[derive(Debug)]
struct Adder {
    number: u8,
    loses: bool,
    events: Events,
}

impl UserPlugin for Adder {
    fn is_codec(&self) -> bool {
        self.number != 0
    }

    fn events(&self) -> Events {
        self.events
    }

    fn encode(&self, parameters: &str, content: &[u8], _: usize) -> Result<Vec<u8>, PluginFailure> {
        if parameters == "no" {
            return Err(PluginFailure::Refused("not today".into()));
        }
        let kept = if self.loses && content.len() > 3 { &content[..3] } else { content };
        Ok(std::iter::once(self.number).chain(kept.iter().map(|byte| byte.wrapping_add(self.number))).collect())
    }

    fn decode(&self, _: &str, stored: &[u8], _: usize) -> Result<Vec<u8>, PluginFailure> {
        match stored.split_first() {
            Some((first, rest)) if *first == self.number => {
                Ok(rest.iter().map(|byte| byte.wrapping_sub(self.number)).collect())
            }
            _ => Err(PluginFailure::Refused("not mine".into())),
        }
    }

    fn judge(&self, parameters: &str, event: &Event<'_>) -> Result<Verdict, PluginFailure> {
        Ok(match parameters {
            "deny" => Verdict::Deny("because".into()),
            _ => Verdict::Annotate(event.name.to_vec()),
        })
    }
}

fn member(name: &str, number: u8, loses: bool, parameters: &str) -> Member {
    let plugin = Arc::new(Adder { number, loses, events: Events(1 << EventKind::Delete as u32) });
    Member { name: name.into(), parameters: parameters.into(), plugin }
}

#[test]
fn what_goes_in_comes_out_and_the_order_is_kept() {
    let stack = Stack { members: vec![member("one", 1, false, ""), member("seven", 7, false, "")] };
    let stored = stack.encode(b"abc").unwrap();
    assert_eq!(stored, [7, 1 + 7, b'a' + 8, b'b' + 8, b'c' + 8]);
    let mut out = [0; 3];
    stack.decode(&stored, &mut out).unwrap();
    assert_eq!(&out, b"abc");
    assert!(stack.decode(&stored, &mut [0; 4]).is_err(), "another length is no record");
    assert!(stack.decode(&stored[1..], &mut out).is_err());
    assert!(!stack.is_transparent() && Stack::default().is_transparent());
}

#[test]
fn who_loses_data_is_named_when_it_writes() {
    let stack = Stack { members: vec![member("one", 1, false, ""), member("sieve", 7, true, "")] };
    let failure = stack.encode(b"abcdefgh").unwrap_err();
    assert_eq!(failure.name, "sieve");
    assert!(matches!(failure.failure, PluginFailure::LosesData(_)), "{failure}");
    assert_eq!(failure.to_string().split(':').next(), Some("the plugin 'sieve' loses data"));
    let refuses = Stack { members: vec![member("one", 1, false, "no")] };
    assert_eq!(refuses.encode(b"x").unwrap_err().to_string(), "the plugin 'one' refused: not today");
}

#[test]
fn the_first_who_denies_ends_it() {
    let event = |kind| Event { kind, user: 1, group: 2, offset: 0, length: 0, size: 9, name: b"file", new_name: b"" };
    let (notes, denies) = (member("notes", 0, false, ""), member("denies", 0, false, "deny"));
    let stack = Stack { members: vec![notes.clone(), denies, notes.clone()] };
    assert!(stack.events().has(EventKind::Delete) && !stack.events().has(EventKind::Create));
    let denied = Judged::Denied { name: "denies".into(), why: "because".into() };
    assert_eq!(stack.judge(&event(EventKind::Delete)), Ok(denied));
    assert_eq!(stack.judge(&event(EventKind::Create)), Ok(Judged::Allowed { notes: Vec::new() }), "nobody listens");
    let noted = Judged::Allowed { notes: vec![("notes".into(), b"file".to_vec())] };
    assert_eq!(Stack { members: vec![notes] }.judge(&event(EventKind::Delete)), Ok(noted));
}

#[test]
fn verdicts_are_told_apart_from_nonsense() {
    assert_eq!(Verdict::decode(b""), Ok(Verdict::Allow));
    assert_eq!(Verdict::decode(b"\x01no"), Ok(Verdict::Deny("no".into())));
    assert_eq!(Verdict::decode(b"\x02note"), Ok(Verdict::Annotate(b"note".to_vec())));
    for bad in [&b"\x00"[..], b"\x03x", &[2; 4098]] {
        assert!(matches!(Verdict::decode(bad), Err(PluginFailure::Nonsense(_))));
    }
}
