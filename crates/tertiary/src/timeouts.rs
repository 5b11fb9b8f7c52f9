//! Connections that look, while they wait for a server, whether anybody still wants it, and that end when nothing moves.
//!
//! A server may take a minute to say nothing. The reader that asked may be killed meanwhile, and no thread is to be kept for it, so a
//! wait is cut into short ones. How long an object may take is not limited, for links are slow and objects large. The limits are on
//! silence, which begins anew with every byte, and on trickling, so that a byte now and then does not keep a connection for ever.
//! Names and connections are waited for as they are; those waits are short.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_device::Cancellation;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport,
};
use ureq::{Agent, Error};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(100);

/// How slow a server may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slowness {
    /// A server that neither gives nor takes a byte for so long is away.
    pub silence: Duration,
    /// One that is waited for twice as long and gives fewer bytes is, too.
    pub least_bytes: usize,
    /// For all pages of a list.
    pub list: Duration,
}

/// An agent for one request at a time, whose waits ask whether that request is cancelled.
pub(crate) struct Line {
    pub agent: Agent,
    cancellation: Arc<Mutex<Cancellation>>,
}

impl Line {
    pub fn new(config: Config, slowness: Slowness) -> Line {
        let cancellation = Arc::new(Mutex::new(Cancellation::NONE));
        Line { agent: agent(config, slowness, &cancellation), cancellation }
    }

    pub fn set_cancellation(&self, cancellation: Cancellation) {
        *self.cancellation.lock() = cancellation;
    }

    pub fn is_cancelled(&self) -> bool {
        is_cancelled(&self.cancellation)
    }
}

fn is_cancelled(cancellation: &Mutex<Cancellation>) -> bool {
    let current = cancellation.lock().clone();
    current.is_cancelled()
}

/// As ureq's own, but for the waits.
fn agent(config: Config, slowness: Slowness, cancellation: &Arc<Mutex<Cancellation>>) -> Agent {
    let cancellation = Arc::clone(cancellation);
    let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default());
    let connector = connector.chain(TimedConnector { slowness, cancellation }).chain(RustlsConnector::default());
    Agent::with_parts(config, connector, DefaultResolver::default())
}

#[derive(Debug)]
struct TimedConnector {
    slowness: Slowness,
    cancellation: Arc<Mutex<Cancellation>>,
}

impl<In: Transport> Connector<In> for TimedConnector {
    type Out = TimedTransport<In>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<TimedTransport<In>>, Error> {
        Ok(chained.map(|inner| TimedTransport::new(inner, self.slowness, Arc::clone(&self.cancellation))))
    }
}

#[derive(Debug)]
struct TimedTransport<T> {
    inner: T,
    silence: Duration,
    least_bytes: usize,
    /// How long was waited for the last few bytes, and how many those were.
    waited: Duration,
    trickled: usize,
    /// When it looked last whether anybody wants the rest.
    looked: Instant,
    cancellation: Arc<Mutex<Cancellation>>,
}

impl<T> TimedTransport<T> {
    fn new(inner: T, slowness: Slowness, cancellation: Arc<Mutex<Cancellation>>) -> TimedTransport<T> {
        let Slowness { silence, least_bytes, .. } = slowness;
        let (waited, trickled, looked) = (Duration::ZERO, 0, Instant::now());
        TimedTransport { inner, silence, least_bytes, waited, trickled, looked, cancellation }
    }

    /// Counts bytes that came after a wait. Only waits count: whoever takes long to use them is not the server.
    fn judge_trickle(&mut self, waited: Duration, bytes: usize) -> Result<(), Error> {
        self.waited += waited;
        self.trickled += bytes;
        if self.trickled >= self.least_bytes {
            (self.waited, self.trickled) = (Duration::ZERO, 0);
        }
        match self.waited > 2 * self.silence {
            true => Err(Error::Io(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the server sent {} bytes in {} s; look whether it works, and the way to it",
                    self.trickled,
                    self.waited.as_secs()
                ),
            ))),
            false => Ok(()),
        }
    }

    /// Also where bytes arrive without end, each before one would look.
    fn look(&mut self) -> Result<(), Error> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        match is_cancelled(&self.cancellation) {
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

impl<T: Transport> Transport for TimedTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.look()?;
        // A new request.
        (self.waited, self.trickled) = (Duration::ZERO, 0);
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
        let (start, before) = (Instant::now(), self.inner.buffers().input().len());
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
                outcome => {
                    let bytes = self.inner.buffers().input().len().saturating_sub(before);
                    self.judge_trickle(start.elapsed(), bytes)?;
                    return outcome;
                }
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
