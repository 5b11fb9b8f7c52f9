//! What mount options mean to the kernel.

use fuse_wire::abi::init;

use super::MountOptions;

#[test]
fn root_mounts_like_a_local_file_system() {
    let options = MountOptions::default().wire(true);
    assert!(options.mount.allow_other && options.mount.default_permissions);
    assert!(!options.mount.no_suid && !options.mount.no_dev && !options.mount.read_only);
    assert!(options.init.flush_unsupported);
    let flags = options.init.flags;
    let wanted = init::POSIX_ACL | init::DONT_MASK | init::HANDLE_KILLPRIV_V2 | init::EXPORT_SUPPORT;
    assert_eq!(flags & wanted, wanted);
    assert_eq!(flags & (init::POSIX_LOCKS | init::FLOCK_LOCKS | init::WRITEBACK_CACHE), 0);
}

#[test]
fn an_ordinary_user_gets_no_privileges() {
    let options = MountOptions::default().wire(false);
    assert!(!options.mount.allow_other && options.mount.no_suid && options.mount.no_dev);
    let asked = MountOptions { allow_other: Some(true), ..MountOptions::default() };
    assert!(asked.wire(false).mount.allow_other);
}

#[test]
fn the_writeback_cache_is_a_choice() {
    let options = MountOptions { writeback_cache: true, ..MountOptions::default() };
    assert_ne!(options.wire(true).init.flags & init::WRITEBACK_CACHE, 0);
}
