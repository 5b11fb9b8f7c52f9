//! What can be tested of mounting without mounting.

use super::*;

#[test]
fn mountinfo_is_searched_for_the_newest_mount() {
    let info = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
        30 22 0:40 / /mnt/a\\040b rw - fuse x rw\n\
        31 22 0:41 / /mnt/a\\040b rw - fuse y rw\n\
        broken\n";
    assert_eq!(find_device_number(info, b"/mnt/a b").as_deref(), Some("0:41"));
    assert_eq!(find_device_number(info, b"/").as_deref(), Some("254:0"));
    assert_eq!(find_device_number(info, b"/mnt"), None);
}

#[test]
fn a_mount_is_found_where_its_directory_went() {
    let info = b"30 22 0:40 / /mnt/a rw - fuse.x pool rw\n\
        31 22 0:41 / /mnt/moved/b rw - fuse.x pool rw\n";
    assert_eq!(find_place(info, b"/mnt/a", "30 0:40 fuse.x pool").as_deref(), Some(&b"/mnt/a"[..]));
    assert_eq!(find_place(info, b"/mnt/b", "31 0:41 fuse.x pool").as_deref(), Some(&b"/mnt/moved/b"[..]));
    assert_eq!(find_place(info, b"/mnt/b", "31 0:41 fuse.x other"), None, "the numbers are another's by now");
    assert_eq!(find_place(info, b"/mnt/b", "29 0:41 fuse.x pool"), None, "another mount of the same file system");
}

#[test]
fn escapes_are_undone() {
    assert_eq!(unescape(b"a\\040b\\134c"), b"a b\\c");
    assert_eq!(unescape(b"\\04"), b"\\04");
    assert_eq!(unescape(b"\\999"), b"\\999");
}

#[test]
fn unusable_mount_points_are_named() {
    let missing = check_mountpoint(Path::new("/no/such/directory")).unwrap_err();
    assert!(matches!(missing, Error::MountPoint { .. }), "{missing}");
    let file = check_mountpoint(Path::new("/proc/self/status")).unwrap_err();
    assert!(matches!(file, Error::MountPointNotDirectory(_)), "{file}");
}

#[test]
fn mount_data_names_the_descriptor() {
    let options = MountOptions { allow_other: true, ..MountOptions::default() };
    let data = mount_data(5, true, &options);
    assert_eq!(data, "fd=5,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,blksize=4096");
}
