use super::*;

fn asker(uid: u32) -> Asker {
    Asker { uid, gid: uid, groups: vec![7] }
}

/// P-136.
#[test]
fn names_are_unique_and_results_end() {
    let mut links = Links::default();
    for number in 0..3000 {
        assert!(links.add(format!("d{number}/same").as_bytes()).is_continue());
    }
    assert!(links.add(b"same~2").is_continue());
    assert!(links.add(&[b"x/", &[b'n'; 255][..]].concat()).is_continue());
    assert!(links.add(&[b"y/", &[b'n'; 255][..]].concat()).is_continue());
    assert_eq!(links.by_name.len(), links.links.len(), "every name leads to one link");
    assert_eq!(links.links.len(), 3003);
    assert!(links.links.iter().all(|link| link.name.len() <= 255));
    assert_eq!(links.links[1].target, b"../../d1/same");
    // What is searched itself has no name, and what no link can lead to is left out.
    assert!(links.add(b"").is_continue() && links.add(&vec![b'p'; 4095]).is_continue());
    assert_eq!(links.links.len(), 3003);
    let all = (0..20_000).find(|number| links.add(format!("f{number}").as_bytes()).is_break());
    assert_eq!(all, Some(LINKS_MAX - 3003));
    assert_eq!(links.links.last().unwrap().name, MORE);
}

/// P-136: files that are called as numbered links are, so that each number which is tried first is taken.
#[test]
fn names_are_unique_whatever_files_are_called() {
    let mut links = Links::default();
    for bit in 1..=20 {
        assert!(links.add(format!("d/same~{}", (1_u64 << bit) + 1).as_bytes()).is_continue());
    }
    for directory in ["a", "b", "c"] {
        assert!(links.add(format!("{directory}/same").as_bytes()).is_continue());
    }
    assert_eq!((links.links.len(), links.by_name.len()), (23, 23));
}

/// P-136: each has nodes of his own, results replace each other, and what goes is known by none.
#[test]
fn nobody_gets_the_node_of_another() {
    let mut state = State::default();
    let (one, other) = (state.directory(&asker(1), b"a*"), state.directory(&asker(2), b"a*"));
    let in_other_group = state.directory(&Asker { groups: vec![8], ..asker(1) }, b"a*");
    assert!(one != other && one != in_other_group && one > FIRST_NODE);
    assert_eq!(state.directory(&asker(1), b"a*"), one);
    let links = |path: &[u8]| {
        let mut links = Links::default();
        assert!(links.add(path).is_continue());
        links
    };
    let first = state.keep(one, links(b"secret")).unwrap();
    assert_eq!(state.link(first.first_node).unwrap().1, 0);
    assert!(state.link(first.first_node + 1).is_none() && state.link(first.first_node - 1).is_none());
    assert!(state.known(other).is_none() && state.known(one).is_some());
    let node = first.first_node;
    drop(first);
    let second = state.keep(one, links(b"secret")).unwrap();
    assert_ne!(second.first_node, node, "no id is used twice");
    assert!(state.link(node).is_none());
    // The oldest go when there are too many.
    for number in 0..2 * DIRECTORIES_MAX as u32 {
        let node = state.directory(&asker(number), b"b*");
        state.keep(node, links(b"x")).unwrap();
    }
    assert_eq!(state.directories.len(), DIRECTORIES_MAX);
    assert!(state.directories.values().filter(|directory| directory.found.is_some()).count() <= KEPT_MAX);
    assert!(state.known(one).is_none());
}

#[test]
fn groups_are_believed_of_the_right_user_only() {
    let status = "Name:\tls\nUid:\t5\t6\t7\t8\nGid:\t1\t1\t1\t1\nGroups:\t4 27 \nVmPeak: 1\n";
    assert_eq!(groups_of(status, 8), Some(vec![4, 27]));
    assert_eq!(groups_of(status, 5), None);
    assert_eq!(groups_of("", 0), None);
}
