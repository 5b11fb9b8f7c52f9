//! Places and the number of metadata copies as the pool keeps them: taken over when it is opened, changed when somebody asks.
//!
//! Invariant: a number keeps its words for ever. Read next: `places.rs`, which says where data goes by them.

use std::collections::BTreeMap;

use stere_format::{Key, PLACE_NUMBER_MIN, PlaceValue, WIDTH_MAX};
use stere_log::Io;

use crate::error::Error;
use crate::places::Places;
use stere_stripe::MetadataWish;

/// Places of a pool in all its life: each may come to have open segments.
const PLACES_MAX: usize = 250;

impl Places<'_> {
    /// Takes over what the pool holds.
    pub(crate) fn load_places(&self) -> Result<(), Error> {
        let mut places = BTreeMap::new();
        for number in PLACE_NUMBER_MIN..=u8::MAX {
            let value = self.engine.view(Io::BLOCKING, |view| view.get(&Key::place(number)))?;
            let Some(bytes) = value else { break };
            let words = match PlaceValue::decode(&bytes) {
                Ok(value) => value.words,
                Err(error) => {
                    tracing::error!(number, %error, "a place is damaged; it means no device");
                    Vec::new()
                }
            };
            places.insert(number, words);
        }
        *self.engine.places.lock() = places;
        self.resolve_places();
        self.take_changed_places();
        Ok(())
    }

    /// The same; it gets one if there is none.
    pub fn place_number(&self, words: &[String]) -> Result<u8, Error> {
        if let Some(number) = self.find_place(words) {
            return Ok(number);
        }
        let _one_at_a_time = self.engine.place_changes.lock();
        if let Some(number) = self.find_place(words) {
            return Ok(number);
        }
        let last = self.engine.places.lock().keys().next_back().copied();
        let number = last.map_or(PLACE_NUMBER_MIN, |last| last.saturating_add(1));
        if usize::from(number - PLACE_NUMBER_MIN) >= PLACES_MAX {
            let why = "a pool knows 250 places and settings for nodes in its life; use words that were used before";
            return Err(Error::Pool(why.into()));
        }
        let bytes = PlaceValue { words: words.to_vec() }.encode();
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::place(number), &bytes);
            Ok::<_, Error>(())
        })?;
        let former = self.engine.places.lock().insert(number, words.to_vec());
        assert!(former.is_none(), "place {number} keeps its words");
        self.resolve_places();
        Ok(number)
    }

    /// Says on how many devices metadata shall lie from now on; what is stored follows in the background. Durable when it returns.
    pub fn set_metadata_wish(&self, wish: MetadataWish) -> Result<(), Error> {
        if MetadataWish::from_code(wish.code()) != Some(wish) {
            return Err(Error::Pool(format!("metadata can lie on 1 to {WIDTH_MAX} devices; ask for that, or for all")));
        }
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::metadata_copies(), &[wish.code()]);
            Ok::<_, Error>(())
        })?;
        *self.engine.metadata_wish.lock() = Some(wish);
        self.engine.checkpoint()
    }

    /// Takes over what the pool holds.
    pub(crate) fn load_metadata_wish(&self) -> Result<(), Error> {
        let value = self.engine.view(Io::BLOCKING, |view| view.get(&Key::metadata_copies()))?;
        *self.engine.metadata_wish.lock() = value.and_then(|bytes| MetadataWish::from_code(*bytes.first()?));
        Ok(())
    }
}
