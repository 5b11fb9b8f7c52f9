//! Tables come back, and what is wrong in one is said with its line.

use super::*;

#[test]
fn tables_come_back_as_they_were() {
    let trace = crate::trace::tests::sample();
    let text = export(&trace);
    assert_eq!(import(&text), Ok(trace));
    assert!(text.lines().skip(2).all(|line| line.split('\t').count() == COLUMNS.len()));
}

#[test]
fn columns_may_come_in_any_order_and_be_few() {
    let trace = import("# by hand\nfile\tkind\tnote\ttime_ns\tfile_name\n7\tread\tx\t5\ta\\tb\\\\c\n\n").unwrap();
    assert_eq!(trace.calls, [Call::new(5, CallKind::Read, 7)]);
    assert_eq!(trace.file_name(7), Some("a\tb\\c"));
}

#[test]
fn faults_are_told_with_their_line() {
    for (text, told) in [
        ("", "no column time_ns"),
        ("time_ns\tkind\n", "no column file"),
        ("time_ns\tkind\tfile\n1\tread\n", "line 2 has fewer columns"),
        ("time_ns\tkind\tfile\n1\tsee\t3\n", "line 2: kind is \"see\""),
        ("time_ns\tkind\tfile\n1\tread\t-3\n", "line 2: file is \"-3\""),
        ("time_ns\tkind\tfile\tresult\n1\tread\t3\t5000\n", "line 2: result is \"5000\""),
    ] {
        let error = import(text).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
