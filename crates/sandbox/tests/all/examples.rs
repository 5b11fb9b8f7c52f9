//! The examples in `plugins/` do what they say, in a stack and one by one. Those in Rust need the target wasm32-unknown-unknown
//! (`rustup target add wasm32-unknown-unknown`); without it they are skipped, and that is said.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use stere_plugin::{Event, EventKind, Events, Judged, Loader, Member, PluginFailure, Stack, UserPlugin, Verdict};
use stere_sandbox::{Limits, Sandbox};

const TARGET: &str = "wasm32-unknown-unknown";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins")
}

/// Where the modules are that were made of the examples in Rust, if they can be made here.
fn built() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
        let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).ok()?.trim());
        if !sysroot.join("lib/rustlib").join(TARGET).is_dir() {
            eprintln!("SKIPPED: no {TARGET} here; run `rustup target add {TARGET}`");
            return None;
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--release", "--quiet", "--offline", "--target", TARGET]);
        cargo.arg("--target-dir").arg(&target).current_dir(folder());
        // What is meant for this machine is not meant for the other, whoever says it.
        cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", "");
        assert!(cargo.status().expect("cargo runs").success(), "the examples build");
        Some(target.join(TARGET).join("release"))
    };
    BUILT.get_or_init(build).as_deref()
}

fn load(bytes: &[u8]) -> Arc<dyn UserPlugin> {
    Sandbox::new(Limits::default()).expect("a sandbox").load(bytes).expect("a plugin")
}

fn example(name: &str) -> Option<Arc<dyn UserPlugin>> {
    if name == "rotate" {
        return Some(load(&wat::parse_file(folder().join("rotate.wat")).expect("text of WebAssembly")));
    }
    Some(load(&std::fs::read(built()?.join(format!("{name}.wasm"))).expect("it was built")))
}

fn member(name: &str, parameters: &str) -> Option<Member> {
    Some(Member { name: name.into(), parameters: parameters.into(), plugin: example(name)? })
}

/// Sound that rises and falls: 16 bits a sample.
fn sound(bytes: usize) -> Vec<u8> {
    let sample = |at: usize| ((at as f64 / 40.0).sin() * 9000.0 + (at as f64 / 7.0).sin() * 300.0) as i16;
    (0..bytes.div_ceil(2)).flat_map(|at| sample(at).to_le_bytes()).take(bytes).collect()
}

#[test]
fn rotate_rotates_by_its_parameter() {
    let rotate = example("rotate").expect("it needs no compiler");
    assert_eq!(rotate.encode("", b"stere", 99).unwrap(), b"\x80\x81\x72\x7f\x72");
    assert_eq!(rotate.encode("1", b"HAL", 99).unwrap(), b"IBM");
    assert_eq!(rotate.decode("257", b"IBM", 99).unwrap(), b"HAL");
    let big = vec![7; 1 << 20];
    let stack = Stack { members: vec![member("rotate", "200").unwrap()] };
    let mut out = vec![0; big.len()];
    stack.decode(&stack.encode(&big).unwrap(), &mut out).unwrap();
    assert!(out == big);
}

#[test]
fn delta_makes_what_changes_slowly_compress_better() {
    let Some(delta) = member("delta", "2") else { return };
    let content = sound(128 << 10);
    let stack = Stack { members: vec![delta, member("rotate", "").unwrap()] };
    for length in [1, 2, 3, 1000, 4097, content.len()] {
        let stored = stack.encode(&content[..length]).unwrap();
        let mut out = vec![0; length];
        stack.decode(&stored, &mut out).unwrap();
        assert!(out == content[..length] && stored.len() == length);
    }
    let compressed = |bytes: &[u8]| match stere_plugin::encode(stere_policy::Compression::ZSTD, bytes) {
        stere_plugin::Encoded::Stored { bytes, .. } => bytes.len(),
        stere_plugin::Encoded::Plain { .. } => bytes.len(),
    };
    let (before, after) = (compressed(&content), compressed(&stack.encode(&content).unwrap()));
    assert!(after * 10 < before * 9, "{before} bytes and with delta {after}");
    let plugin = example("delta").unwrap();
    let failure = plugin.encode("17", &content, 1 << 20).unwrap_err();
    assert_eq!(failure, PluginFailure::Refused("a sample has 1 to 16 bytes, and not '17'".into()));
}

#[test]
fn guard_keeps_what_is_to_be_kept_and_notes_who_made_it() {
    let Some(guard) = example("guard") else { return };
    assert!(!guard.is_codec() && !guard.events().has(EventKind::Read));
    let event = |kind, name| Event { kind, user: 1000, group: 1, offset: 0, length: 0, size: 5, name, new_name: b"x" };
    assert_eq!(guard.judge("", &event(EventKind::Delete, b"other")), Ok(Verdict::Allow));
    let made = Verdict::Annotate(b"made by user 1000".to_vec());
    assert_eq!(guard.judge("", &event(EventKind::Create, b"letter.keep")), Ok(made));
    let stack = Stack { members: vec![Member { name: "guard".into(), parameters: ".pdf".into(), plugin: guard }] };
    for kind in [EventKind::Rename, EventKind::Delete] {
        let denied = Judged::Denied { name: "guard".into(), why: "what ends in .pdf stays".into() };
        assert_eq!(stack.judge(&event(kind, b"bill.pdf")), Ok(denied));
        assert_eq!(stack.judge(&event(kind, b"bill.keep")), Ok(Judged::Allowed { notes: Vec::new() }));
    }
}

/// Tells a plugin of a file that holds this.
fn told(plugin: &dyn UserPlugin, parameters: &str, content: &[u8]) -> Result<Verdict, PluginFailure> {
    let (kind, size) = (EventKind::Close, content.len() as u64);
    let event = Event { kind, user: 0, group: 0, offset: 0, length: 0, size, name: b"file", new_name: b"" };
    plugin.follow(parameters, &event, &mut |offset, out| {
        let rest = content.get(offset as usize..).unwrap_or_default();
        let given = rest.len().min(out.len());
        out[..given].copy_from_slice(&rest[..given]);
        Ok(given)
    })
}

#[test]
fn words_counts_what_it_is_given() {
    let Some(words) = example("words") else { return };
    assert!(!words.is_codec() && words.events() == Events::NONE && words.follows().has(EventKind::Close));
    let noted = |text: &str| Ok(Verdict::Annotate(text.as_bytes().to_vec()));
    assert_eq!(told(&*words, "", b""), noted("0 0 0"));
    assert_eq!(told(&*words, "", b"one two\nthree\n"), noted("2 3 14"));
    let long = b"four letters\n".repeat(100_000);
    assert_eq!(told(&*words, "", &long), noted("100000 200000 1300000"));
    let refused = PluginFailure::Refused("files that begin with 'PRIVATE' are not counted".into());
    assert_eq!(told(&*words, "deny=PRIVATE", b"PRIVATE things"), Err(refused));
    assert_eq!(told(&*words, "deny=PRIVATE", b"things"), noted("0 1 6"));
}
