//! What was done before is no error.

use super::*;

#[test]
fn a_directory_that_is_there_is_looked_up_and_one_that_is_gone_was_removed() {
    let mkdir = raw::message(opcode::MKDIR, 3, &[&[0; 8], b"name\0"]);
    assert_eq!(meaning(&mkdir, libc::EEXIST), Meaning::As(raw::message(opcode::LOOKUP, 3, &[b"name\0"])));
    assert_eq!(meaning(&mkdir, libc::ENOSPC), Meaning::Error);
    assert_eq!(meaning(&raw::message(opcode::RMDIR, 3, &[b"name\0"]), libc::ENOENT), Meaning::Done);
    assert_eq!(meaning(&raw::message(opcode::LOOKUP, 3, &[b"name\0"]), libc::ENOENT), Meaning::Error);
    assert_eq!(meaning(&raw::message(opcode::MKDIR, 3, &[&[0; 8], b"no end"]), libc::EEXIST), Meaning::Error);
}

#[test]
fn an_exclusive_create_is_repeated_without_being_exclusive() {
    let flags = (libc::O_EXCL | libc::O_WRONLY).cast_unsigned().to_ne_bytes();
    let mut create = raw::message(opcode::CREATE, 3, &[&flags, &[0; 12], b"name\0"]);
    relax(&mut create);
    let expected = raw::message(opcode::CREATE, 3, &[&libc::O_WRONLY.to_ne_bytes(), &[0; 12], b"name\0"]);
    assert_eq!(create, expected);
    relax(&mut [1, 2, 3]);
}
