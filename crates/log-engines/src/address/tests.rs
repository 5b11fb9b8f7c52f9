use super::*;

fn parse(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn refusal(text: &str) -> String {
    Address::parse(text).unwrap_err().to_string()
}

#[test]
fn an_address_has_user_hosts_and_database() {
    let address = parse("postgres://stere:a%40b%2F@one:5433,two,[::1]:7/logs?sslmode=verify-full&sslrootcert=/ca.pem");
    assert_eq!(address.engine, Engine::Postgres);
    assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("stere"), Some("a@b/")));
    assert_eq!(address.hosts, [("one".into(), 5433), ("two".into(), 5432), ("::1".into(), 7)]);
    assert_eq!(address.database, "logs");
    assert_eq!((address.encryption, address.authorities), (Encryption::Verified, Some("/ca.pem".into())));
    assert_eq!(parse("postgresql://u@%2Frun%2Fpostgresql/d").hosts, [("/run/postgresql".into(), 5432)]);
    let etcd = parse("etcds://a,b:1?cacert=/c&cert=/d&key=/e");
    assert_eq!((etcd.engine, etcd.encryption), (Engine::Etcd, Encryption::Verified));
    assert_eq!(etcd.hosts, [("a".into(), 2379), ("b".into(), 1)]);
    assert_eq!(etcd.own, Some(("/d".into(), "/e".into())));
}

#[test]
fn the_mode_says_how_it_is_encrypted() {
    let mode = |query: &str| parse(&format!("postgres://u@h/d{query}")).encryption;
    assert_eq!(mode(""), Encryption::IfPossible);
    assert_eq!(mode("?sslmode=disable"), Encryption::Never);
    assert_eq!(mode("?sslmode=require"), Encryption::Always);
    assert_eq!(mode("?sslmode=require&sslrootcert=/ca"), Encryption::Verified);
    assert_eq!(mode("?target_session_attrs=read-write"), Encryption::IfPossible);
}

#[test]
fn a_wrong_address_is_refused_with_what_is_wrong() {
    assert!(refusal("mysql://u@h/d").contains("postgres://"));
    assert!(refusal("postgres://h/d").contains("names no user"));
    assert!(refusal("postgres://u@h").contains("names no database"));
    assert!(refusal("postgres://u@/d").contains("names no host"));
    assert!(refusal("postgres://u@h:x/d").contains("x is no port"));
    assert!(refusal("postgres://u@h/d?sslmode=maybe").contains("no sslmode maybe"));
    assert!(refusal("postgres://u@h/d?fsync=off").contains("no option fsync"));
    assert!(refusal("postgres://u@h/d?sslcert=/c").contains("together"));
    assert!(refusal("postgres://u:%4@h/d").contains("%25"));
    assert!(refusal("etcd://h/d").contains("nothing may follow"));
    assert!(refusal("etcd://u@h").contains("has a password"));
}

#[test]
fn no_password_is_shown() {
    assert_eq!(without_secrets("postgres://u:secret@h:1/d?sslmode=require"), "postgres://u:***@h:1/d?sslmode=require");
    assert_eq!(without_secrets("postgres://u:se/c@r:et@h/d"), "postgres://u:***@h/d");
    assert_eq!(without_secrets("postgres://u@h/d?password=secret&x=y"), "postgres://u@h/d?password=***&x=y");
    assert_eq!(without_secrets("etcd://h:1,i:2"), "etcd://h:1,i:2");
    assert_eq!(without_secrets("/some/path"), "/some/path");
    for wrong in
        ["postgres://u:secret@h", "postgres://u:secret@h/d?sslmode=x", "mysql://u:secret@h/d", "etcd://u:a?secret@h"]
    {
        assert!(!refusal(wrong).contains("secret"));
    }
}

#[test]
fn addresses_and_their_first_host_are_known() {
    assert!(is_address("postgres://") && is_address("etcds://h") && is_address("postgresql://h"));
    assert!(!is_address("/dev/sda") && !is_address("nbd://h") && !is_address("etcd:h"));
    assert_eq!(first_host("postgres://u@one:5,two/d"), Some(("one".into(), 5)));
    assert_eq!(first_host("etcd://one"), Some(("one".into(), 2379)));
    assert_eq!(first_host("etcd://"), None);
}
