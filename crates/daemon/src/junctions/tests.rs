use super::*;

fn line(pool: &str, path: &str) -> JunctionLine {
    JunctionLine { inode: 7, path: path.into(), pool: pool.into(), pool_id: format!("{pool}-id"), places: Vec::new() }
}

fn junctions(name: &str) -> Junctions {
    Junctions {
        registry: Registry::at(std::env::temp_dir().join(format!("stere-junctions-{name}-{}", std::process::id()))),
        mountpoint: PathBuf::from("/nowhere/lab"),
        unmounter: OnceLock::new(),
        pool: "lab".into(),
        options: Vec::new(),
        by_pool: Mutex::default(),
        leaving: Mutex::default(),
        is_ending: AtomicBool::new(false),
    }
}

#[test]
fn options_of_the_mount_above_are_handed_on_but_those_of_its_own() {
    let texts = ["standby,commit=2s", "take,listen=10.0.0.1:5", "metrics=:9464", "keyfile=/k,ro"].map(str::to_owned);
    assert_eq!(handed_on(&texts), ["standby", "commit=2s", "ro"]);
}

#[test]
fn a_pool_whose_engine_is_not_known_says_so_and_is_tried_again_later() {
    let junctions = junctions("engine");
    junctions.take(vec![line("films", "/films")]);
    assert_eq!(junctions.report()[0].why.as_deref(), Some("it is being mounted"));
    junctions.step_all();
    let told = junctions.report();
    assert!(!told[0].is_mounted);
    assert!(told[0].why.as_ref().is_some_and(|why| why.contains("no pool is named 'lab'")), "{told:?}");
    junctions.take(Vec::new());
    assert_eq!(junctions.report(), []);
}

#[test]
fn nothing_is_begun_while_the_mount_ends() {
    let junctions = junctions("ends");
    junctions.take(vec![line("films", "/films")]);
    junctions.end(How::Asked { lazy: false, force: false }).expect("nothing is mounted");
    junctions.step_all();
    assert_eq!(junctions.report()[0].why.as_deref(), Some("it is being mounted"), "it was not tried");
    junctions.go_on();
    junctions.step_all();
    assert_ne!(junctions.report()[0].why.as_deref(), Some("it is being mounted"), "and now it was");
}

#[test]
fn a_pool_that_moved_is_at_its_new_place_only() {
    let junctions = junctions("moved");
    junctions.take(vec![line("films", "/films")]);
    junctions.take(vec![line("films", "/archive/films")]);
    let told = junctions.report();
    assert_eq!((told.len(), told[0].path.as_str()), (1, "/archive/films"));
    assert_eq!(junctions.place_of(&line("films", "/archive/films")), Path::new("/nowhere/lab/archive/films"));
}

#[test]
fn a_new_password_of_the_engine_is_handed_on_and_another_engine_is_not() {
    let junctions = junctions("password");
    let record = |name: &str, log: &str| PoolRecord {
        name: name.into(),
        id: format!("{name}-id"),
        devices: Vec::new(),
        choose: None,
        scrub: Default::default(),
        is_reconcile_paused: false,
        agreed: None,
        log: Some(log.into()),
    };
    let log_of = |name: &str| junctions.registry.get(name).unwrap().log.unwrap();
    junctions.registry.save(&record("lab", "postgres://stere:new@engine/lab")).unwrap();
    junctions.registry.save(&record("films", "postgres://stere:old@engine/lab")).unwrap();
    junctions.registry.save(&record("other", "postgres://stere:old@elsewhere/lab")).unwrap();
    for name in ["films", "other", "unknown"] {
        junctions.hand_log_on(&line(name, "/there")).unwrap();
    }
    assert_eq!(log_of("films"), "postgres://stere:new@engine/lab");
    assert_eq!(log_of("other"), "postgres://stere:old@elsewhere/lab");
    std::fs::remove_dir_all(junctions.registry.state()).unwrap();
}
