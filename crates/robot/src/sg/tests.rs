//! What goes to the driver and what its answers mean, against a driver that the test plays.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::sense::{Sense, SenseKey};
use crate::transport::execute;

const SECOND: Duration = Duration::from_secs(1);

/// A transport whose driver does as the test says.
fn played(control: impl FnMut(&File, &mut Header) -> std::io::Result<()> + Send + 'static) -> SgTransport {
    // Something that can be opened; nothing is asked of it.
    SgTransport { path: "/dev/null".into(), file: None, control: Box::new(control) }
}

fn command(header: &Header) -> Vec<u8> {
    // SAFETY: the header has the pointer and the length of what the caller holds during the call.
    unsafe { std::slice::from_raw_parts(header.command, usize::from(header.command_length)) }.to_vec()
}

fn put(to: *mut u8, bytes: &[u8], room: usize) {
    assert!(bytes.len() <= room, "the driver never writes beyond what it is given");
    // SAFETY: as above; there is room.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

#[test]
fn what_is_no_generic_device_is_unreachable() {
    for path in ["/dev/null", "/nonexistent/sg0"] {
        let outcome = SgTransport::new(Path::new(path)).execute(&[0; 6], Data::None, SECOND);
        assert!(matches!(outcome, Err(RobotError::Unreachable { .. })), "{path}: {outcome:?}");
    }
}

#[test]
fn the_driver_gets_command_data_and_time() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    let mut transport = played(move |_, header| {
        assert_eq!((header.interface_id, header.sense_length_max, header.iovec_count), (i32::from(b'S'), 96, 0));
        assert_eq!(header.data.is_null(), header.data_length == 0);
        into.lock().push((command(header), header.direction, header.data_length, header.timeout_ms));
        Ok(())
    });
    transport.execute(&[0; 6], Data::None, SECOND).unwrap();
    transport.execute(&[8; 6], Data::In(&mut [0; 300]), SECOND * 300).unwrap();
    transport.execute(&[0xa5; 12], Data::Out(&[1; 70_000]), Duration::from_secs(1 << 40)).unwrap();
    let expected = [(vec![0; 6], -1, 0, 1000), (vec![8; 6], -3, 300, 300_000), (vec![0xa5; 12], -2, 70_000, u32::MAX)];
    assert_eq!(*seen.lock(), expected);
}

#[test]
fn what_was_not_transferred_does_not_count() {
    for (residual, transferred) in [(0, 64), (24, 40), (64, 0), (65, 0), (-1, 64), (i32::MAX, 0)] {
        let mut transport = played(move |_, header| {
            put(header.data.cast(), &[7; 40], header.data_length as usize);
            header.residual = residual;
            Ok(())
        });
        let mut into = [0; 64];
        let reply = transport.execute(&[8; 6], Data::In(&mut into), SECOND).unwrap();
        assert_eq!((reply.status, reply.transferred), (Reply::GOOD, transferred), "{residual}");
        assert_eq!((into[39], into[40]), (7, 0));
    }
}

#[test]
fn sense_is_taken_as_far_as_it_was_written() {
    let filemark = Sense { is_filemark: true, information: Some(64), ..Sense::new(SenseKey::None, (0, 1)) };
    for (written, driver_status) in [(18, 0x08), (96, 0x08), (255, 0x08), (18, 0)] {
        let mut transport = played(move |_, header| {
            put(header.sense, &filemark.encode(), usize::from(header.sense_length_max));
            (header.status, header.sense_written, header.driver_status) = (0x02, written, driver_status);
            header.residual = 64;
            Ok(())
        });
        let error = execute(&mut transport, "READ", &[8; 6], Data::In(&mut [0; 64]), SECOND, false).unwrap_err();
        assert_eq!(error.sense(), Some(&filemark), "{written} bytes of sense: {error}");
    }
    // No sense where there should be some, and a device that is busy.
    for (status, is_busy) in [(0x02, false), (0x08, true), (0x18, true)] {
        let mut transport = played(move |_, header| {
            header.status = status;
            Ok(())
        });
        let error = execute(&mut transport, "READ", &[8; 6], Data::None, SECOND, false).unwrap_err();
        assert_eq!(matches!(error, RobotError::Busy { .. }), is_busy, "{status}: {error}");
        assert!(error.is_of_device(), "{error}");
    }
}

#[test]
fn a_bus_that_fails_is_no_answer_and_the_device_is_opened_again() {
    // Time-out, no connection, reset by the host; time-out by the driver's word; the call itself.
    for (host, driver, errno) in
        [(0x03, 0, 0), (0x01, 0, 0), (0x08, 0, 0), (0, 0x06, 0), (0, 0x0e, 0), (0, 0, libc::ENODEV)]
    {
        let descriptors = Arc::new(Mutex::new(Vec::new()));
        let into = descriptors.clone();
        let mut transport = played(move |file, header| {
            into.lock().push(file.try_clone().map(|file| file.as_raw_fd()).unwrap_or(-1));
            if into.lock().len() == 2 {
                (header.host_status, header.driver_status) = (host, driver);
                if errno != 0 {
                    return Err(std::io::Error::from_raw_os_error(errno));
                }
            }
            Ok(())
        });
        transport.execute(&[0; 6], Data::None, SECOND).unwrap();
        assert!(transport.file.is_some(), "it stays open");
        let error = transport.execute(&[0; 6], Data::None, SECOND).unwrap_err();
        assert!(matches!(error, RobotError::Unreachable { .. }) && error.is_of_device(), "{error}");
        assert!(transport.file.is_none(), "it is not used any more");
        transport.execute(&[0; 6], Data::None, SECOND).unwrap();
        assert_eq!(descriptors.lock().len(), 3);
    }
}
