//! Who has to hear of a change, and which answers may be believed (P-284).

use proptest::prelude::*;
use stere_fuse::ChangedInode;

use super::*;

#[derive(Debug)]
struct Machine;

struct Site {
    leases: Arc<Leases<Machine>>,
    machines: Vec<Arc<Machine>>,
}

fn of_attributes(by: u64, node: u64) -> Changes {
    let inodes = vec![ChangedInode { node, offset: -1, length: 0 }];
    Changes { by: Some(by), inodes, ..Changes::default() }
}

fn of_name(by: u64, directory: u64, name: &[u8]) -> Changes {
    Changes { names: vec![(directory, name.to_vec())], ..of_attributes(by, directory) }
}

impl Site {
    fn new() -> Site {
        Site { leases: Arc::default(), machines: (0..3).map(|_| Arc::new(Machine)).collect() }
    }

    fn give(&self, tag: u64, since: u64, directories: &[u64], nodes: &[u64]) -> bool {
        self.leases.give((tag, &self.machines[tag as usize]), since, directories, nodes)
    }

    fn give_now(&self, tag: u64, directories: &[u64], nodes: &[u64]) -> bool {
        self.give(tag, self.leases.now(), directories, nodes)
    }
}

fn tags(recalls: &[Recall<Machine>]) -> Vec<u64> {
    let mut tags: Vec<u64> = recalls.iter().map(|recall| recall.tag).collect();
    tags.sort_unstable();
    tags
}

#[test]
fn all_others_hear_of_a_change_and_a_lease_on_names_outlives_it() {
    let site = Site::new();
    for tag in 0..3 {
        assert!(site.give_now(tag, &[1], &[7]));
    }
    let (changing, recalls) = site.leases.change(&of_name(0, 1, b"a"));
    assert_eq!(tags(&recalls), [1, 2]);
    assert_eq!(recalls[0].notices, [Notice::Entry { parent: 1, name: b"a".to_vec() }]);
    drop(changing);
    assert_eq!(tags(&site.leases.change(&of_name(1, 1, b"b")).1), [0, 2], "names are leased on");
    assert_eq!(tags(&site.leases.change(&of_attributes(2, 7)).1), [0, 1]);
    assert_eq!(tags(&site.leases.change(&of_attributes(2, 7)).1), [], "a lease on attributes is recalled once");
}

#[test]
fn nothing_is_leased_that_is_being_changed_or_has_changed_since_it_was_asked_for() {
    let site = Site::new();
    let since = site.leases.now();
    let (changing, _) = site.leases.change(&of_attributes(0, 7));
    assert!(!site.give_now(1, &[], &[7]), "it is being changed");
    assert!(!site.give_now(0, &[], &[7]), "also for who changes it");
    assert!(site.give(1, since, &[], &[8]));
    drop(changing);
    assert!(!site.give(1, since, &[], &[7]), "the answer may be older than the change");
    assert!(site.give_now(1, &[], &[7]));
}

#[test]
fn the_answer_to_a_change_is_leased_if_nobody_else_changed_what_it_tells() {
    let site = Site::new();
    let end = |found: &[u64]| site.leases.change(&of_name(0, 1, b"a")).0.end(found);
    let since = end(&[7]).expect("it was alone");
    assert!(site.give(0, since, &[1], &[7]));
    let (first, second) = (site.leases.change(&of_name(0, 1, b"a")).0, site.leases.change(&of_name(1, 1, b"b")).0);
    assert_eq!(first.end(&[]), None, "another one is under way");
    assert_eq!(second.end(&[]), None, "another one has ended meanwhile");
    let (change, _) = site.leases.change(&of_name(0, 1, b"a"));
    site.leases.changed(&[7]);
    assert_eq!(change.end(&[7]), None, "what it found has changed");
    let (change, _) = site.leases.change(&of_name(0, 1, b"a"));
    let since = change.end(&[7]).expect("it was alone");
    drop(site.leases.change(&of_attributes(1, 7)));
    assert!(!site.give(0, since, &[1], &[7]), "it was answered late");
}

#[test]
fn who_is_gone_or_has_forgotten_hears_nothing() {
    let site = Site::new();
    for tag in 0..3 {
        assert!(site.give_now(tag, &[1], &[1, 7]));
    }
    site.leases.forgotten(1, 7);
    site.leases.ended(2);
    assert_eq!(tags(&site.leases.change(&of_attributes(0, 7)).1), []);
    assert_eq!(tags(&site.leases.change(&of_name(0, 1, b"a")).1), [1]);
    site.leases.ended(1);
    site.leases.ended(0);
    assert_eq!(site.leases.state.lock().count, 0);
}

#[derive(Debug, Clone)]
enum Step {
    Ask { tag: u64, node: u64 },
    Answer { index: usize },
    Begin { tag: u64, node: u64 },
    End { index: usize },
    Forget { tag: u64, node: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (0..3_u64, 0..3_u64);
    let step = prop_oneof![
        place.clone().prop_map(|(tag, node)| Step::Ask { tag, node }),
        any::<usize>().prop_map(|index| Step::Answer { index }),
        place.clone().prop_map(|(tag, node)| Step::Begin { tag, node }),
        any::<usize>().prop_map(|index| Step::End { index }),
        place.prop_map(|(tag, node)| Step::Forget { tag, node }),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    /// Attributes have a version, and an answer the one of when it was asked for or any since: whoever believes an answer believes the last one.
    #[test]
    fn nobody_believes_what_has_changed(steps in steps()) {
        let site = Site::new();
        let (mut versions, mut believed) = ([0_u64; 3], HashMap::new());
        let (mut asked, mut changing) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                // The oldest that it may be answered with.
                Step::Ask { tag, node } => asked.push((tag, node, site.leases.now(), versions[node as usize])),
                Step::Answer { index } if !asked.is_empty() => {
                    let (tag, node, since, version) = asked.swap_remove(index % asked.len());
                    if site.give(tag, since, &[], &[node]) {
                        believed.insert((tag, node), version);
                    }
                }
                Step::Begin { tag, node } => {
                    let (guard, recalls) = site.leases.change(&of_attributes(tag, node));
                    believed.remove(&(tag, node));
                    believed.retain(|(tag, of), _| *of != node || !tags(&recalls).contains(tag));
                    changing.push((node, guard));
                }
                Step::End { index } if !changing.is_empty() => {
                    let (node, guard) = changing.swap_remove(index % changing.len());
                    versions[node as usize] += 1;
                    drop(guard);
                }
                Step::Forget { tag, node } => {
                    site.leases.forgotten(tag, node);
                    believed.remove(&(tag, node));
                }
                Step::Answer { .. } | Step::End { .. } => {}
            }
            for ((tag, node), version) in &believed {
                prop_assert_eq!(*version, versions[*node as usize], "machine {} of inode {}", tag, node);
            }
        }
    }
}
