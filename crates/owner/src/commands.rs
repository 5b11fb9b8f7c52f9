//! Commands of other machines: each conversation has a connection of its own, and is handed to whoever answers commands here.
//!
//! Invariants: no machine has more conversations under way than its share; a machine that is refused, and the owner's end, end them.
//! Read next: `listener.rs`, `crates/machine-wire/src/conversation.rs`.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;
use stere_machine_tls::PublicKey;
use stere_machine_wire::{Incoming, Outgoing, StreamError, conversation};

use crate::greet::{FromClient, ToClient};

/// Answers a conversation until its socket is shut; called in a thread of its own.
pub type Answer = Box<dyn Fn(UnixStream) + Send + Sync>;

/// Conversations at a time, in all and of one machine.
const CONVERSATIONS_MAX: usize = 256;
const CONVERSATIONS_OF_MACHINE_MAX: usize = 32;

#[derive(Default)]
struct Conversations {
    next: u64,
    under_way: HashMap<u64, (PublicKey, TcpStream)>,
    is_over: bool,
}

/// All conversations of other machines.
pub(crate) struct Commands {
    answer: Answer,
    conversations: Mutex<Conversations>,
}

/// One that is under way.
pub(crate) struct Turn<'a> {
    commands: &'a Commands,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let ended = self.commands.conversations.lock().under_way.remove(&self.number);
        assert!(ended.is_some(), "a conversation ends once");
    }
}

impl Commands {
    pub fn new(answer: Answer) -> Commands {
        Commands { answer, conversations: Mutex::default() }
    }

    /// A place for one more conversation of the machine with this key, if there is one.
    pub fn begin(&self, key: &PublicKey, socket: &TcpStream) -> std::io::Result<Option<Turn<'_>>> {
        let socket = socket.try_clone()?;
        let mut conversations = self.conversations.lock();
        let all = conversations.under_way.len();
        let of_machine = conversations.under_way.values().filter(|(of, _)| of == key).count();
        if conversations.is_over || all >= CONVERSATIONS_MAX || of_machine >= CONVERSATIONS_OF_MACHINE_MAX {
            return Ok(None);
        }
        let number = conversations.next;
        conversations.next += 1;
        conversations.under_way.insert(number, (*key, socket));
        assert!(conversations.under_way.len() <= CONVERSATIONS_MAX, "each has a place");
        Ok(Some(Turn { commands: self, number }))
    }

    /// Ends those of machines for which this holds.
    pub fn cut(&self, is_out: impl Fn(&PublicKey) -> bool) {
        for (_, socket) in self.conversations.lock().under_way.values().filter(|(key, _)| is_out(key)) {
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Ends all, and takes no more.
    pub fn end(&self) {
        self.conversations.lock().is_over = true;
        self.cut(|_| true);
    }
}

impl Turn<'_> {
    /// Has the conversation answered, until both sides have ended it.
    pub fn serve(&self, mut incoming: Incoming<FromClient>, outgoing: Outgoing<ToClient>) -> Result<(), StreamError> {
        let (ours, theirs) = UnixStream::pair()?;
        std::thread::scope(|scope| {
            let answering = std::thread::Builder::new().name("far-command".to_owned());
            answering.spawn_scoped(scope, || (self.commands.answer)(theirs)).map_err(StreamError::Io)?;
            let carried = conversation::carry(&ours, b"", &mut incoming, outgoing);
            // A connection that broke leaves it open.
            drop(ours.shutdown(Shutdown::Both));
            carried
        })
    }
}
