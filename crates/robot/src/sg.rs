//! SCSI devices of this machine, through the kernel's generic driver: `/dev/sgN` and its ioctl `SG_IO`.
//!
//! Between this and the kernel stands one function, which tests replace: what goes into the driver's structure, and what its answers mean,
//! is tried without a device.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::RobotError;
use crate::transport::{Data, Reply, Transport};

/// `struct sg_io_hdr` of `scsi/sg.h`.
#[repr(C)]
struct Header {
    interface_id: c_int,
    direction: c_int,
    command_length: c_uchar,
    sense_length_max: c_uchar,
    iovec_count: c_ushort,
    data_length: c_uint,
    data: *mut c_void,
    command: *const c_uchar,
    sense: *mut c_uchar,
    timeout_ms: c_uint,
    flags: c_uint,
    pack_id: c_int,
    user: *mut c_void,
    status: c_uchar,
    masked_status: c_uchar,
    message_status: c_uchar,
    sense_written: c_uchar,
    host_status: c_ushort,
    driver_status: c_ushort,
    residual: c_int,
    duration_ms: c_uint,
    info: c_uint,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Header>() == 88);

const SG_IO: libc::c_ulong = 0x2285;
const NO_DATA: c_int = -1;
const TO_DEVICE: c_int = -2;
const FROM_DEVICE: c_int = -3;
const SENSE_BYTES: usize = 96;
const COMMAND_BYTES_MAX: usize = 16;
/// The driver's own words: that there is sense data is no failure.
const DRIVER_SENSE: c_ushort = 0x08;

/// Hands a command to the driver.
type Control = dyn FnMut(&File, &mut Header) -> std::io::Result<()> + Send;

fn control(file: &File, header: &mut Header) -> std::io::Result<()> {
    // SAFETY: the header is laid out as the driver's, and its pointers are to command, data and sense, with their lengths, which
    // live until the call returns.
    match unsafe { libc::ioctl(file.as_raw_fd(), SG_IO as _, std::ptr::from_mut(header)) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

pub struct SgTransport {
    path: PathBuf,
    /// Opened at the first use, and again after a failure.
    file: Option<File>,
    control: Box<Control>,
}

impl SgTransport {
    pub fn new(path: &Path) -> SgTransport {
        SgTransport { path: path.to_owned(), file: None, control: Box::new(control) }
    }

    fn failed(&self, why: impl std::fmt::Display) -> RobotError {
        RobotError::Unreachable { device: self.describe(), why: why.to_string() }
    }
}

impl Transport for SgTransport {
    fn execute(&mut self, command: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, RobotError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().read(true).write(true).open(&self.path).map_err(|error| self.failed(error))?,
        };
        let mut sense = [0; SENSE_BYTES];
        let (direction, pointer, length) = match data {
            Data::None => (NO_DATA, std::ptr::null_mut(), 0),
            Data::In(into) => (FROM_DEVICE, into.as_mut_ptr().cast::<c_void>(), into.len()),
            // The driver only reads it.
            Data::Out(from) => (TO_DEVICE, from.as_ptr().cast_mut().cast::<c_void>(), from.len()),
        };
        assert!(command.len() <= COMMAND_BYTES_MAX, "longer commands are not given");
        assert!(c_int::try_from(length).is_ok(), "{length} bytes go along with a command");
        let mut header = Header {
            interface_id: c_int::from(b'S'),
            direction,
            command_length: command.len() as c_uchar,
            sense_length_max: SENSE_BYTES as c_uchar,
            iovec_count: 0,
            data_length: length as c_uint,
            data: pointer,
            command: command.as_ptr(),
            sense: sense.as_mut_ptr(),
            timeout_ms: timeout.as_millis().min(u128::from(u32::MAX)) as c_uint,
            flags: 0,
            pack_id: 0,
            user: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message_status: 0,
            sense_written: 0,
            host_status: 0,
            driver_status: 0,
            residual: 0,
            duration_ms: 0,
            info: 0,
        };
        (self.control)(&file, &mut header).map_err(|error| self.failed(error))?;
        if header.host_status != 0 || header.driver_status & !DRIVER_SENSE != 0 {
            let (host, driver) = (header.host_status, header.driver_status);
            return Err(self.failed(format!("the bus failed (host {host:#x}, driver {driver:#x})")));
        }
        self.file = Some(file);
        let missing = usize::try_from(header.residual).unwrap_or(0);
        let written = usize::from(header.sense_written).min(SENSE_BYTES);
        Ok(Reply {
            status: header.status & 0x3e,
            transferred: length.saturating_sub(missing),
            sense: sense[..written].to_vec(),
        })
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests;
