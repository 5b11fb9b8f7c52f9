use super::*;

fn process() -> WatchedProcess {
    WatchedProcess { uid: 7, gid: 8, process: 900, started: 1 << 40, executable: b"/usr/bin/cc".to_vec() }
}

#[test]
fn records_come_back_as_they_were() {
    let time = Timestamp { seconds: -3, nanoseconds: 999_999_999 };
    let (path, command) = (b"/\xff".to_vec(), b"cc\0-c\0a.c\0".to_vec());
    let (inputs, input_names) = (vec![2, 3], Vec::new());
    let written = ProvenanceValue { time, inode: 5, owner: 7, by: process(), path, command, inputs, input_names };
    let bytes = written.encode();
    assert_eq!(bytes.len(), ProvenanceValue::FIXED_BYTES + 16 + 11 + 2 + 10);
    assert_eq!(bytes[0], ProvenanceValue::VERSION_WITHOUT_NAMES, "as older versions write and read it");
    assert_eq!(ProvenanceValue::decode(&bytes).unwrap(), written);
    let input_names = vec![InputName { input: 1, directory: 1 << 40, sequence: 77 }];
    let named = ProvenanceValue { input_names, ..written };
    let bytes = named.encode();
    assert_eq!(bytes.len(), ProvenanceValue::FIXED_BYTES + 16 + 17 + 11 + 2 + 10);
    assert_eq!((bytes[0], ProvenanceValue::decode(&bytes).unwrap()), (ProvenanceValue::VERSION, named));
    for event in AuditEvent::ALL {
        let (path, new_path) = (b"/a".to_vec(), b"/b".to_vec());
        let value = AuditValue { time, event, refused: 1, inode: 5, owner: 7, by: process(), path, new_path };
        assert_eq!(AuditValue::decode(&value.encode()).unwrap(), value);
    }
    let far = WatchedValue { provenance_first: 3, provenance_next: 9, audit_first: 1, audit_next: 1 };
    assert_eq!(WatchedValue::decode(&far.encode()).unwrap(), far);
}

#[test]
fn what_is_out_of_range_is_refused() {
    let bytes = ProvenanceValue { inputs: vec![2], by: process(), ..ProvenanceValue::default() }.encode();
    for (at, wrong) in [(0, 2), (0, 3), (1, 65), (1, 2), (3, 5), (19, 0xff), (32, 1), (33, 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = wrong;
        assert!(ProvenanceValue::decode(&bytes).is_err(), "byte {at}");
    }
    let name = |input| InputName { input, directory: 1, sequence: 2 };
    let of_names =
        |input_names| ProvenanceValue { inputs: vec![2, 3], input_names, ..ProvenanceValue::default() }.encode();
    let bytes = of_names(vec![name(0), name(1)]);
    let names_at = ProvenanceValue::FIXED_BYTES + 16;
    for (at, wrong) in [(0, 1), (32, 0), (32, 25), (33, 1), (names_at, 1), (names_at, 2), (names_at + 17, 0)] {
        let mut bytes = bytes.clone();
        bytes[at] = wrong;
        assert!(ProvenanceValue::decode(&bytes).is_err(), "byte {at} as {wrong}");
    }
    assert!(ProvenanceValue::decode(&of_names(vec![name(1), name(0)])).is_err(), "names are in order");
    let bytes = ProvenanceValue { inputs: vec![2], by: process(), ..ProvenanceValue::default() }.encode();
    assert!(ProvenanceValue::decode(&[&bytes[..], b"x"].concat()).is_err());
    let bytes = AuditValue { by: process(), ..AuditValue::default() }.encode();
    for (at, wrong) in [(0, 2), (1, 0), (1, 7), (3, 5), (19, 0xff), (33, 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = wrong;
        assert!(AuditValue::decode(&bytes).is_err(), "byte {at}");
    }
    let far = WatchedValue::default().encode();
    for (at, wrong) in [(0, 2), (1, 1), (8, 2), (8, 0), (24, 2)] {
        let mut far = far.clone();
        far[at] = wrong;
        assert!(WatchedValue::decode(&far).is_err(), "byte {at}");
    }
}
