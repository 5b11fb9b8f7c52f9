//! Connections that look, while they wait for a server, whether anybody still wants it, and that end when nothing moves.
//!
//! A server may take a minute to say nothing. Who asked may be killed meanwhile (`stere_device::waiting`), and no thread is to be kept
//! for him: so a wait is cut into short ones. How long an object may take is not limited, for links are slow and objects large: the limit
//! is on silence, which begins anew with every byte. Names and connections are waited for as they are; those waits are short.

use std::io;
use std::time::{Duration, Instant};

use stere_device::waiting;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport,
};
use ureq::{Agent, Error};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(100);

/// As ureq's own, but for the waits: a server that neither gives nor takes a byte for so long is away.
pub(crate) fn agent(config: Config, silence: Duration) -> Agent {
    let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default());
    let connector = connector.chain(PatientConnector { silence }).chain(RustlsConnector::default());
    Agent::with_parts(config, connector, DefaultResolver::default())
}

#[derive(Debug)]
struct PatientConnector {
    silence: Duration,
}

impl<In: Transport> Connector<In> for PatientConnector {
    type Out = Patient<In>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Patient<In>>, Error> {
        Ok(chained.map(|inner| Patient { inner, silence: self.silence, looked: Instant::now() }))
    }
}

#[derive(Debug)]
struct Patient<T> {
    inner: T,
    silence: Duration,
    /// When it looked last whether anybody wants the rest.
    looked: Instant,
}

impl<T> Patient<T> {
    /// Also where bytes arrive without end, each before one would look.
    fn look(&mut self) -> Result<(), Error> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        match waiting::is_given_up() {
            true => Err(Error::Io(io::Error::other("nobody wants the answer any more"))),
            false => Ok(()),
        }
    }

    fn silent(&self, what: &str) -> Error {
        Error::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the server {what} for {:?}; look whether it works, and the way to it", self.silence),
        ))
    }
}

impl<T: Transport> Transport for Patient<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.look()?;
        if *timeout.after <= self.silence {
            return self.inner.transmit_output(amount, timeout);
        }
        // The kernel counts anew from each byte that goes.
        let limit = NextTimeout { after: self.silence.into(), ..timeout };
        match self.inner.transmit_output(amount, limit) {
            Err(Error::Timeout(_)) => Err(self.silent("took nothing")),
            outcome => outcome,
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let start = Instant::now();
        let is_silence_last = *timeout.after > self.silence;
        let after = if is_silence_last { self.silence } else { *timeout.after };
        loop {
            self.look()?;
            let left = after.saturating_sub(start.elapsed());
            let is_last = left <= LOOK;
            let slice = NextTimeout { after: left.min(LOOK).into(), ..timeout };
            match self.inner.await_input(slice) {
                Err(Error::Timeout(_)) if !is_last => {}
                Err(Error::Timeout(_)) if is_silence_last => return Err(self.silent("sent nothing")),
                outcome => return outcome,
            }
        }
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}
