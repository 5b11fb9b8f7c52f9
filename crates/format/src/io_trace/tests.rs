//! Traces come back as they were; what is cut or changed is refused.

use super::*;

fn blocks() -> [IoTraceBlock; 2] {
    let call = IoTraceRecord { at_ns: 5, file: 6, client: 7, offset: 8, length: 9, ..IoTraceRecord::default() };
    let last = IoTraceRecord { kind: IoTraceRecord::KINDS - 1, result: 4095, in_flight: 3, age_ms: 2, ..call };
    let names = [(IoTraceNamed::File, "a/Bücher"), (IoTraceNamed::Client, "")];
    let name = |(of, name): (IoTraceNamed, &str)| IoTraceName { of, id: u64::MAX, name: name.into() };
    [IoTraceBlock::Calls(vec![call, last]), IoTraceBlock::Names(names.map(name).to_vec())]
}

#[test]
fn traces_come_back_as_they_were() {
    for is_hashed in [false, true] {
        let header = IoTraceHeader { started_unix_ns: 1 << 60, is_hashed };
        assert_eq!(IoTraceHeader::decode(&header.encode()), Ok(header));
    }
    for block in blocks() {
        let mut bytes = block.encode();
        let length = bytes.len();
        // What follows is the next block's.
        bytes.push(1);
        assert_eq!(IoTraceBlock::decode(&bytes), Ok((block, length)));
    }
}

#[test]
fn every_changed_or_missing_byte_is_noticed() {
    let header = IoTraceHeader { started_unix_ns: 3, is_hashed: false }.encode();
    for at in 0..header.len() {
        let mut changed = header.clone();
        changed[at] ^= 4;
        assert!(IoTraceHeader::decode(&changed).is_err(), "byte {at}");
        assert!(IoTraceHeader::decode(&header[..at]).is_err(), "byte {at}");
    }
    for block in blocks() {
        let bytes = block.encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(IoTraceBlock::decode(&changed).is_err(), "byte {at}");
            assert!(IoTraceBlock::decode(&bytes[..at]).is_err(), "byte {at}");
        }
    }
}

#[test]
fn long_names_and_control_characters_are_made_readable() {
    let name = IoTraceName { of: IoTraceNamed::File, id: 1, name: format!("a\nb{}", "ü".repeat(4000)) };
    let (block, _) = IoTraceBlock::decode(&IoTraceBlock::Names(vec![name]).encode()).expect("it was encoded");
    let IoTraceBlock::Names(names) = block else { panic!("a block of names") };
    assert!(names[0].name.starts_with("a?bü"));
    assert!(names[0].name.len() <= IoTraceName::BYTES_MAX);
}

#[test]
fn the_fullest_blocks_are_read_back() {
    let calls = IoTraceBlock::Calls(vec![IoTraceRecord::default(); IoTraceBlock::CALLS_MAX]);
    assert!(IoTraceBlock::decode(&calls.encode()).is_ok());
    let name = IoTraceName { of: IoTraceNamed::File, id: 1, name: "n".repeat(IoTraceName::BYTES_MAX) };
    let names = IoTraceBlock::Names(vec![name; IoTraceBlock::NAMES_MAX]);
    assert!(IoTraceBlock::decode(&names.encode()).is_ok());
}
