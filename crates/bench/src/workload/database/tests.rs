use super::*;

#[test]
fn what_was_inserted_checks_and_a_row_that_is_lost_or_changed_does_not() {
    let path = std::env::temp_dir().join(format!("stere-bench-database-{}", std::process::id()));
    let pattern = Pattern::new(1);
    for (_, mode, _, _) in CASES {
        remove(&path).unwrap();
        let connection = create(&path, mode).unwrap();
        insert(&connection, &pattern, 50, 20).unwrap();
        drop(connection);
        check(&path, &pattern, 50).unwrap();
        for change in ["UPDATE rows SET content = zeroblob(100) WHERE number = 7", "DELETE FROM rows WHERE number = 49"]
        {
            Connection::open(&path).unwrap().execute(change, []).unwrap();
            let refused = matches!(check(&path, &pattern, 50), Err(BenchError::WrongData { .. }));
            assert!(refused, "{change}");
        }
    }
    remove(&path).unwrap();
    assert!(!path.exists());
}
