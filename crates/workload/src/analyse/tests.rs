//! A trace replayed says the same as noting live.

use super::*;
use crate::loads::Load;
use crate::trace::{NameRule, Trace, TraceWriter};

#[test]
fn a_trace_replayed_gives_the_profile_of_live_noting() {
    for load in [Load::BlockCyclicCheckpoint, Load::OneWriter, Load::PeriodicDumps] {
        let (mut live, mut writer) = (Profile::default(), TraceWriter::new(0, 0, NameRule::None));
        let mut file = Vec::new();
        for call in load.calls(3) {
            let call = Call { in_flight: (call.offset % 9) as u32, result: (call.offset % 3) as u16, ..call };
            live.note(&call);
            writer.note(&call);
            file.extend(writer.take_ready());
        }
        file.extend(writer.finish());
        let (trace, missing) = Trace::decode(&file).unwrap();
        assert!(missing.is_nothing());
        // The text of a profile has every field of it.
        assert_eq!(format!("{:?}", profile_of(&trace)), format!("{live:?}"), "{}", load.name());
    }
}

#[test]
fn clients_and_subtrees_are_told_apart() {
    let mut trace = Trace { calls: Load::PeriodicDumps.calls(1), ..Trace::default() };
    let name = |file: u64| ((stere_format::IoTraceNamed::File, file), format!("/run/{}/x{file}", file % 2));
    trace.names = (0..10).map(name).collect();
    assert_eq!(clients_of(&trace).of_kind(SubjectKind::Client).len(), 16);
    let subtrees = subtrees_of(&trace, 2);
    assert_eq!(subtrees.of_kind(SubjectKind::Subtree).len(), 2);
    let all = subtrees.all_of_kind(SubjectKind::Subtree).unwrap();
    assert_eq!(all.calls(), trace.calls.len() as u64);
}

#[test]
fn beginnings_of_paths() {
    for (path, depth, expected) in [
        ("/a/b/c/d", 1, "/a"),
        ("/a/b/c/d", 2, "/a/b"),
        ("/a/b/c/d", 9, "/a/b/c"),
        ("/a/b/c/d", 0, ""),
        ("a/b/c", 1, "a"),
        ("/a", 1, ""),
        ("a", 1, ""),
        ("", 1, ""),
    ] {
        assert_eq!(subtree(path, depth), expected, "{path} {depth}");
    }
}
