use super::*;

fn parse(text: &str) -> Address {
    Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn addresses_are_read() {
    let plain = parse("nbd://n1:10810/disk0");
    assert_eq!((plain.host.as_str(), plain.port, plain.export.as_str(), plain.tls), ("n1", 10810, "disk0", None));
    let short = parse("nbd://n1");
    assert_eq!((short.host.as_str(), short.port, short.export.as_str()), ("n1", PORT, ""));
    let six = parse("nbd://[fd00::1]:7/a/b");
    assert_eq!((six.host.as_str(), six.port, six.export.as_str()), ("fd00::1", 7, "a/b"));
    assert_eq!(parse("nbd://[::1]").host, "::1");
    let secure = parse("nbds://n1/x,ca=/c,certificate=/mine,key=/secret");
    let own = Some(("/mine".into(), "/secret".into()));
    assert_eq!(secure.tls, Some(Tls { ca: "/c".into(), own }));
}

#[test]
fn what_is_no_address_is_refused() {
    for text in [
        "",
        "n1:10809",
        "nbd://",
        "nbd://:10809/x",
        "nbd://n1:0/x",
        "nbd://n1:x/x",
        "nbd://n1:70000",
        "nbd://a b/x",
        "nbd://[::1",
        "nbd://[::1]7",
        "nbd://n1/x,ca=/c",
        "nbds://n1/x",
        "nbds://n1/x,ca=/c,key=/k",
        "nbds://n1/x,ca=/c,color=red",
    ] {
        assert!(Address::parse(text).is_err(), "{text}");
    }
    assert!(is_address("nbd://"), "it is meant as one, and refused as one");
    assert!(!is_address("/dev/nbd0"));
}

#[test]
fn addresses_of_stere_nodes_are_read() {
    let address = Address::parse("stere://n1:10809/disk-0.raw").unwrap();
    assert_eq!((address.host.as_str(), address.port, address.export.as_str()), ("n1", 10809, "disk-0.raw"));
    assert!(address.is_stere && address.tls.is_none() && is_stere("stere://x/y") && !is_stere("nbd://x/y"));
    assert!(!Address::parse("nbd://n1/disk").unwrap().is_stere);
    for text in ["stere://n1", "stere://n1/", "stere://n1/../x", "stere://n1/a/b", "stere://n1/.a", "stere:///a"] {
        assert!(Address::parse(text).is_err(), "{text}");
    }
}
