//! Keeps of each sample what it differs from the one before: what changes slowly (sound, measurements, raw pictures) then
//! compresses much better. Set it before compression: `plugins=delta:2` with `compress=zstd`.
//!
//! The parameter is how many bytes a sample has, 1 to 16; 1 if none is given. Nothing becomes longer or shorter.

use stere_sdk::Codec;

struct Delta;

fn sample_bytes(parameters: &str) -> Result<usize, String> {
    if parameters.is_empty() {
        return Ok(1);
    }
    let bytes = parameters.parse().ok().filter(|bytes| (1..=16).contains(bytes));
    bytes.ok_or_else(|| format!("a sample has 1 to 16 bytes, and not '{parameters}'"))
}

impl Codec for Delta {
    fn encode(parameters: &str, content: &[u8]) -> Result<Vec<u8>, String> {
        let step = sample_bytes(parameters)?;
        let before = std::iter::repeat_n(&0, step).chain(content);
        Ok(content.iter().zip(before).map(|(byte, before)| byte.wrapping_sub(*before)).collect())
    }

    fn decode(parameters: &str, stored: &[u8]) -> Result<Vec<u8>, String> {
        let step = sample_bytes(parameters)?;
        let mut content = stored.to_vec();
        for at in step..content.len() {
            content[at] = content[at].wrapping_add(content[at - step]);
        }
        Ok(content)
    }
}

stere_sdk::plugin!(codec: Delta);
