//! What umount(8) says, and that it is asked (P-166).

use super::*;

#[test]
fn words_tell_causes_apart() {
    let number = |text: &str| to_error(text.as_bytes()).raw_os_error();
    assert_eq!(number("umount: /m: target is busy."), Some(libc::EBUSY));
    assert_eq!(number("umount: can't unmount /m: Device or resource busy"), Some(libc::EBUSY));
    assert_eq!(number("umount: /m: not mounted."), Some(libc::EINVAL));
    assert_eq!(number("umount: can't unmount /m: Invalid argument"), Some(libc::EINVAL));
    assert_eq!(number("umount: /m: no mount point specified."), Some(libc::EINVAL));
    let other = to_error(b"umount: /m: must be superuser to unmount.\n");
    assert_eq!(other.raw_os_error(), None);
    assert!(other.to_string().contains("must be superuser"), "{other}");
}

/// The real umount(8) of this machine, whichever it is.
#[test]
fn what_is_not_mounted_is_told_as_such() {
    let missing = unmount(Path::new("/proc/self"), false).unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::EINVAL), "{missing}");
}
