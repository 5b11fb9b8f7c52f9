use super::*;

#[test]
fn changes_come_back_in_order() {
    let changes = [(Key::inode(1), Some(&b"one"[..])), (Key::inode(1), None), (Key::MAX, Some(&b""[..]))];
    let mut payload = Vec::new();
    for (key, value) in &changes {
        let before = payload.len();
        append_change(&mut payload, key, *value);
        assert_eq!(payload.len() - before, change_bytes(*value));
    }
    let decoded: Result<Vec<_>, _> = JournalChanges::new(&payload).collect();
    assert_eq!(decoded.unwrap(), changes);
}

#[test]
fn an_error_ends_the_changes() {
    let mut payload = Vec::new();
    append_change(&mut payload, &Key::inode(1), None);
    payload.push(9);
    payload.extend_from_slice(&[0; 40]);
    let mut changes = JournalChanges::new(&payload);
    assert_eq!(changes.next(), Some(Ok((Key::inode(1), None))));
    assert!(matches!(changes.next(), Some(Err(DecodeError::OutOfRange { field: "operation", .. }))));
    assert_eq!(changes.next(), None);
}

#[test]
fn payloads_are_proven() {
    let payload = vec![7; 5000];
    let header = JournalHeader {
        pool: PoolId([1; 16]),
        epoch: 1,
        at: JournalPosition { position: 8192, sequence: 3 },
        durable_sequence: 2,
        checkpoint_generation: 1,
        counters: Counters::default(),
        group_end: true,
        payload_length: 5000,
        payload_crc32c: crate::crc32c(&payload),
    };
    let mut record = header.encode().to_vec();
    record.extend_from_slice(&payload);
    assert_eq!(header.record_bytes(), 8192);
    let decoded = JournalHeader::decode(&record).unwrap();
    assert_eq!(decoded, header);
    assert_eq!(decoded.payload(&record), Ok(&payload[..]));
    assert!(matches!(decoded.payload(&record[..5000]), Err(DecodeError::Truncated { .. })));
    record[200] ^= 1;
    assert!(matches!(decoded.payload(&record), Err(DecodeError::Checksum { .. })));
}
