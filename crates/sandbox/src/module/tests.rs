//! Modules that do what they should not are held to their bounds (P-65).

use std::sync::Arc;
use std::time::Instant;

use stere_plugin::{Event, EventKind, Loader, Member, PluginFailure, Stack, UserPlugin, Verdict};

use crate::{Limits, Sandbox};

/// A module around these functions, with an allocator that only goes up.
fn module(rest: &str) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 4) (global $top (mut i32) (i32.const 1024))
            (func (export "stere_abi") (result i32) (i32.const 1))
            (func (export "stere_allocate") (param $bytes i32) (result i32) (local $at i32)
              (local.set $at (global.get $top))
              (global.set $top (i32.add (global.get $top) (local.get $bytes)))
              (local.get $at))
            {rest})"#
    );
    wat::parse_str(text).unwrap()
}

/// Hooks for records; what each does with (parameters p, their bytes pn, input i, its bytes n).
fn codec(encode: &str, decode: &str) -> Vec<u8> {
    let hook = |name: &str, body: &str| {
        format!(
            r#"(func (export "{name}") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
                (local $at i32) {body})"#
        )
    };
    module(&(hook("stere_encode", encode) + &hook("stere_decode", decode)))
}

/// The input, as it is, as the answer.
const SAME: &str =
    "(i64.or (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 32)) (i64.extend_i32_u (local.get $n)))";

/// Every byte turned over, in place.
fn turned() -> String {
    format!(
        "(block $done (loop $next (br_if $done (i32.ge_u (local.get $at) (local.get $n)))
            (i32.store8 (i32.add (local.get $i) (local.get $at))
              (i32.xor (i32.const 255) (i32.load8_u (i32.add (local.get $i) (local.get $at)))))
            (local.set $at (i32.add (local.get $at) (i32.const 1))) (br $next)))
         {SAME}"
    )
}

fn load(bytes: &[u8]) -> Result<Arc<dyn UserPlugin>, PluginFailure> {
    Sandbox::new(Limits::default()).unwrap().load(bytes)
}

fn refusal(bytes: &[u8]) -> String {
    match load(bytes) {
        Err(PluginFailure::Unloadable(why)) => why,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[test]
fn a_codec_turns_bytes_and_turns_them_back() {
    let plugin = load(&codec(&turned(), &turned())).unwrap();
    assert!(plugin.is_codec() && plugin.events().0 == 0);
    let stack = Stack { members: vec![Member { name: "turn".into(), parameters: String::new(), plugin }] };
    for length in [1, 100, 4096, 128 << 10] {
        let content: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        let stored = stack.encode(&content).unwrap();
        assert!(stored.iter().zip(&content).all(|(one, other)| *one == !*other) && stored.len() == length);
        assert_eq!(stack.encode(&content), Ok(stored.clone()), "the same bytes give the same bytes");
        let mut out = vec![0; length];
        stack.decode(&stored, &mut out).unwrap();
        assert!(out == content);
    }
}

#[test]
fn what_traps_loops_or_lies_is_told_so_and_the_next_call_is_as_if_nothing_had_been() {
    let refuses = "(i64.or (i64.const 0x8000000000000000) (i64.or (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 32)) (i64.extend_i32_u (local.get $n))))";
    let cases = [
        ("unreachable", "failed with a trap"),
        ("(drop (i32.load (i32.const -4))) (i64.const 0)", "failed with a trap"),
        ("(drop (i32.div_u (i32.const 1) (local.get $at))) (i64.const 0)", "failed with a trap"),
        ("(loop $for_ever (br $for_ever)) (i64.const 0)", "did not come to an end within"),
        ("(i64.const 0x7fff_0000_0000_0010)", "which is not in its memory"),
        ("(i64.const 0x0000_0000_00ff_ffff)", "bytes, of 100 that it may give"),
        ("(i64.const 0x0003_fff0_0000_0020)", "which is not in its memory"),
        (refuses, "refused: not today"),
    ];
    for (body, expected) in cases {
        let plugin = load(&codec(body, SAME)).unwrap();
        let started = Instant::now();
        let failure = plugin.encode("", b"not today", 100).unwrap_err().to_string();
        assert!(failure.contains(expected), "{body}: {failure}");
        assert!(started.elapsed().as_secs() < 10, "{body} is bounded");
        assert_eq!(plugin.decode("", b"still here", 100).unwrap(), b"still here");
    }
}

#[test]
fn recursion_without_end_and_memory_without_end_are_bounded() {
    let recursing = module(
        r#"(func $deeper (param i32) (result i64) (i64.add (i64.const 1) (call $deeper (local.get 0))))
           (func (export "stere_encode") (param i32 i32 i32 i32) (result i64) (call $deeper (i32.const 0)))
           (func (export "stere_decode") (param i32 i32 i32 i32) (result i64) (i64.const 0))"#,
    );
    let failure = load(&recursing).unwrap().encode("", b"x", 9).unwrap_err().to_string();
    assert!(failure.contains("call stack exhausted"), "{failure}");
    // Asking for more memory than there may be is answered with -1, as WebAssembly says; 64 MiB are 1024 pages.
    let growing = codec(
        "(if (i32.ne (memory.grow (i32.const 1021)) (i32.const -1)) (then unreachable)) (if (i32.eq (memory.grow (i32.const 1000)) (i32.const -1)) (then unreachable)) (i64.const 0)",
        SAME,
    );
    assert_eq!(load(&growing).unwrap().encode("", b"x", 9), Ok(Vec::new()));
    let large = wat::parse_str(
        r#"(module (memory (export "memory") 2000) (func (export "stere_abi") (result i32) (i32.const 1)))"#,
    );
    assert!(load(&large.unwrap()).is_err(), "it begins with more than it may have");
}

#[test]
fn nothing_is_carried_from_one_call_to_the_next() {
    // It answers with a byte that it then changes.
    let counting = codec(
        "(i32.store8 (i32.const 8) (i32.add (i32.const 1) (i32.load8_u (i32.const 8)))) (i64.const 0x0000_0008_0000_0001)",
        SAME,
    );
    let plugin = load(&counting).unwrap();
    for _ in 0..3 {
        assert_eq!(plugin.encode("", b"x", 9), Ok(vec![1]));
    }
}

#[test]
fn modules_that_are_no_plugins_are_refused_and_why() {
    let importing = wat::parse_str(r#"(module (import "env" "clock" (func)) (memory (export "memory") 1))"#).unwrap();
    assert!(refusal(&importing).contains("it imports env.clock"));
    assert!(refusal(b"not a module").contains("magic"));
    assert!(refusal(&wat::parse_str("(module)").unwrap()).contains("exports no memory"));
    assert!(refusal(&module("")).contains("has no hook"));
    let half = r#"(func (export "stere_encode") (param i32 i32 i32 i32) (result i64) (i64.const 0))"#;
    assert!(refusal(&module(half)).contains("does not export stere_decode"));
    let other = r#"(func (export "stere_encode") (result i64) (i64.const 0)) (func (export "stere_decode"))"#;
    assert!(refusal(&module(other)).contains("its hook stere_encode"));
    let unknown = r#"(func (export "stere_events") (result i32) (i32.const 0x80))"#;
    assert!(refusal(&module(unknown)).contains("not known"));
    let newer = wat::parse_str(
        r#"(module (memory (export "memory") 1) (func (export "stere_abi") (result i32) (i32.const 2)))"#,
    );
    assert!(refusal(&newer.unwrap()).contains("interface 2"));
    assert!(refusal(&vec![0; (1 << 20) + 1]).contains("may have 1048576"));
    // What starts by trapping or looping is found out when it is loaded.
    for start in ["unreachable", "(loop $for_ever (br $for_ever))"] {
        assert!(load(&module(&format!("(func $start {start}) (start $start)"))).is_err());
    }
}

#[test]
fn any_change_of_a_module_is_refused_or_bounded() {
    let good = codec(&turned(), &turned());
    let small = Limits { steps: 100_000, steps_per_byte: 100, ..Limits::default() };
    let sandbox = Sandbox::new(small).unwrap();
    let mut loaded = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        if let Ok(plugin) = sandbox.load(&bad) {
            loaded += 1;
            if let Ok(stored) = plugin.encode("p", &[3; 600], 700) {
                assert!(stored.len() <= 700);
            }
        }
    }
    assert!(loaded > 10, "some changes are none that matter: {loaded}");
}

#[test]
fn events_are_judged() {
    // Denies what is told of a file whose name begins with '.', and notes the event of any other.
    let guard = module(
        r#"(data (i32.const 16) "\01hidden") (data (i32.const 32) "\02")
           (func (export "stere_events") (result i32) (i32.const 0x41))
           (func (export "stere_event") (param $p i32) (param $pn i32) (param $i i32) (param $n i32) (result i64)
             (if (i32.eq (i32.load8_u offset=48 (local.get $i)) (i32.const 46))
               (then (return (i64.const 0x0000_0010_0000_0007))))
             (i32.store8 (i32.const 33) (i32.add (i32.const 48) (i32.load (local.get $i))))
             (i64.const 0x0000_0020_0000_0002))"#,
    );
    let plugin = load(&guard).unwrap();
    assert!(!plugin.is_codec() && plugin.events().has(EventKind::Create) && plugin.events().has(EventKind::Delete));
    assert!(!plugin.events().has(EventKind::Write));
    let event = |kind, name| Event { kind, user: 7, group: 8, offset: 0, length: 0, size: 0, name, new_name: b"" };
    let judged = |kind, name| plugin.judge("", &event(kind, name)).unwrap();
    assert_eq!(judged(EventKind::Create, b".secret"), Verdict::Deny("hidden".into()));
    assert_eq!(judged(EventKind::Delete, b"plain"), Verdict::Annotate(b"6".to_vec()));
}

/// Told afterwards of a file of 100 bytes, each 1, by this module.
fn told(bytes: &[u8]) -> Result<Verdict, PluginFailure> {
    let plugin = load(bytes).unwrap();
    let (kind, size) = (EventKind::Close, 100);
    let event = Event { kind, user: 7, group: 8, offset: 0, length: 0, size, name: b"file", new_name: b"" };
    plugin.follow("", &event, &mut |offset, out| {
        let given = 100u64.saturating_sub(offset).min(out.len() as u64) as usize;
        out[..given].fill(1);
        if offset == 50 { Err("no such sector".into()) } else { Ok(given) }
    })
}

/// A module that is told afterwards, wants 16 bytes from an offset, and says this of them ($c: place, $n: how many).
fn follower(offset: u8, says: &str) -> Vec<u8> {
    module(&format!(
        r#"(data (i32.const 16) "\03\{offset:02x}\00\00\00\00\00\00\00\10\00\00\00") (data (i32.const 48) "\02")
           (func $want (result i64) (i64.const 0x0000_0010_0000_000d))
           (func (export "stere_after_events") (result i32) (i32.const 0x71))
           (func (export "stere_after") (param i32 i32 i32 i32) (result i64) (call $want))
           (func (export "stere_content") (param $c i32) (param $n i32) (result i64) {says})"#
    ))
}

#[test]
fn who_is_told_afterwards_gets_the_content_in_bounded_pieces() {
    // Notes how many bytes it got and the first of them.
    let notes = "(i32.store8 (i32.const 49) (local.get $n)) (i32.store8 (i32.const 50) (i32.load8_u (local.get $c))) (i64.const 0x0000_0030_0000_0003)";
    assert_eq!(told(&follower(0, notes)), Ok(Verdict::Annotate(vec![16, 1])));
    assert_eq!(told(&follower(90, notes)), Ok(Verdict::Annotate(vec![10, 1])), "at the end there are fewer");
    assert_eq!(told(&follower(50, notes)), Err(PluginFailure::Unreadable("no such sector".into())));
    let started = Instant::now();
    let failure = told(&follower(0, "(call $want)")).unwrap_err().to_string();
    assert!(failure.contains("again and again") && started.elapsed().as_secs() < 10, "{failure}");
    let cases = [
        ("(loop $for_ever (br $for_ever)) (i64.const 0)", "did not come to an end within"),
        ("unreachable", "failed with a trap"),
        ("(i64.const 0x7fff_0000_0000_0001)", "which is not in its memory"),
        ("(i64.const 0x0000_0030_0000_ffff)", "that it may give"),
    ];
    for (says, expected) in cases {
        let failure = told(&follower(0, says)).unwrap_err().to_string();
        assert!(failure.contains(expected), "{says}: {failure}");
    }
    let before = r#"(func (export "stere_after_events") (result i32) (i32.const 8))
                    (func (export "stere_after") (param i32 i32 i32 i32) (result i64) (i64.const 0))"#;
    assert!(refusal(&module(before)).contains("create, close, rename and delete"));
    let half = before.replace("i32.const 8", "i32.const 16");
    assert!(refusal(&module(&half)).contains("stere_content"));
}
