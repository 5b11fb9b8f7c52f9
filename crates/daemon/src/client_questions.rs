//! Questions of those who only use a mount whose pool another machine owns: who asks is looked at here, and the owner's process answers.
//!
//! Invariant: nothing is read from a client's connection here, as in `public.rs`: what comes with it would be closed by this process.
//! Read next: `public.rs`, `client_control.rs`.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use stere_client_wire::meet::Socket;

use crate::client_control::ClientControl;
use crate::public::{self, Hear, NO_LIBRARY, Questions, READER_PATIENCE};
use crate::receiver::{Client, Heard};
use stere_control::message::Request;
use stere_control::public::{Peer, Question};
use stere_machine::error::{Error, Result, refused};

/// Begins to answer, until the mount ends; gives what takes the socket away.
pub fn start(control: &Arc<ClientControl>, mountpoint: &Path, is_private: bool) -> Option<Socket> {
    let (control, questions) = (Arc::downgrade(control), Arc::new(Questions::of_client()));
    let looking = control.clone();
    let hear: Hear = Arc::new(move |client, _| {
        // The mount may be ending.
        let Some(control) = control.upgrade() else { return };
        if let Err(error) = answer(&control, &questions, &client) {
            public::refuse(&client.stream, &error);
        }
    });
    public::listen(mountpoint, is_private, move || looking.strong_count() == 0, hear)
}

fn answer(control: &ClientControl, questions: &Arc<Questions>, client: &Client) -> Result<()> {
    let Heard { peer, place, question, .. } = client.heard()?;
    if matches!(question, Question::Library { .. }) {
        return refused(NO_LIBRARY);
    }
    client.stream.set_write_timeout(Some(READER_PATIENCE)).map_err(Error::System)?;
    let _turn = questions.begin(peer.uid)?;
    let peer = in_pool(control, peer);
    let request = Request::Asked { peer, inode: place.inode, question };
    let mut first = serde_json::to_vec(&request).map_err(|error| Error::System(error.into()))?;
    first.push(b'\n');
    let (ours, theirs) = UnixStream::pair().map_err(Error::System)?;
    std::thread::scope(|scope| {
        let carrying = std::thread::Builder::new().name("question-carry".to_owned());
        let carrying = carrying.spawn_scoped(scope, move || control.ask(&first, &theirs)).map_err(Error::System)?;
        // To its end, or until nobody listens.
        drop(std::io::copy(&mut &ours, &mut &client.stream));
        drop(ours);
        carrying.join().unwrap_or_else(|_| refused("the question was lost; see the log"))
    })
}

/// Who asks, as the pool knows them: ids of this machine may be others there.
fn in_pool(control: &ClientControl, peer: Peer) -> Peer {
    let all: Vec<u32> = std::iter::once(peer.gid).chain(peer.groups).collect();
    let (uid, mut groups) = control.link.in_pool(peer.uid, &all);
    let gid = groups.remove(0);
    // A process of this machine.
    Peer { uid, gid, groups, process: 0 }
}
