use super::*;
use crate::simulated_log::{Batch, Subject};
use crate::{Direction, NodeCache};
use proptest::prelude::*;

fn put(batch: &mut Batch, position: u64, value_bytes: usize) {
    batch.insert(Key::extent(1, position), Some(vec![position as u8; value_bytes]));
}

fn puts(positions: impl Iterator<Item = u64>, value_bytes: usize) -> Batch {
    let mut batch = Batch::new();
    positions.for_each(|position| put(&mut batch, position, value_bytes));
    batch
}

fn deletes(positions: impl Iterator<Item = u64>) -> Batch {
    positions.map(|position| (Key::extent(1, position), None)).collect()
}

#[test]
fn appending_in_order_fills_nodes() {
    let mut subject = Subject::new(1024);
    for batch in 0..200 {
        subject.apply(&puts(batch * 50..batch * 50 + 50, 20), &[], 3);
    }
    assert!(subject.tree.height() >= 3, "{}", subject.tree.height());
    assert!(subject.fill() > 0.9, "fill {}", subject.fill());
}

#[test]
fn random_order_keeps_nodes_decently_full() {
    let mut subject = Subject::new(1024);
    for batch in 0..100u64 {
        let positions = (0..50).map(|at| (batch * 50 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
        subject.apply(&puts(positions, 20), &[], usize::MAX);
    }
    assert!(subject.fill() > 0.55, "fill {}", subject.fill());
}

#[test]
fn a_small_change_rewrites_one_path() {
    let mut subject = Subject::new(1024);
    subject.apply(&puts(0..5000, 20), &[], usize::MAX);
    let height = subject.tree.height();
    let outcome = subject.apply(&puts(std::iter::once(2222), 21), &[], usize::MAX);
    assert!(outcome.written.len() <= height + 1, "{} nodes for one change", outcome.written.len());
    assert_eq!(outcome.obsolete.len(), height);
}

#[test]
fn changes_that_change_nothing_write_nothing() {
    let mut subject = Subject::new(1024);
    assert!(subject.apply(&deletes(0..100), &[], 1).written.is_empty());
    subject.apply(&puts((0..5000).map(|at| at * 2), 20), &[], usize::MAX);
    let root = subject.tree.root;
    let mut batch = deletes((0..5000).map(|at| at * 2 + 1));
    batch.extend(puts((0..5000).map(|at| at * 2), 20));
    let outcome = subject.apply(&batch, &[], 1);
    assert_eq!((outcome.root, outcome.written.len(), outcome.obsolete.len()), (root, 0, 0));
}

#[test]
fn deleting_everything_leaves_nothing() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..3000, 20), &[], usize::MAX);
    assert!(subject.tree.height() >= 3);
    subject.apply(&deletes(0..3000), &[], 2);
    assert_eq!(subject.tree.root, None);
    assert!(subject.reachable.is_empty());
}

#[test]
fn the_tree_shrinks_with_its_entries() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..3000, 20), &[], usize::MAX);
    for round in 0..100u64 {
        subject.apply(&deletes((0..3000).filter(|at| at * 7919 % 100 == round)), &[], 5);
        let leaf_entries = 12;
        let nodes_max = 4 + subject.model.len() / leaf_entries * 5;
        assert!(subject.reachable.len() <= nodes_max, "{} for {}", subject.reachable.len(), subject.model.len());
    }
    assert_eq!(subject.tree.root, None);
}

#[test]
fn one_entry_left_is_a_tree_of_one_leaf() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..3000, 20), &[], usize::MAX);
    subject.apply(&deletes((0..3000).filter(|at| *at != 1500)), &[], usize::MAX);
    assert_eq!((subject.tree.height(), subject.reachable.len()), (1, 1));
}

#[test]
fn a_small_last_child_is_merged_with_the_one_before() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..3000, 20), &[], usize::MAX);
    let root = subject.log.read(&subject.tree.root.unwrap()).unwrap();
    let parent = subject.log.read(&root.child(0)).unwrap();
    let last = parent.count() - 1;
    let positions = parent.key(last).position..root.key(1).position;
    let leaf = subject.log.read(&parent.child(last)).unwrap();
    assert!(parent.level() == 1 && leaf.count() as u64 == positions.end - positions.start && leaf.count() > 5);
    let outcome = subject.apply(&deletes(positions.skip(1)), &[], usize::MAX);
    for obsolete in [parent.child(last), parent.child(last - 1)] {
        assert!(outcome.obsolete.contains(&obsolete));
    }
    let leaves_written = outcome.written.iter().filter(|node| node.level == 0).count();
    assert!(leaves_written <= 2, "one leaf, or two of about half");
    let first_child = subject.log.read(&subject.tree.root.unwrap()).unwrap().child(0);
    let parent = subject.log.read(&first_child).unwrap();
    let smallest = (0..parent.count()).map(|at| parent.child(at).address.length).min();
    assert!(smallest.unwrap() >= 512 / 4, "{smallest:?}");
}

#[test]
fn condemned_segments_are_left() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..3000, 20), &[], usize::MAX);
    let segments: Vec<u64> = subject.reachable.iter().map(|address| address.segment).collect();
    let (first, last) = (segments[0], segments[segments.len() - 1]);
    for segment in first..=last {
        subject.log.condemned.insert(segment);
        let touches = subject.touches_of(segment);
        let before = subject.reachable.len();
        subject.apply(&puts(segment..segment + 1, 22), &touches, 4);
        assert!(subject.reachable.iter().all(|address| address.segment != segment), "segment {segment} is empty");
        assert!(subject.reachable.len() <= before + 4);
    }
}

#[test]
fn touches_of_nodes_that_moved_write_nothing() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..1000, 20), &[], usize::MAX);
    let touches: Vec<Touch> =
        (0..1000).flat_map(|at| (0..3).map(move |level| Touch { first_key: Key::extent(1, at), level })).collect();
    let outcome = subject.apply(&Batch::new(), &touches, 1);
    assert!(outcome.written.is_empty());
}

#[test]
fn nothing_is_read_in_vain() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..3000, 20), &[], usize::MAX);
    let (height, inner) = (subject.tree.height(), subject.inner_nodes());
    let touches: Vec<Touch> = (0..3000).map(|at| Touch { first_key: Key::extent(1, at), level: 0 }).collect();
    let reads = subject.log.reads;
    let outcome = merge(subject.tree.root, std::iter::empty::<(Key, Option<Vec<u8>>)>(), &touches, &mut subject.log);
    assert_eq!(outcome.unwrap().root, subject.tree.root);
    assert_eq!(subject.log.reads - reads, inner, "leaves are known by their parents");

    let reads = subject.log.reads;
    let first = Key::extent(1, 0);
    assert_eq!(subject.walk(first, Key::extent(1, 1), Direction::Forward, 100).len(), 1);
    assert_eq!(subject.log.reads - reads, height);
    assert_eq!(subject.get(&NodeCache::new(1 << 20), &Key::MIN), None);
    assert_eq!(subject.log.reads - reads, height + 1, "before the first key there is nothing");
}

#[test]
fn damaged_trees_are_errors() {
    let mut subject = Subject::new(512);
    subject.apply(&puts(0..200, 20), &[], usize::MAX);
    let root = subject.log.read(&subject.tree.root.unwrap()).unwrap();
    let forged = |first_key: Key, other: usize, log: &mut crate::simulated_log::SimulatedLog| {
        let mut builder = stere_format::NodeBuilder::new(1);
        builder.push_child(&first_key, &root.child(0));
        builder.push_child(&root.key(1), &root.child(other));
        let (first_key, bytes) = builder.take(2);
        log.append(1, &first_key, bytes).unwrap()
    };
    let log = &mut subject.log;
    let wrong_first_key = forged(Key::MIN, 1, log);
    let found_twice = forged(root.key(0), 0, log);
    for (root, what) in [(wrong_first_key, "first key"), (found_twice, "a node twice")] {
        assert!(crate::check(Some(root), log, |_, _| {}).is_err(), "{what}");
        let changes = (0..200).map(|at| (Key::extent(1, at), Some([1])));
        let outcome = merge(Some(root), changes, &[], log);
        assert!(matches!(outcome, Err(TreeError::FirstKey { .. } | TreeError::KeyBounds { .. })), "{what}");
    }
}

#[test]
fn steps_are_bounded() {
    let mut subject = Subject::new(1024);
    subject.apply(&puts(0..20_000, 20), &[], usize::MAX);
    let changes = (0..20_000).map(|at| (Key::extent(1, at), (at % 3 != 0).then_some([at as u8; 24])));
    let mut merge = Merge::with_target(subject.tree.root, changes, &[], 1024);
    let (mut steps, mut reads, mut writes) = (0, subject.log.reads, 0);
    while let Progress::More = merge.step(10, &mut subject.log).unwrap() {
        steps += 1;
        assert!(subject.log.reads - reads <= 20 && merge.written().len() - writes <= 20);
        (reads, writes) = (subject.log.reads, merge.written().len());
    }
    assert!(steps > 100);
}

#[test]
fn changes_out_of_order_are_refused() {
    let mut subject = Subject::new(1024);
    let changes = [(Key::inode(2), Some([1])), (Key::inode(1), Some([1]))];
    let outcome = merge(None, changes.into_iter(), &[], &mut subject.log);
    assert!(matches!(outcome, Err(TreeError::ChangeOrder { .. })));
}

#[test]
fn large_values_have_nodes_of_their_own() {
    let mut subject = Subject::new(NODE_BYTES_TARGET);
    let mut batch = Batch::new();
    for at in 0..60u64 {
        put(&mut batch, at * 10, if at % 3 == 0 { 65_536 } else { 100 });
    }
    subject.apply(&batch, &[], usize::MAX);
    subject.apply(&puts((0..60).map(|at| at * 10 + 5), 30_000), &[], 1);
    subject.apply(&deletes((0..120).map(|at| at * 5).filter(|at| at % 3 == 0)), &[], 1);
}

fn change() -> impl Strategy<Value = (Key, Option<Vec<u8>>)> {
    let object = 0..4u64;
    let position = prop_oneof![0..40u64, 0..2000u64, 1990..2000u64];
    let value_bytes = prop_oneof![40 => 0..60usize, 3 => 200..3000usize, 1 => 20_000..65_537usize];
    (1..3u8, object, 1..3u8, position, prop::option::weighted(0.6, (value_bytes, any::<u8>()))).prop_map(
        |(tree, object, kind, position, value)| {
            let value = value.map(|(length, fill)| vec![fill; length]);
            (Key::new(tree, object, kind, position), value)
        },
    )
}

fn batches() -> impl Strategy<Value = Vec<Vec<(Key, Option<Vec<u8>>)>>> {
    let batch = prop_oneof![prop::collection::vec(change(), 1..20), prop::collection::vec(change(), 1..400)];
    prop::collection::vec(batch, 1..12)
}

/// Deletes a run of what is there, so that whole subtrees vanish.
fn delete_run(subject: &Subject, from: usize, count: usize) -> Batch {
    subject.model.keys().skip(from).take(count).map(|key| (*key, None)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batches_equal_the_model(
        batches in batches(),
        target_bytes in prop_oneof![Just(512usize), Just(900), Just(NODE_BYTES_TARGET)],
        budget in 1..50usize,
        run in (0..1500usize, 0..1500usize),
        condemned in prop::collection::vec(0..200u64, 0..6),
        probes in prop::collection::vec((change(), change()), 4),
        patience in 1..30usize,
    ) {
        let mut subject = Subject::new(target_bytes);
        for (round, batch) in batches.iter().enumerate() {
            subject.apply(&batch.iter().cloned().collect(), &[], budget);
            if round % 3 == 2 {
                subject.apply(&delete_run(&subject, run.0, run.1), &[], budget);
            }
            if let Some(segment) = condemned.get(round) {
                subject.log.condemned.insert(*segment);
                let touches = subject.touches_of(*segment);
                subject.apply(&Batch::new(), &touches, budget);
                prop_assert!(subject.reachable.iter().all(|address| address.segment != *segment));
                subject.log.condemned.clear();
            }
        }
        let small_cache = NodeCache::new(0);
        for ((from, _), (to, _)) in &probes {
            let expected = subject.model.get(from).cloned();
            prop_assert_eq!(subject.get(&small_cache, from), expected);
            let bounds = (*from).min(*to)..(*from).max(*to);
            let mut expected: Vec<_> = subject.model.range(bounds.clone()).map(|(k, v)| (*k, v.clone())).collect();
            prop_assert_eq!(&subject.walk(bounds.start, bounds.end, Direction::Forward, patience), &expected);
            expected.reverse();
            prop_assert_eq!(&subject.walk(bounds.start, bounds.end, Direction::Backward, patience), &expected);
        }
    }
}
