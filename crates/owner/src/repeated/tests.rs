//! P-266: what is noted is not done again.

use super::*;

const NOTED: Noted = Noted { slot: 0, place: 4096 };

#[test]
fn what_was_made_is_looked_up_and_what_was_removed_is_done() {
    let mkdir = raw::message(opcode::MKDIR, 3, &[&[0; 8], b"name\0"]);
    assert!(is_noted(&mkdir));
    assert_eq!(rest_of(mkdir, &NOTED), Rest::Perform(raw::message(opcode::LOOKUP, 3, &[b"name\0"])));
    for operation in [opcode::UNLINK, opcode::RMDIR] {
        assert_eq!(rest_of(raw::message(operation, 3, &[b"name\0"]), &NOTED), Rest::Done);
    }
    assert_eq!(rest_of(raw::message(opcode::RENAME, 3, &[&[0; 8], b"old\0new\0"]), &NOTED), Rest::Done);
    assert_eq!(rest_of(raw::message(opcode::MKDIR, 3, &[&[0; 8], b"no end"]), &NOTED), Rest::Done);
}

#[test]
fn a_file_that_was_made_is_opened_and_not_emptied() {
    let create = |flags: i32| raw::message(opcode::CREATE, 3, &[&flags.to_ne_bytes(), &[0; 12], b"name\0"]);
    let rest = rest_of(create(libc::O_EXCL | libc::O_TRUNC | libc::O_WRONLY), &NOTED);
    assert_eq!(rest, Rest::Perform(create(libc::O_WRONLY)));
}

#[test]
fn an_append_goes_where_it_went() {
    let write = |offset: u64, flags: i32| {
        let head: [&[u8]; 6] = [
            &7_u64.to_ne_bytes(),
            &offset.to_ne_bytes(),
            &3_u32.to_ne_bytes(),
            &[0; 12],
            &flags.to_ne_bytes(),
            &[0; 4],
        ];
        raw::message(opcode::WRITE, 5, &[&head.concat(), b"abc"])
    };
    assert!(!is_noted(&write(10, libc::O_WRONLY)), "made again it comes to the same");
    let append = write(10, libc::O_WRONLY | libc::O_APPEND);
    assert!(is_noted(&append));
    assert_eq!(rest_of(append, &NOTED), Rest::Perform(write(4096, libc::O_WRONLY)));
}

#[test]
fn attributes_that_are_set_or_gone_are_no_error() {
    let set = raw::message(opcode::SETXATTR, 3, &[&[0; 8], b"name\0"]);
    assert!(is_done_before(&set, libc::EEXIST) && !is_done_before(&set, libc::ENOSPC) && !is_noted(&set));
    assert!(is_done_before(&raw::message(opcode::REMOVEXATTR, 3, &[b"name\0"]), libc::ENODATA));
    assert!(!is_done_before(&raw::message(opcode::MKDIR, 3, &[&[0; 8], b"name\0"]), libc::EEXIST));
    assert!(!is_done_before(&[1, 2, 3], libc::EEXIST) && !is_noted(&[1, 2, 3]));
}
