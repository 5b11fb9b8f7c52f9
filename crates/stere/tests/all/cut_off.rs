//! An owner that is cut off, with the real binary, real nodes and a real PostgreSQL (P-241, P-244): from its nodes, from the log, or from all
//! but its clients. Somebody else goes on, nothing acknowledged is lost, and the one that was cut off harms nobody when it is back.
//! Needs root and /dev/fuse. Read next: `support/cable.rs`, `clients.rs`.

use std::time::{Duration, Instant};

use crate::cable::Cable;
use crate::node_servers::Node;
use crate::site::{Site, Synced, owner_process};
use crate::support::World;
use crate::support::tier::until;

/// Devices are given up after five seconds, an owner after five more; what a busy machine adds.
const CALL_MAX: Duration = Duration::from_secs(40);

/// A machine that reaches all by cables; it is the owner. Another stands by, a third is a client.
struct CutOff {
    site: Site,
    nodes: Vec<Cable>,
    log: Cable,
}

impl CutOff {
    fn new(test: &str) -> Option<CutOff> {
        let mut site = Site::new(test, 3, 2)?;
        let port_of = |address: &str| -> u16 {
            let (front, _) = address.rsplit_once('/').unwrap();
            front.rsplit_once(':').unwrap().1.parse().unwrap()
        };
        let cable = |address: &str| Cable::to(([127, 0, 0, 1], port_of(address)).into());
        let through = |address: &str, cable: &Cable| {
            address.replace(&format!(":{}/", port_of(address)), &format!(":{}/", cable.address.port()))
        };
        let places: Vec<String> = site.nodes.iter().map(Node::place).collect();
        let nodes: Vec<Cable> = places.iter().map(|place| cable(place)).collect();
        let log = cable(&site.engine.address());
        let far = World::new();
        let places: Vec<String> = places.iter().zip(&nodes).map(|(place, cable)| through(place, cable)).collect();
        far.ok(&format!("pool import {} --log {}", places.join(" "), through(&site.engine.address(), &log)));
        far.ok("mount lab mount --standby");
        // It is the owner once somebody is served; nobody else stands by until then.
        std::fs::write(far.mountpoint().join("first"), b"of the owner").unwrap();
        assert!(owner_process(&far).is_some(), "an owner behind cables");
        site.machines[0].ok("mount lab mount --standby");
        site.machines[1].ok("mount lab mount -o nostandby");
        site.machines.push(far);
        Some(CutOff { site, nodes, log })
    }

    fn goes_on(&self, cut: &[&Cable]) {
        let [standby, client, far] = &self.site.machines[..] else { panic!("three machines") };
        let mut synced = Synced::default();
        for _ in 0..10 {
            synced.write(client, "a").unwrap();
        }
        let old = owner_process(far);
        cut.iter().for_each(|cable| cable.cut());
        let start = Instant::now();
        synced.write(client, "b").unwrap();
        let waited = start.elapsed();
        eprintln!("the first call after the cut took {waited:?}");
        assert!(waited < CALL_MAX, "{waited:?}");
        assert!(owner_process(standby).is_some(), "the one that stands by is the owner");
        for _ in 0..10 {
            synced.write(client, "b").unwrap();
        }
        cut.iter().for_each(|cable| cable.mend());
        until("the end of the owner that was cut off", || owner_process(far) != old);
        synced.write(far, "c").unwrap();
        [client, standby, far].iter().for_each(|machine| synced.assert_right(machine));
        for machine in [client, far, standby] {
            machine.ok("umount mount");
        }
        standby.ok("check lab");
    }
}

#[test]
fn an_owner_cut_off_from_its_nodes_is_followed() {
    let Some(site) = CutOff::new("an_owner_cut_off_from_its_nodes_is_followed") else { return };
    let nodes: Vec<&Cable> = site.nodes.iter().collect();
    site.goes_on(&nodes);
}

#[test]
fn an_owner_cut_off_from_the_log_is_followed() {
    let Some(site) = CutOff::new("an_owner_cut_off_from_the_log_is_followed") else { return };
    site.goes_on(&[&site.log]);
}

#[test]
fn an_owner_cut_off_from_all_but_its_clients_is_followed() {
    let Some(site) = CutOff::new("an_owner_cut_off_from_all_but_its_clients_is_followed") else { return };
    let all: Vec<&Cable> = site.nodes.iter().chain([&site.log]).collect();
    site.goes_on(&all);
}
