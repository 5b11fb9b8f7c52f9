//! Another machine, with a cable that can be pulled: a network namespace. Needs root; none where it cannot be made.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::remote::net_of;

/// A network namespace with a cable to this one; it goes away with everything in it.
pub struct Elsewhere {
    pub name: String,
    cable: String,
    /// Of the other machine.
    pub address: String,
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "del", &self.name]).stderr(Stdio::null()).status());
        drop(Command::new("ip").args(["link", "del", &self.cable]).stderr(Stdio::null()).status());
    }
}

fn run(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Elsewhere {
    pub fn new(test: &str) -> Option<Elsewhere> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (name, cable) = (format!("stere{process}-{number}"), format!("st{process}a{number}"));
        // Addresses of nobody (RFC 5737 has them for documents).
        let last = 4 * ((process * 2 + number) % 60);
        let (ours, address) = (format!("192.0.2.{}", last + 1), format!("192.0.2.{}", last + 2));
        let other = format!("st{process}b{number}");
        let inside = net_of(&name);
        let made = run(&format!("ip netns add {name}"))
            && run(&format!("ip link add {cable} type veth peer name {other} netns {name}"))
            && run(&format!("ip addr add {ours}/30 dev {cable}"))
            && run(&format!("ip link set {cable} up"))
            && run(&format!("nsenter {inside} ip addr add {address}/30 dev {other}"))
            && run(&format!("nsenter {inside} ip link set {other} up"))
            && run(&format!("nsenter {inside} ip link set lo up"));
        let elsewhere = Elsewhere { name, cable, address };
        if !made {
            eprintln!("SKIPPED: {test} needs network namespaces, which cannot be made here");
            return None;
        }
        Some(elsewhere)
    }

    pub fn pull_the_cable(&self, is_pulled: bool) {
        assert!(run(&format!("ip link set {} {}", self.cable, if is_pulled { "down" } else { "up" })));
    }
}
