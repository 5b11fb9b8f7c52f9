//! The text of other tools is read; what is exported comes back.

use super::*;

/// Written by hand in the shape of the tool's output.
const TEXT: &str = "\
# darshan log version: 3.41
# start_time: 1700000000
# ***************************************************
# DXT_POSIX module data
# ***************************************************

# DXT, file_id: 16457598720760448348, file_name: /scratch/a, b: c
# DXT, rank: 3, hostname: shed
# DXT, write_count: 2, read_count: 1
# DXT, mnt_pt: /scratch, fs_type: lustre
# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)  [OST]
 X_POSIX       3  write        0               0       262144      0.0029      0.0032  [  1]
 X_POSIX       3  write        1          262144       262144      0.0032      0.0035  [  2]
 X_POSIX       3   read        0               0         4096      0.0010      0.0011

# DXT_MPIIO module data
# DXT, file_id: 16457598720760448348, file_name: /scratch/a
 X_MPIIO       3  write        0             N/A       524288      0.0028      0.0036
";

#[test]
fn the_output_of_the_parser_is_read() {
    let (trace, left_out) = import(TEXT).unwrap();
    assert_eq!(left_out, LeftOut { other_modules: 1, unknown_lines: 0 });
    assert_eq!(trace.calls.len(), 3);
    let [read, write, _] = trace.calls[..] else { panic!("three calls") };
    assert_eq!((read.kind, read.at_ns, read.latency_ns, read.length), (CallKind::Read, 1_000_000, 100_000, 4096));
    assert_eq!((write.kind, write.stream, write.file), (CallKind::Write, 3, 16_457_598_720_760_448_348));
    assert_eq!(trace.client_name(3), Some("shed"));
    assert_eq!(trace.started_unix_ns, 1_700_000_000_000_000_000);
}

#[test]
fn what_is_exported_comes_back() {
    let trace = crate::trace::tests::sample();
    let text = export(&trace);
    let (read, left_out) = import(&text).unwrap();
    assert_eq!(left_out, LeftOut::default());
    let data: Vec<&Call> = trace.calls.iter().filter(|call| call.kind.is_data()).collect();
    assert_eq!(read.calls.len(), data.len());
    let bytes = |calls: &mut dyn Iterator<Item = &Call>| calls.map(|call| call.length).sum::<u64>();
    assert_eq!(bytes(&mut read.calls.iter()), bytes(&mut data.into_iter()));
    assert_eq!((read.file_name(1), read.file_name(2)), (trace.file_name(1), None));
    // From then on nothing changes any more.
    assert!(export(&read) == text);
}

#[test]
fn faults_are_told_with_their_line() {
    assert_eq!(import(" X_POSIX 0 read 0 0 1 0.1 0.2\n"), Err(WorkloadError::NoFile { line: 1 }));
    let bad = import("# DXT, file_id: 1, file_name: a\n X_POSIX 0 read 0 x 1 0.1 0.2\n").unwrap_err();
    assert!(bad.to_string().contains("line 2: offset is \"x\""), "{bad}");
    assert_eq!(import("").unwrap().0, Trace::default());
    let (trace, left_out) = import("# DXT, file_id: 1, file_name: a\n X_POSIX 0 read\nnonsense\n").unwrap();
    assert!(trace.calls.is_empty());
    assert_eq!(left_out, LeftOut { other_modules: 1, unknown_lines: 1 });
}
