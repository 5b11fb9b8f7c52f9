//! Ids are read as they are shown, and in no other form.

use super::*;

#[test]
fn an_id_is_read_as_it_is_shown() {
    let id = PoolId(*b"0123456789abcdef");
    assert_eq!(id.to_string().parse(), Ok(id));
    let text = id.to_string();
    for wrong in [text.replace('-', ""), text.to_uppercase(), text[1..].to_owned(), format!("{text}0"), String::new()] {
        assert!(wrong == text || wrong.parse::<PoolId>() == Err(NoId), "{wrong}");
    }
}
