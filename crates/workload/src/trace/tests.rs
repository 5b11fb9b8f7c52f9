//! Traces come back, torn and damaged ones as far as they go.

use super::*;
use crate::call::CallKind;
use crate::loads::Load;

pub(crate) fn sample() -> Trace {
    let mut calls = Load::PeriodicDumps.calls(1);
    calls.truncate(9000);
    calls.push(Call { result: 2, age_ms: 77, in_flight: 3, ..Call::new(u64::MAX, CallKind::Unlink, 4) });
    let names = [(IoTraceNamed::File, 1, "/run/check\\point 1"), (IoTraceNamed::Client, 0, "shed")];
    let names = names.map(|(of, id, name)| ((of, id), name.to_owned())).into_iter().collect();
    Trace { started_unix_ns: 1_700_000_000_000_000_000, is_hashed: false, calls, names }
}

#[test]
fn traces_come_back_as_they_were() {
    let trace = sample();
    let bytes = trace.encode(NameRule::Plain);
    assert_eq!(Trace::decode(&bytes), Ok((trace, Missing::default())));
    assert!(Trace::decode(b"nothing of ours").is_err());
    assert_eq!(Trace::decode(&Trace::default().encode(NameRule::None)).unwrap().0, Trace::default());
}

#[test]
fn a_torn_tail_is_told_and_the_rest_is_read() {
    let trace = sample();
    let bytes = trace.encode(NameRule::Plain);
    for cut in [1, 40, 100_000] {
        let (read, missing) = Trace::decode(&bytes[..bytes.len() - cut]).unwrap();
        assert!(missing.torn_bytes > 0 && missing.damaged_blocks == 0, "{missing:?}");
        assert_eq!(read.calls[..], trace.calls[..read.calls.len()]);
        assert!(read.calls.len() % BLOCK_CALLS == 0 && !read.calls.is_empty());
    }
}

#[test]
fn a_damaged_block_is_passed_over() {
    let trace = sample();
    let mut bytes = trace.encode(NameRule::None);
    bytes[IoTraceHeader::SIZE + IoTraceBlockHeader::SIZE + 1000] ^= 1;
    let (read, missing) = Trace::decode(&bytes).unwrap();
    assert_eq!((missing.damaged_blocks, missing.torn_bytes), (1, 0));
    assert_eq!(read.calls[..], trace.calls[BLOCK_CALLS..]);
}

#[test]
fn the_next_block_is_found_behind_a_damaged_header() {
    let trace = sample();
    let mut bytes = trace.encode(NameRule::None);
    bytes[IoTraceHeader::SIZE + 5] ^= 1;
    let (read, missing) = Trace::decode(&bytes).unwrap();
    assert_eq!((missing.damaged_blocks, missing.torn_bytes), (1, 0));
    assert_eq!(read.calls[..], trace.calls[BLOCK_CALLS..]);
    // What was appended after a crash within a block is read, too.
    let cut = trace.encode(NameRule::None).len() - 100;
    let both = [&trace.encode(NameRule::None)[..cut], &trace.encode(NameRule::None)[IoTraceHeader::SIZE..]].concat();
    assert!(Trace::decode(&both).unwrap().0.calls.len() > trace.calls.len());
}

#[test]
fn hashed_names_keep_the_shape_and_hide_the_words() {
    let (key, other) = ([7; 16], [8; 16]);
    let name = hashed_name(&key, "/a/b/a");
    let parts: Vec<&str> = name.split('/').collect();
    assert_eq!(parts.len(), 4);
    assert_eq!((parts[0], parts[1] == parts[3], parts[1] == parts[2]), ("", true, false));
    assert_ne!(name, hashed_name(&other, "/a/b/a"));
    let (read, _) = Trace::decode(&sample().encode(NameRule::Hashed(key))).unwrap();
    assert!(read.is_hashed);
    assert_eq!(read.client_name(0), Some(hashed_name(&key, "shed").as_str()));
}

#[test]
fn a_writer_hands_out_whole_blocks() {
    let mut writer = TraceWriter::new(1000, 0, NameRule::Plain);
    let header = writer.take_ready();
    assert_eq!(header.len(), IoTraceHeader::SIZE);
    for at in 0..BLOCK_CALLS as u64 {
        assert_eq!(writer.ready_bytes(), 0);
        writer.note(&Call::new(1000 + at, CallKind::Open, 1));
    }
    let block = writer.take_ready();
    assert_eq!(IoTraceBlock::decode(&block).unwrap().1, block.len());
    assert!(writer.wants_name(IoTraceNamed::File, 1));
    writer.name(IoTraceNamed::File, 1, "x");
    assert!(!writer.wants_name(IoTraceNamed::File, 1) && writer.wants_name(IoTraceNamed::Client, 1));
    let bytes = [header, block, writer.finish()].concat();
    let (trace, missing) = Trace::decode(&bytes).unwrap();
    assert!(missing.is_nothing());
    assert_eq!((trace.calls.len(), trace.calls[5].at_ns, trace.file_name(1)), (BLOCK_CALLS, 5, Some("x")));
}
