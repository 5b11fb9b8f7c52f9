//! Connections that look, while they wait for a server's answer, whether anybody still wants it.
//!
//! A server may take a minute to say nothing. Who asked may be killed meanwhile (`stere_device::waiting`), and no thread is to be kept
//! for him: so a wait is cut into short ones. Names and connections are waited for as they are; those waits are short.

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

/// As ureq's own, but for the waits.
pub(crate) fn agent(config: Config) -> Agent {
    let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default());
    let connector = connector.chain(PatientConnector).chain(RustlsConnector::default());
    Agent::with_parts(config, connector, DefaultResolver::default())
}

#[derive(Debug)]
struct PatientConnector;

impl<In: Transport> Connector<In> for PatientConnector {
    type Out = Patient<In>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Patient<In>>, Error> {
        Ok(chained.map(Patient))
    }
}

#[derive(Debug)]
struct Patient<T>(T);

impl<T: Transport> Transport for Patient<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let start = Instant::now();
        loop {
            let left = timeout.after.saturating_sub(start.elapsed());
            if left <= LOOK {
                return self.0.await_input(NextTimeout { after: left.into(), ..timeout });
            }
            match self.0.await_input(NextTimeout { after: LOOK.into(), ..timeout }) {
                Err(Error::Timeout(_)) if waiting::is_given_up() => {
                    return Err(Error::Io(io::Error::other("nobody wants the answer any more")));
                }
                Err(Error::Timeout(_)) => {}
                outcome => return outcome,
            }
        }
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}
