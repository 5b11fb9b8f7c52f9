//! Open files passed over a unix socket, with one byte as greeting.

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// What carries the handles.
const GREETING: u8 = b'?';
/// Handles that can come with a greeting; the kernel closes what is beyond.
pub const HANDLES_MAX: usize = 4;

/// Room for the handles, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);
const _: () = assert!(size_of::<Control>() >= 16 + HANDLES_MAX * size_of::<RawFd>());

fn message(iov: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr: null pointers and lengths of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE((HANDLES_MAX * size_of::<RawFd>()) as u32) } as _;
    message
}

/// Sends the greeting with these.
pub fn send(stream: &UnixStream, handles: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    assert!(!handles.is_empty() && handles.len() <= HANDLES_MAX, "{} handles in a greeting", handles.len());
    let mut greeting = [GREETING];
    let mut iov = libc::iovec { iov_base: greeting.as_mut_ptr().cast(), iov_len: greeting.len() };
    let mut control = Control([0; 64]);
    let mut message = message(&mut iov, &mut control);
    let bytes = (size_of::<RawFd>() * handles.len()) as u32;
    // SAFETY: the control buffer is longer than one header and the descriptors, aligned, and lives until the call returns; the
    // first header is therefore within it.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        let data = libc::CMSG_DATA(header).cast::<RawFd>();
        for (index, handle) in handles.iter().enumerate() {
            data.add(index).write_unaligned(handle.as_raw_fd());
        }
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The handles that come with the greeting; none if it is no greeting.
pub fn take(stream: &UnixStream) -> std::io::Result<Vec<OwnedFd>> {
    let mut greeting = [0];
    let mut iov = libc::iovec { iov_base: greeting.as_mut_ptr().cast(), iov_len: greeting.len() };
    let mut control = Control([0; 64]);
    let mut message = message(&mut iov, &mut control);
    // SAFETY: all that the message leads to lives until the call returns.
    let received = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut handles: Vec<OwnedFd> = Vec::new();
    // SAFETY: the kernel filled the buffer with whole headers, as long as it says; every descriptor in them is ours now, and of
    // nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<RawFd>() {
                    handles.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let is_greeting = received == 1 && greeting == [GREETING] && message.msg_flags & libc::MSG_CTRUNC == 0;
    Ok(if is_greeting { handles } else { Vec::new() })
}

/// What a read into this buffer would take, and whether open files come with it; waits for bytes if `may_block`. All stays where it is, and no
/// file is received. At the end there are no bytes.
pub fn peek(stream: &UnixStream, buffer: &mut [u8], may_block: bool) -> std::io::Result<Peeked> {
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a valid msghdr: null pointers and lengths of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    let wait = if may_block { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: all that the message leads to lives until the call returns; without room for control messages none is delivered.
    let received = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_PEEK | wait) };
    match usize::try_from(received) {
        Ok(bytes) => Ok(Peeked { bytes, has_handles: message.msg_flags & libc::MSG_CTRUNC != 0 }),
        Err(_) => Err(std::io::Error::last_os_error()),
    }
}

/// What comes next on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peeked {
    pub bytes: usize,
    pub has_handles: bool,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn handles_that_wait_are_seen_before_they_are_taken() {
        let (one, mut other) = UnixStream::pair().expect("a pair");
        (&one).write_all(b"plain").expect("it is sent");
        assert_eq!(peek(&other, &mut [0; 64], true).expect("it is there"), Peeked { bytes: 5, has_handles: false });
        send(&one, &[one.as_fd()]).expect("it is sent");
        assert!(peek(&other, &mut [0; 64], true).expect("it is there").has_handles, "behind plain bytes too");
        let mut bytes = [0; 5];
        other.read_exact(&mut bytes).expect("what was seen is still there");
        assert!(peek(&other, &mut [0; 64], true).expect("it is there").has_handles);
        assert_eq!(take(&other).expect("it is there").len(), 1);
        drop(one);
        assert_eq!(peek(&other, &mut [0; 64], false).expect("the end"), Peeked { bytes: 0, has_handles: false });
    }
}
