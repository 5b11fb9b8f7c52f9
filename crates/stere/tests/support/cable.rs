//! A cable between a machine and a node: a forwarder of TCP that can be cut and mended.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct State {
    is_cut: bool,
    is_over: bool,
    ends: Vec<TcpStream>,
}

/// What goes in at `address` comes out at the other end. While it is cut nothing comes through, and nobody is told.
pub struct Cable {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Cable {
    pub fn to(target: SocketAddr) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let of_thread = state.clone();
        std::thread::spawn(move || {
            for inner in listener.incoming().flatten() {
                if of_thread.lock().unwrap().is_over {
                    return;
                }
                let Ok(outer) = TcpStream::connect(target) else { continue };
                let ends = [inner.try_clone().unwrap(), outer.try_clone().unwrap()];
                of_thread.lock().unwrap().ends.extend(ends);
                for (from, to) in [(inner.try_clone().unwrap(), outer.try_clone().unwrap()), (outer, inner)] {
                    let state = of_thread.clone();
                    std::thread::spawn(move || carry(&state, from, to));
                }
            }
        });
        Cable { address, state }
    }

    pub fn cut(&self) {
        self.state.lock().unwrap().is_cut = true;
    }

    pub fn mend(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap();
        state.is_over = true;
        state.ends.drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
        drop(state);
        drop(TcpStream::connect(self.address));
    }
}

/// One direction.
fn carry(state: &Mutex<State>, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        loop {
            let state = state.lock().unwrap();
            if state.is_over {
                return;
            }
            if !state.is_cut {
                break;
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(20));
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}
