//! The edge: somebody who executes a SCSI command block. Read next: `sense.rs`.

use std::time::Duration;

use crate::error::RobotError;
use crate::sense::Sense;

/// What goes along with a command.
pub enum Data<'a> {
    None,
    /// The device answers into this.
    In(&'a mut [u8]),
    /// The device gets this.
    Out(&'a [u8]),
}

/// What a device answered to a command that it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// GOOD is 0, CHECK CONDITION is 2.
    pub status: u8,
    /// Bytes that were transferred, never more than there was room for.
    pub transferred: usize,
    /// As it came; empty unless the status is CHECK CONDITION.
    pub sense: Vec<u8>,
}

impl Reply {
    pub const GOOD: u8 = 0;
    pub const CHECK_CONDITION: u8 = 2;

    pub fn good(transferred: usize) -> Reply {
        Reply { status: Reply::GOOD, transferred, sense: Vec::new() }
    }

    pub fn check(sense: &Sense, transferred: usize) -> Reply {
        Reply { status: Reply::CHECK_CONDITION, transferred, sense: sense.encode().to_vec() }
    }
}

/// A changer or a drive. An error means that the command may or may not have been executed.
pub trait Transport: Send {
    fn execute(&mut self, command: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, RobotError>;

    /// One line for people.
    fn describe(&self) -> String;
}

/// How often a command is given again because the device had to say something first.
const ATTENTIONS_MAX: usize = 8;

/// Executes a command; whatever is not GOOD is an error with its sense. With `again` the device's news (resets, changed media) are taken
/// note of by giving the command once more.
pub(crate) fn execute(
    transport: &mut dyn Transport,
    what: &'static str,
    command: &[u8],
    mut data: Data<'_>,
    timeout: Duration,
    again: bool,
) -> Result<usize, RobotError> {
    let length = match command[0] >> 5 {
        0 => 6,
        1 | 2 => 10,
        4 => 16,
        _ => 12,
    };
    assert_eq!(command.len(), length, "{what} has the length of its group of commands");
    let room = match &data {
        Data::None => 0,
        Data::In(into) => into.len(),
        Data::Out(from) => from.len(),
    };
    let mut attentions = 0;
    loop {
        let data = match &mut data {
            Data::None => Data::None,
            Data::In(into) => Data::In(into),
            Data::Out(from) => Data::Out(from),
        };
        let reply = transport.execute(command, data, timeout)?;
        if reply.status == Reply::GOOD {
            assert!(reply.transferred <= room, "{} bytes went where {room} go", reply.transferred);
            return Ok(reply.transferred);
        }
        let device = transport.describe();
        if reply.status != Reply::CHECK_CONDITION {
            return Err(RobotError::Busy { device, what, status: reply.status });
        }
        let sense = Sense::decode(&reply.sense).ok_or(RobotError::Malformed { device: device.clone(), what })?;
        attentions += 1;
        if sense.is_attention() && again && attentions < ATTENTIONS_MAX {
            continue;
        }
        return Err(RobotError::Refused { device, what, sense });
    }
}
