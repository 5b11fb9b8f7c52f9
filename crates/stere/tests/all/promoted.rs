//! A log in a PostgreSQL that replicates synchronously (P-263): its primary is killed while programs sync, the standby is promoted, and the pool
//! goes on there with all that was acknowledged. Needs root and /dev/fuse. Read next: `shared_log.rs`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stere_log_engines::test_engines::PostgreSql;

use crate::site::Synced;
use crate::support::tier::until;
use crate::support::{World, can_mount};

/// 2 rounds; `STERE_TEST_ROUNDS` asks for more.
fn rounds() -> usize {
    std::env::var("STERE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// What a thread syncs until the end.
struct Writer<'a> {
    world: &'a World,
    synced: Mutex<Synced>,
    is_over: AtomicBool,
}

impl Writer<'_> {
    fn run(&self) {
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            // Not with the lock held: whoever counts does not wait for the log.
            let mut one = Synced { names: vec![String::new(); number], ..Synced::default() };
            one.write(self.world, "a").unwrap();
            self.synced.lock().unwrap().names.extend(one.names.pop());
            number += 1;
        }
    }

    fn count(&self) -> usize {
        self.synced.lock().unwrap().names.len()
    }

    fn until_more(&self, files: usize) {
        let before = self.count();
        until("synced files", || self.count() >= before + files);
    }
}

/// Tells the writer to end, also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_log_goes_on_at_a_standby_that_is_promoted() {
    if !can_mount("a_log_goes_on_at_a_standby_that_is_promoted") {
        return;
    }
    let Some(primary) = PostgreSql::start() else { return };
    // Whoever set up the user asked for less than a log needs.
    primary.execute("ALTER ROLE stere SET synchronous_commit = 'local'");
    let mut standby = primary.start_standby(None);
    let world = World::new();
    // The standby is named first: it must not be taken for the log.
    let address = PostgreSql::address_of(&[&standby, &primary]);
    world.ok(&format!("create lab a.img,size=4G b.img,size=4G --log {address}"));
    world.ok("mount lab mount");
    let writer = Writer { world: &world, synced: Mutex::default(), is_over: AtomicBool::new(false) };
    let (mut primary, mut waits) = (Some(primary), Vec::new());
    std::thread::scope(|scope| {
        let _ends = Ends(&writer.is_over);
        scope.spawn(|| writer.run());
        for round in 0..rounds() {
            writer.until_more(20 + round * 7 % 11);
            if round % 2 == 1 {
                // Nothing that the standby lacks is acknowledged.
                standby.pause();
                std::thread::sleep(Duration::from_millis(300));
                let before = writer.count();
                std::thread::sleep(Duration::from_secs(1));
                assert_eq!(writer.count(), before, "acknowledged without the standby");
            }
            primary.as_mut().unwrap().kill();
            standby.resume();
            let begun = Instant::now();
            std::thread::sleep(Duration::from_millis(500));
            standby.promote();
            writer.until_more(1);
            waits.push(begun.elapsed());
            writer.until_more(20);
            let next = standby.start_standby(primary.take());
            primary = Some(std::mem::replace(&mut standby, next));
        }
    });
    waits.sort();
    let synced = writer.synced.into_inner().unwrap();
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("{} promotions, {} files: median {median:?}, worst {worst:?}", waits.len(), synced.names.len());
    synced.assert_right(&world);
    world.ok("umount mount");
    world.ok("check lab");
    world.ok("mount lab mount");
    synced.assert_right(&world);
    world.ok("umount mount");
}
