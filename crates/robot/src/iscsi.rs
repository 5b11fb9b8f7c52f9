//! SCSI devices across the network, without the kernel: Debian's libiscsi (`libiscsi7`), loaded when it is first needed, so that stere is
//! built and runs without it.
//!
//! Each transport has a session of its own, used by one thread at a time, and logs in again after a failure.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::sync::OnceLock;
use std::time::Duration;

use crate::error::RobotError;
use crate::transport::{Data, Reply, Transport};

/// Its binary interface is the one below.
const LIBRARY: &CStr = c"libiscsi.so.7";
const INITIATOR: &CStr = c"iqn.2026-11.stere:initiator";
const SESSION_NORMAL: c_int = 2;
const COMMAND_BYTES: usize = 16;
/// The library's own statuses, no device's.
const STATUSES_OF_DEVICES: c_int = 0xff;

/// `struct scsi_task`, as far as it is read.
#[repr(C)]
struct Task {
    status: c_int,
    command_length: c_int,
    direction: c_int,
    expected: c_int,
    command: [c_uchar; COMMAND_BYTES],
    residual_status: c_int,
    residual: usize,
    sense_error: c_uchar,
    sense_key: c_int,
    sense_code: c_int,
    sense_specific: [c_uchar; 4],
    data_length: c_int,
    data: *mut c_uchar,
}

/// `struct iscsi_data`.
#[repr(C)]
struct DataOut {
    length: usize,
    data: *mut c_uchar,
}

const NO_RESIDUAL: c_int = 0;
const UNDERFLOW: c_int = 1;

type Context = *mut c_void;

/// The functions that are used.
struct Functions {
    create_context: unsafe extern "C" fn(*const c_char) -> Context,
    destroy_context: unsafe extern "C" fn(Context) -> c_int,
    set_targetname: unsafe extern "C" fn(Context, *const c_char) -> c_int,
    set_session_type: unsafe extern "C" fn(Context, c_int) -> c_int,
    set_noautoreconnect: unsafe extern "C" fn(Context, c_int),
    set_timeout: unsafe extern "C" fn(Context, c_int) -> c_int,
    get_error: unsafe extern "C" fn(Context) -> *const c_char,
    connect: unsafe extern "C" fn(Context, *const c_char) -> c_int,
    login: unsafe extern "C" fn(Context) -> c_int,
    create_task: unsafe extern "C" fn(c_int, *mut c_uchar, c_int, c_int) -> *mut Task,
    free_task: unsafe extern "C" fn(*mut Task),
    command: unsafe extern "C" fn(Context, c_int, *mut Task, *mut DataOut) -> *mut Task,
}

/// The library, or why it cannot be used.
fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}

#[allow(clippy::missing_transmute_annotations, reason = "the fields of the structure say the types")]
fn load() -> Result<Functions, String> {
    // SAFETY: loading a library runs its initializers; libiscsi has none to speak of.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err("libiscsi.so.7 is not installed; on Debian: apt-get install libiscsi7".into());
    }
    let find = |name: &CStr| {
        // SAFETY: the handle is that of a loaded library, which is never closed.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if found.is_null() { Err(format!("libiscsi.so.7 has no {}", name.to_string_lossy())) } else { Ok(found) }
    };
    /// Makes a function of an address.
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the function of this name has this type in the headers of this version of the library.
            unsafe { std::mem::transmute::<*mut c_void, _>(find($name)?) }
        };
    }
    Ok(Functions {
        create_context: function!(c"iscsi_create_context"),
        destroy_context: function!(c"iscsi_destroy_context"),
        set_targetname: function!(c"iscsi_set_targetname"),
        set_session_type: function!(c"iscsi_set_session_type"),
        set_noautoreconnect: function!(c"iscsi_set_noautoreconnect"),
        set_timeout: function!(c"iscsi_set_timeout"),
        get_error: function!(c"iscsi_get_error"),
        connect: function!(c"iscsi_connect_sync"),
        login: function!(c"iscsi_login_sync"),
        create_task: function!(c"scsi_create_task"),
        free_task: function!(c"scsi_free_scsi_task"),
        command: function!(c"iscsi_scsi_command_sync"),
    })
}

/// A session with a target.
struct Session {
    functions: &'static Functions,
    context: Context,
}

// SAFETY: a context may be used by any thread, one at a time.
unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the context was created and is not used any more.
        unsafe { (self.functions.destroy_context)(self.context) };
    }
}

impl Session {
    fn error(&self) -> String {
        // SAFETY: the library answers a string that lives until the next call.
        let text = unsafe { (self.functions.get_error)(self.context) };
        if text.is_null() {
            return "unknown".into();
        }
        // SAFETY: as above; it ends with a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn open(portal: &CStr, target: &CStr) -> Result<Session, String> {
        let functions = functions()?;
        // SAFETY: all strings end with zeros and outlive the calls.
        let context = unsafe { (functions.create_context)(INITIATOR.as_ptr()) };
        if context.is_null() {
            return Err("no memory for a session".into());
        }
        let session = Session { functions, context };
        // SAFETY: as above; the context is a good one.
        let is_connected = unsafe {
            (functions.set_targetname)(context, target.as_ptr()) == 0
                && (functions.set_session_type)(context, SESSION_NORMAL) == 0
                && {
                    // Lost sessions are begun anew here, where it is known what was lost with them.
                    (functions.set_noautoreconnect)(context, 1);
                    (functions.set_timeout)(context, 30);
                    (functions.connect)(context, portal.as_ptr()) == 0
                }
                && (functions.login)(context) == 0
        };
        if is_connected { Ok(session) } else { Err(session.error()) }
    }
}

/// A task that is freed.
struct OwnedTask {
    functions: &'static Functions,
    task: *mut Task,
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        // SAFETY: the task was created and is not used any more.
        unsafe { (self.functions.free_task)(self.task) };
    }
}

pub struct IscsiTransport {
    portal: CString,
    target: CString,
    lun: c_int,
    name: String,
    session: Option<Session>,
}

impl IscsiTransport {
    /// `iscsi://host[:port]/target/lun`.
    pub fn new(url: &str) -> Result<IscsiTransport, String> {
        let wrong = || format!("'{url}' is no iSCSI device; write iscsi://host[:port]/target/lun");
        let rest = url.strip_prefix("iscsi://").ok_or_else(wrong)?;
        let mut parts = rest.split('/');
        let (Some(portal), Some(target), Some(lun), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let lun = lun.parse::<u8>().map_err(|_| wrong())?;
        if portal.is_empty() || target.is_empty() {
            return Err(wrong());
        }
        let text = |text: &str| CString::new(text).map_err(|_| wrong());
        let (portal, target) = (text(portal)?, text(target)?);
        Ok(IscsiTransport { portal, target, lun: c_int::from(lun), name: url.to_owned(), session: None })
    }

    fn failed(&self, why: impl std::fmt::Display) -> RobotError {
        RobotError::Unreachable { device: self.describe(), why: why.to_string() }
    }
}

impl Transport for IscsiTransport {
    fn execute(&mut self, command: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, RobotError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::open(&self.portal, &self.target).map_err(|why| self.failed(why))?,
        };
        let functions = session.functions;
        let mut bytes = [0; COMMAND_BYTES];
        assert!(command.len() <= COMMAND_BYTES, "longer commands are not given");
        bytes[..command.len()].copy_from_slice(command);
        let (direction, length, pointer) = match &data {
            Data::None => (0, 0, std::ptr::null_mut()),
            Data::In(into) => (1, into.len(), std::ptr::null_mut()),
            // The library only reads it.
            Data::Out(from) => (2, from.len(), from.as_ptr().cast_mut()),
        };
        assert!(c_int::try_from(length).is_ok(), "{length} bytes go along with a command");
        let mut out = DataOut { length, data: pointer };
        let seconds = timeout.as_secs().clamp(1, 3600) as c_int;
        // SAFETY: the command has the length that is told, the task is created by the library, data and session outlive the call.
        let task = unsafe {
            (functions.set_timeout)(session.context, seconds);
            (functions.create_task)(command.len() as c_int, bytes.as_mut_ptr(), direction, length as c_int)
        };
        if task.is_null() {
            return Err(self.failed("no memory for a command"));
        }
        let task = OwnedTask { functions, task };
        // SAFETY: the library made the task; its fields are read to see that it is laid out as is thought here.
        let told = unsafe { ((*task.task).command_length, (*task.task).expected, (*task.task).command) };
        if told != (command.len() as c_int, length as c_int, bytes) {
            return Err(self.failed("this libiscsi is another than the one that stere knows (version 1.19)"));
        }
        let out_pointer = if direction == 2 { &raw mut out } else { std::ptr::null_mut() };
        // SAFETY: as above.
        let done = unsafe { (functions.command)(session.context, self.lun, task.task, out_pointer) };
        if done.is_null() {
            return Err(self.failed(session.error()));
        }
        // SAFETY: the command has ended, so the fields stay as they are; data and length belong together.
        let (status, received, missing) = unsafe {
            let task = &*done;
            let received = match (task.data.is_null(), usize::try_from(task.data_length)) {
                (false, Ok(length)) => std::slice::from_raw_parts(task.data, length),
                _ => &[],
            };
            let missing = match task.residual_status {
                NO_RESIDUAL => 0,
                UNDERFLOW => task.residual,
                _ => 0,
            };
            (task.status, received, missing)
        };
        if !(0..=STATUSES_OF_DEVICES).contains(&status) || status == 0x0f {
            return Err(self.failed(session.error()));
        }
        let mut reply = Reply { status: status as u8, transferred: 0, sense: Vec::new() };
        match (reply.status, data) {
            // Two bytes tell the length.
            (Reply::CHECK_CONDITION, _) => reply.sense = received.get(2..).unwrap_or_default().to_vec(),
            (_, Data::In(into)) => {
                let count = received.len().min(into.len());
                into[..count].copy_from_slice(&received[..count]);
                reply.transferred = count.min(length.saturating_sub(missing));
            }
            (_, Data::Out(_)) => reply.transferred = length.saturating_sub(missing),
            (_, Data::None) => {}
        }
        drop(task);
        self.session = Some(session);
        Ok(reply)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}
