//! What archiving and staging would ask of media and cost, and prices of media.

use serde::{Deserialize, Serialize};
use stere_store::VolumePrices;

/// What would be asked of one volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostsReport {
    pub volume: String,
    pub segments: u64,
    pub requests: u64,
    /// Bytes that would be copied to it, and stay there.
    pub bytes_to: u64,
    /// Bytes that would be read from it.
    pub bytes_from: u64,
    /// What that costs, and each month from then on.
    pub price: f64,
    pub price_month: f64,
}

/// What a volume costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PriceReport {
    pub volume: String,
    /// A thousand requests, a gigabyte that is read, and one that lies there for a month.
    pub requests: f64,
    pub out: f64,
    pub month: f64,
}

/// Prices that are to be others, in millionths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub requests: Option<u64>,
    pub out: Option<u64>,
    pub month: Option<u64>,
}

impl Change {
    /// The prices with what is other.
    pub fn of(&self, prices: VolumePrices) -> VolumePrices {
        VolumePrices {
            thousand_requests: self.requests.unwrap_or(prices.thousand_requests),
            gigabyte_out: self.out.unwrap_or(prices.gigabyte_out),
            gigabyte_month: self.month.unwrap_or(prices.gigabyte_month),
        }
    }

    /// Takes one `KEY=VALUE`; false if there is no such key.
    pub fn set(&mut self, key: &str, value: &str) -> std::result::Result<bool, String> {
        let at = match key {
            "requests" => &mut self.requests,
            "out" => &mut self.out,
            "month" => &mut self.month,
            _ => return Ok(false),
        };
        let right = "a number with at most six digits behind the point, such as 0.023";
        *at = Some(parse_price(value).ok_or_else(|| format!("the price {key} cannot be '{value}'; it takes {right}"))?);
        Ok(true)
    }
}

/// A price in millionths.
pub fn parse_price(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 6 {
        return None;
    }
    let millionths = format!("{part:0<6}").parse::<u64>().ok()?;
    let price = whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(millionths)?;
    Some(price).filter(|price| *price <= VolumePrices::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read() {
        let read = ["0.0004", "5", "0", "1000000", "0.000001"].map(parse_price);
        assert_eq!(read, [Some(400), Some(5_000_000), Some(0), Some(VolumePrices::MAX), Some(1)]);
        assert_eq!(["", "1.", ".5", "-1", "0.0000001", "1000000.1", "x"].map(parse_price), [None; 7]);
        let mut change = Change::default();
        assert_eq!((change.set("out", "0.09"), change.set("in", "1")), (Ok(true), Ok(false)));
        assert!(change.set("month", "much").unwrap_err().contains("0.023"));
        assert_eq!(change.of(VolumePrices::default()).gigabyte_out, 90_000);
    }
}
