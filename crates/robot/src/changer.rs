//! Commands of a medium changer (SMC): what is where, and moving it.

use std::time::Duration;

use crate::element::{Element, ElementKind, Elements, decode_assignment, decode_status};
use crate::error::RobotError;
use crate::transport::{Data, Transport, execute};

const SHORT: Duration = Duration::from_secs(60);
/// Arms may look at every slot, and are slow.
const LONG: Duration = Duration::from_secs(900);
const STATUS_BYTES_MAX: usize = 1 << 20;

pub struct Changer {
    transport: Box<dyn Transport>,
    pub elements: Elements,
}

impl Changer {
    /// Asks the changer what elements it has; gives the transport back if that cannot be done now.
    pub fn open(mut transport: Box<dyn Transport>) -> Result<Changer, (Box<dyn Transport>, RobotError)> {
        match Changer::ask_elements(&mut *transport) {
            Ok(elements) => Ok(Changer { transport, elements }),
            Err(error) => Err((transport, error)),
        }
    }

    fn ask_elements(transport: &mut dyn Transport) -> Result<Elements, RobotError> {
        // What it has to say first (that it was switched on) is no obstacle.
        execute(transport, "TEST UNIT READY", &[0; 6], Data::None, SHORT, true)?;
        let mut reply = vec![0; 252];
        let command = [0x1a, 0x08, 0x1d, 0, 252, 0];
        let length = execute(transport, "MODE SENSE", &command, Data::In(&mut reply), SHORT, true)?;
        let malformed = || RobotError::Malformed { device: transport.describe(), what: "MODE SENSE" };
        decode_assignment(&reply[..length.min(252)]).ok_or_else(malformed)
    }

    pub fn into_transport(self) -> Box<dyn Transport> {
        self.transport
    }

    pub fn describe(&self) -> String {
        self.transport.describe()
    }

    /// Has the arm look at every slot again.
    pub fn look_again(&mut self) -> Result<(), RobotError> {
        let command = [0x07, 0, 0, 0, 0, 0];
        execute(&mut *self.transport, "INITIALIZE ELEMENT STATUS", &command, Data::None, LONG, true).map(drop)
    }

    /// All elements, asked for kind by kind: some changers answer wrongly when asked for all kinds at once.
    pub fn status(&mut self) -> Result<Vec<Element>, RobotError> {
        let mut all = Vec::new();
        for kind in ElementKind::ALL {
            let (first, count) = self.elements.of(kind);
            if count > 0 {
                all.extend(self.status_of(kind, first, count)?);
            }
        }
        Ok(all)
    }

    fn status_of(&mut self, kind: ElementKind, first: u16, count: u16) -> Result<Vec<Element>, RobotError> {
        assert!(count > 0 && first.checked_add(count).is_some(), "{count} elements from {first} on have addresses");
        let mut reply = vec![0; (1024 + 128 * usize::from(count)).min(STATUS_BYTES_MAX)];
        let ([f0, f1], [c0, c1], size) = (first.to_be_bytes(), count.to_be_bytes(), (reply.len() as u32).to_be_bytes());
        let with_barcodes = 0x10 | kind.code();
        let command = [0xb8, with_barcodes, f0, f1, c0, c1, 0, size[1], size[2], size[3], 0, 0];
        let what = "READ ELEMENT STATUS";
        let length = execute(&mut *self.transport, what, &command, Data::In(&mut reply), LONG, true)?;
        let malformed = || RobotError::Malformed { device: self.transport.describe(), what };
        let elements = decode_status(&reply[..length.min(reply.len())]).ok_or_else(malformed)?;
        // Nothing counts that was not asked for.
        let is_asked = |element: &Element| element.kind == kind && element.address.wrapping_sub(first) < count;
        Ok(elements.into_iter().filter(is_asked).collect())
    }

    /// Moves a medium; what is refused is in the error's sense.
    pub fn move_medium(&mut self, from: u16, to: u16) -> Result<(), RobotError> {
        let ([f0, f1], [t0, t1], [a0, a1]) = (from.to_be_bytes(), to.to_be_bytes(), self.elements.arms.0.to_be_bytes());
        let command = [0xa5, 0, a0, a1, f0, f1, t0, t1, 0, 0, 0, 0];
        execute(&mut *self.transport, "MOVE MEDIUM", &command, Data::None, LONG, true).map(drop)
    }
}
