//! Handles are translated, survive an owner, and get stale.

use fuse_wire::abi::opcode;

use super::*;

fn read(node: u64, handle: u64) -> Vec<u8> {
    raw::message(opcode::READ, node, &[&handle.to_ne_bytes(), &[0; 32]])
}

fn translated(handles: &Handles, mut message: Vec<u8>) -> Result<Option<u64>, Stale> {
    handles.translate(&mut message).map(|()| raw::number_at(&message, raw::HEADER_BYTES))
}

#[test]
fn the_kernels_handles_are_the_owners_of_the_moment() {
    let mut handles = Handles::default();
    let flags = (libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC).cast_unsigned();
    let handle = handles.open(5, flags, false, 100);
    assert_eq!(translated(&handles, read(5, handle)), Ok(Some(100)));
    assert_eq!(translated(&handles, read(6, handle)), Ok(Some(0)), "of another file");
    assert_eq!(handles.all()[0].1.flags, libc::O_RDWR.cast_unsigned());
    handles.reopened(handle, Some(7));
    assert_eq!(translated(&handles, read(5, handle)), Ok(Some(7)));
    handles.reopened(handle, None);
    assert_eq!(translated(&handles, read(5, handle)), Err(Stale));
    handles.release(&raw::message(opcode::RELEASE, 5, &[&handle.to_ne_bytes(), &[0; 16]]));
    assert!(handles.all().is_empty());
    assert_ne!(handles.open(5, flags, false, 1), handle, "no handle is used twice");
}
