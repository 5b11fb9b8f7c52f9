use super::*;

#[test]
fn every_byte_is_one_compression_or_none() {
    let mut known = 0;
    for code in 0..=255 {
        let Some(compression) = Compression::from_code(code) else { continue };
        known += 1;
        assert_eq!(compression.code(), code);
        assert_eq!(Compression::from_text(&compression.text()), Some(compression));
    }
    assert_eq!(known, 21, "none, lz4 and nineteen levels");
}

#[test]
fn texts_mean_what_they_say() {
    let parts = |text| Compression::from_text(text).map(|compression| (compression.algorithm(), compression.level()));
    assert_eq!(parts("none"), Some((None, 0)));
    assert_eq!(parts("lz4"), Some((Some(Algorithm::Lz4), 0)));
    assert_eq!(parts("zstd"), Some((Some(Algorithm::Zstd), 3)));
    assert_eq!(parts("zstd:19"), Some((Some(Algorithm::Zstd), 19)));
    for bad in ["", "zstd:", "zstd:0", "zstd:20", "zstd:+3", "zstd: 3", "LZ4", "gzip", "lz4:3", "zstd:3:1"] {
        assert_eq!(parts(bad), None, "{bad}");
    }
}
