//! Which namespaces may end with a process of theirs (P-166).

use super::*;

const PID: u64 = INITIAL_PID_NAMESPACE;
const OLD: u64 = 4_026_531_841;

#[test]
fn numbers_are_read_from_links() {
    assert_eq!(number("mnt:[4026531832]"), Some(INITIAL_MOUNT_NAMESPACE));
    assert_eq!(number("pid:[4026531836]"), Some(INITIAL_PID_NAMESPACE));
    for broken in ["", "mnt", "mnt:[", "mnt:[]", "mnt:[12", "mnt:[x]", "mnt:[-1]"] {
        assert_eq!(number(broken), None, "{broken}");
    }
}

#[test]
fn the_first_mount_namespace_is_known_by_its_number_or_by_process_1() {
    assert!(is_initial(Some(PID), Some(INITIAL_MOUNT_NAMESPACE), None));
    assert!(is_initial(Some(PID), Some(OLD), Some(OLD)));
}

#[test]
fn every_other_namespace_may_end() {
    // `unshare -m`, `PrivateMounts=`: the machine's processes, a mount namespace of its own.
    assert!(!is_initial(Some(PID), Some(OLD + 7), Some(OLD)));
    assert!(!is_initial(Some(PID), Some(OLD + 7), Some(INITIAL_MOUNT_NAMESPACE)));
    // A container: its process 1 has the same mount namespace, and ends.
    assert!(!is_initial(Some(PID - 100), Some(OLD), Some(OLD)));
    assert!(!is_initial(None, Some(OLD), Some(OLD)));
    // Not even root may read process 1's namespace, and the kernel numbers it as it comes.
    assert!(!is_initial(Some(PID), Some(OLD), None));
    assert!(!is_initial(Some(PID), None, None));
}
