//! A site of several machines on this one: an engine for the shared log, nodes, and a machine for each folder with a state of its own. All
//! are on loopback, or each is a host of a network with cables that can be cut. Read next: `network.rs`, `nodes.rs`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stere_log_engines::test_engines::PostgreSql;

use crate::network::{Link, Network, address_of, within};
use crate::node_servers::{Kind, Node};
use crate::support::tier::content;
use crate::support::{World, can_mount};

const NODE_BYTES: u64 = 256 << 20;

/// The fields are dropped in this order: mounts end before their nodes and the engine.
pub struct Site {
    pub machines: Vec<World>,
    pub standbys: Vec<Child>,
    pub nodes: Vec<Node>,
    /// Nodes that came later, and the numbers of their hosts.
    pub added: Vec<(Node, usize)>,
    pub engine: PostgreSql,
    folder: World,
    network: Option<Network>,
}

/// How the hosts of a site are reached: each node, the engine, each machine.
#[derive(Default)]
pub struct Links<'a> {
    pub nodes: &'a [Link],
    pub engine: Link,
    pub machines: &'a [Link],
}

impl Drop for Site {
    fn drop(&mut self) {
        for one in &mut self.standbys {
            drop(one.kill());
            drop(one.wait());
        }
        // A daemon that stands still, or waits for nodes, would hold its mount for ever.
        for machine in &self.machines {
            let place = machine.path("state/run/lab.owned");
            if let Some(owner) = owner_process(machine) {
                signal(owner, libc::SIGKILL);
            }
            drop(Command::new("umount").arg("-l").arg(place).stderr(Stdio::null()).status());
            if let Some(daemon) = machine.find_daemon() {
                signal(daemon, libc::SIGCONT);
                if std::thread::panicking() {
                    signal(daemon, libc::SIGKILL);
                }
            }
        }
    }
}

pub fn signal(process: i32, signal: i32) {
    // SAFETY: a signal to a process that this test began.
    let _told = unsafe { libc::kill(process, signal) };
}

impl Site {
    /// A pool on so many nodes, known to so many machines, mounted nowhere.
    pub fn new(test: &str, nodes: usize, machines: usize) -> Option<Site> {
        if !can_mount(test) {
            return None;
        }
        let engine = PostgreSql::start()?;
        let folder = World::new();
        let node = |number: usize| Node::start(test, Kind::Nbdkit, &folder.folder, &format!("n{number}"), NODE_BYTES);
        let nodes: Vec<Node> = (1..=nodes).map(node).collect::<Option<_>>()?;
        let machines: Vec<World> = (0..machines).map(|_| World::new()).collect();
        let site = Site { machines, standbys: Vec::new(), nodes, added: Vec::new(), engine, folder, network: None };
        site.create();
        Some(site)
    }

    /// The same on a network, each a host of its own.
    pub fn on_network(test: &str, kind: Kind, links: &Links) -> Option<Site> {
        if !can_mount(test) {
            return None;
        }
        let mut network = Network::new(test)?;
        for link in links.nodes.iter().chain([&links.engine]).chain(links.machines) {
            network.add(*link);
        }
        let count = links.nodes.len();
        let engine = within(Some(&network.namespace(count)), || PostgreSql::start_at(&address_of(count), &[]))?;
        let folder = World::new();
        let node = |number: usize| {
            let place = (address_of(number), network.name(number));
            Node::start_at(
                test,
                kind,
                &folder.folder,
                (&format!("n{}", number + 1), NODE_BYTES),
                (&place.0, Some(place.1)),
            )
        };
        let nodes: Vec<Node> = (0..count).map(node).collect::<Option<_>>()?;
        let machine = |number: usize| {
            let mut world = World::new();
            world.namespace = Some(network.namespace(count + 1 + number));
            world
        };
        let machines: Vec<World> = (0..links.machines.len()).map(machine).collect();
        let network = Some(network);
        let site = Site { machines, standbys: Vec::new(), nodes, added: Vec::new(), engine, folder, network };
        site.create();
        Some(site)
    }

    fn create(&self) {
        let devices: Vec<String> = self.nodes.iter().map(Node::device).collect();
        self.machines[0].ok(&format!("create lab {} --log {}", devices.join(" "), self.engine.address()));
        for machine in &self.machines[1..] {
            self.import(machine);
        }
    }

    pub fn network(&self) -> &Network {
        self.network.as_ref().unwrap()
    }

    /// A node on a new host of the network, which no pool knows yet; none where its server is not installed.
    pub fn add_node(&mut self, test: &str, kind: Kind, name: &str) -> Option<()> {
        let network = self.network.as_mut().unwrap();
        let host = network.add(Link::Fast);
        let place = (address_of(host), network.name(host));
        let node = Node::start_at(test, kind, &self.folder.folder, (name, NODE_BYTES), (&place.0, Some(place.1)))?;
        self.added.push((node, host));
        Some(())
    }

    /// Unmounts the pool everywhere, where it is owned last, and checks it. A machine that stands by would own it, if only to end.
    pub fn close(&self) {
        let (owners, others): (Vec<&World>, Vec<&World>) = self.machines.iter().partition(|machine| owns(machine));
        for machine in others.into_iter().rev().chain(owners) {
            machine.ok("umount mount");
        }
        self.machines[0].ok("check lab");
    }

    /// The number of a machine's host.
    pub fn host_of(&self, machine: usize) -> usize {
        self.nodes.len() + 1 + machine
    }

    pub fn import(&self, machine: &World) {
        let places: Vec<String> = self.nodes.iter().map(Node::place).collect();
        machine.ok(&format!("pool import {} --log {}", places.join(" "), self.engine.address()));
    }

    /// Begins a mount that waits until the pool is free.
    pub fn stand_by(&mut self, machine: usize) {
        let world = &self.machines[machine];
        let log = fs::File::create(world.path("standby.log")).unwrap();
        let mut command = world.command("mount lab mount --standby --foreground");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.standbys.push(command.spawn().unwrap());
    }

    /// Waits until a machine has the pool mounted; how long that took.
    pub fn mounted(&self, machine: usize, at_most: Duration) -> Duration {
        let begun = Instant::now();
        let world = &self.machines[machine];
        let point = world.mountpoint().display().to_string();
        let is_mounted = || fs::read_to_string("/proc/mounts").unwrap().contains(&format!(" {point} fuse"));
        while !is_mounted() {
            let said = fs::read_to_string(world.path("standby.log")).unwrap_or_default();
            assert!(begun.elapsed() < at_most, "machine {machine} has not mounted the pool: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
        begun.elapsed()
    }
}

/// Synced files, numbered.
#[derive(Default)]
pub struct Synced {
    pub names: Vec<String>,
    pub longest: Duration,
    pub second_longest: Duration,
}

impl Synced {
    /// Writes one more, unless the mount has ended.
    pub fn write(&mut self, world: &World, prefix: &str) -> std::io::Result<()> {
        self.write_at(&world.mountpoint(), prefix)
    }

    pub fn write_at(&mut self, mountpoint: &Path, prefix: &str) -> std::io::Result<()> {
        let number = self.names.len();
        let name = format!("{prefix}{number}");
        let start = Instant::now();
        let mut file = fs::File::create(mountpoint.join(&name))?;
        file.write_all(&content(number % 50))?;
        file.sync_all()?;
        let took = start.elapsed();
        self.second_longest = self.second_longest.max(took.min(self.longest));
        self.longest = self.longest.max(took);
        self.names.push(name);
        Ok(())
    }

    pub fn assert_right(&self, world: &World) {
        for (number, name) in self.names.iter().enumerate() {
            let found = fs::read(world.mountpoint().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found == content(number % 50), "{name}");
        }
    }
}

/// The process that owns the pool `lab` for a machine that stands by.
pub fn owner_process(world: &World) -> Option<i32> {
    world.find_daemon_at(&world.path("state/run/lab.owned").display().to_string())
}

/// Whether that process owns the pool by now, so that nobody else takes it for free. One that only tries is not asked through another
/// machine's owner.
pub fn owns(world: &World) -> bool {
    // A pool that is degraded is told by the exit code, and is owned all the same.
    let said = owner_process(world).map(|_| world.run("status lab --json"));
    let status = said.and_then(|said| serde_json::from_str::<serde_json::Value>(&said.out).ok());
    status.is_some_and(|status| status["through"].is_null())
}

/// Whether a mount is there and answers nothing; asked by what no kernel has in its memory.
pub fn is_dead(mountpoint: &Path) -> bool {
    let error = rustix::fs::statvfs(mountpoint).err();
    matches!(error, Some(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED))
}

/// Ends a mount whatever state it is in.
pub fn take_away(world: &World) {
    drop(Command::new("umount").arg("-l").arg(world.mountpoint()).stderr(Stdio::null()).status());
}
