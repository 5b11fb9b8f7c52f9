//! Who may be answered before the commit (P-290).

use stere_fuse::ChangedInode;

use super::*;

fn of_attributes(by: Option<u64>, node: u64) -> Changes {
    Changes { by, inodes: vec![ChangedInode { node, offset: -1, length: 0 }], ..Changes::default() }
}

fn of_name(by: u64, directory: u64) -> Changes {
    Changes { names: vec![(directory, b"name".to_vec())], ..of_attributes(Some(by), directory) }
}

#[test]
fn what_one_machine_changes_others_see_when_it_is_committed() {
    let uncommitted: Arc<Uncommitted> = Arc::default();
    let pending = uncommitted.begin(&of_name(1, 7));
    assert!(uncommitted.are_others(2, &[7]), "it may be seen while it is made");
    assert!(!uncommitted.are_others(1, &[7]) && !uncommitted.are_others(2, &[8]));
    drop(pending);
    assert!(uncommitted.are_others(2, &[3, 7]));
    uncommitted.commit_begins();
    assert!(uncommitted.are_others(2, &[7]), "a commit that has begun is not done");
    uncommitted.commit_is_done();
    assert!(!uncommitted.are_others(2, &[7]));
}

#[test]
fn what_is_made_while_a_commit_is_under_way_waits_for_the_next_one() {
    let uncommitted: Arc<Uncommitted> = Arc::default();
    let pending = uncommitted.begin(&of_name(1, 7));
    uncommitted.commit_begins();
    drop(pending);
    uncommitted.note(Some(1), &[9]);
    uncommitted.commit_is_done();
    assert!(uncommitted.are_others(2, &[7]) && uncommitted.are_others(2, &[9]));
    uncommitted.commit_begins();
    uncommitted.commit_is_done();
    assert!(!uncommitted.are_others(2, &[7, 9]));
}

#[test]
fn what_several_have_changed_is_nobodys_alone() {
    let uncommitted: Arc<Uncommitted> = Arc::default();
    drop(uncommitted.begin(&of_name(1, 7)));
    drop(uncommitted.begin(&of_attributes(None, 7)));
    assert!(uncommitted.are_others(1, &[7]), "this machine's own programs have changed it too");
    drop(uncommitted.begin(&of_name(1, 8)));
    uncommitted.commit_begins();
    drop(uncommitted.begin(&of_name(1, 9)));
    let under_way = uncommitted.begin(&of_name(1, 10));
    assert!(!uncommitted.are_others(1, &[8, 9, 10]));
    uncommitted.disown(1);
    assert!([8, 9, 10].iter().all(|node| uncommitted.are_others(1, &[*node])), "an answer may have been lost");
    drop(under_way);
    assert!(uncommitted.are_others(1, &[10]), "nor is it its own when it is done");
}

#[test]
fn content_is_not_listed_and_too_much_counts_as_all() {
    let uncommitted: Arc<Uncommitted> = Arc::default();
    let content = vec![ChangedInode { node: 7, offset: 0, length: 10 }];
    drop(uncommitted.begin(&Changes { by: Some(1), inodes: content, ..Changes::default() }));
    assert!(!uncommitted.are_others(2, &[7]));
    (0..=LISTED_MAX as u64).for_each(|node| uncommitted.note(Some(1), &[node]));
    assert!(uncommitted.are_others(2, &[u64::MAX]) && uncommitted.are_others(1, &[1]));
    uncommitted.commit_begins();
    uncommitted.commit_is_done();
    assert!(!uncommitted.are_others(2, &[1, u64::MAX]));
}
