//! The list of CPUs; the ring itself is tested against the kernel.

use super::parse_cpu_list;

#[test]
fn cpu_lists_are_counted() {
    assert_eq!(parse_cpu_list("0\n"), Some(1));
    assert_eq!(parse_cpu_list("0-1\n"), Some(2));
    assert_eq!(parse_cpu_list("0-3,8-11"), Some(12));
    assert_eq!(parse_cpu_list(""), None);
}
