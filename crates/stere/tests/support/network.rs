//! A network of hosts on this machine: a network namespace for each, with a cable to a bridge in one of its own. Cables can be cut, which
//! nobody is told, have a rate, a delay, or eat long packets. All of it goes with the `Network`, and what a dead run has left with the next.
//! Only networks are apart: mounts and processes are seen by all. Needs root and iproute2. Read next: `site.rs`,
//! `crates/bench/src/switch.rs` (delays).

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::switch::{End, Switch, enter};

const PREFIX: &str = "sterenet";

/// How a host is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    #[default]
    Fast,
    /// Both ways.
    Rate { mbit: u32 },
    /// One way; carried by a thread of the test, which can eat long packets as well.
    Delay(Duration),
}

struct Host {
    namespace: String,
    /// Of the bridge's side.
    port: String,
    switch: Option<Switch>,
}

/// Hosts have the addresses 10.99.0.1, 10.99.0.2 and so on.
pub struct Network {
    bridge: String,
    hosts: Vec<Host>,
}

fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn delete(namespace: &str) {
    run(&format!("ip netns del {namespace}"));
}

/// Removes networks whose tests are dead: their names tell the process.
fn remove_leftovers() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            delete(&name);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in self.hosts.drain(..) {
            drop(host.switch);
            delete(&host.namespace);
        }
        delete(&self.bridge);
    }
}

impl Network {
    /// None where no namespaces can be made, which is said.
    pub fn new(test: &str) -> Option<Network> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        remove_leftovers();
        let bridge = format!("{PREFIX}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let made = run(&format!("ip netns add {bridge}"))
            && run(&format!("ip -n {bridge} link add bridge type bridge"))
            && run(&format!("ip -n {bridge} link set bridge up"));
        let network = Network { bridge, hosts: Vec::new() };
        if !made {
            eprintln!("SKIPPED: {test} needs network namespaces and a bridge, which cannot be made here");
            return None;
        }
        Some(network)
    }

    /// Adds a host; its number.
    pub fn add(&mut self, link: Link) -> usize {
        let number = self.hosts.len();
        let (bridge, namespace, port) = (&self.bridge, format!("{}-h{number}", self.bridge), format!("port{number}"));
        assert!(run(&format!("ip netns add {namespace}")));
        let mut host = Host { namespace, port, switch: None };
        let (namespace, port) = (&host.namespace, &host.port);
        if let Link::Delay(delay) = link {
            let end = |namespace: &str, device: &str| End { namespace: namespace.into(), device: device.into() };
            host.switch = Some(Switch::between([&end(namespace, "e0"), &end(bridge, port)], delay).unwrap());
        } else {
            assert!(run(&format!("ip -n {namespace} link add e0 type veth peer name {port} netns {bridge}")));
        }
        let address = address_of(number);
        for line in [
            format!("ip -n {namespace} link set lo up"),
            format!("ip -n {namespace} addr add {address}/24 dev e0"),
            format!("ip -n {namespace} link set e0 up"),
            format!("ip -n {bridge} link set {port} master bridge"),
            format!("ip -n {bridge} link set {port} up"),
        ] {
            assert!(run(&line), "{line}");
        }
        if let Link::Rate { mbit } = link {
            for (namespace, device) in [(namespace, "e0"), (bridge, port)] {
                let line = format!(
                    "tc -n {namespace} qdisc add dev {device} root tbf rate {mbit}mbit burst 64kb latency 50ms"
                );
                assert!(run(&line), "{line}");
            }
        }
        self.hosts.push(host);
        number
    }

    pub fn namespace(&self, host: usize) -> PathBuf {
        Path::new("/run/netns").join(&self.hosts[host].namespace)
    }

    pub fn name(&self, host: usize) -> &str {
        &self.hosts[host].namespace
    }

    /// Nothing goes to the host or comes from it; its own device stays up, and nobody is told.
    pub fn cut(&self, host: usize) {
        assert!(run(&format!("ip -n {} link set {} nomaster", self.bridge, self.hosts[host].port)));
    }

    pub fn mend(&self, host: usize) {
        assert!(run(&format!("ip -n {} link set {} master bridge", self.bridge, self.hosts[host].port)));
    }

    /// Of a host whose link has a delay, perhaps of nothing.
    pub fn switch(&self, host: usize) -> &Switch {
        self.hosts[host].switch.as_ref().unwrap()
    }
}

pub fn address_of(host: usize) -> String {
    format!("10.99.0.{}", host + 1)
}

/// Does the work on a thread in a network namespace; in the test's own where there is none.
pub fn within<T: Send>(namespace: Option<&Path>, work: impl FnOnce() -> T + Send) -> T {
    let Some(namespace) = namespace else { return work() };
    let in_it = || {
        enter(&File::open(namespace).unwrap()).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(in_it).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
