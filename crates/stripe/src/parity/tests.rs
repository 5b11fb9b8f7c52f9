use super::*;
use proptest::prelude::*;
use stere_format::crc32c;

fn units(count: usize, length: usize, seed: u32) -> Vec<Vec<u8>> {
    let mut state = seed | 1;
    let mut next = || {
        // xorshift32: the golden values below depend on it.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..count).map(|_| (0..length).map(|_| next()).collect()).collect()
}

fn encode(coder: &ParityCoder, scheme: Scheme, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0xaa; data[0].len()]; usize::from(scheme.parity)];
    let sources: Vec<&[u8]> = data.iter().map(|unit| &unit[..]).collect();
    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut unit[..]).collect();
    coder.encode(scheme, &sources, &mut targets).unwrap();
    parity
}

/// The parity bytes are part of the format: whoever changes these numbers breaks every pool with such rows.
#[test]
fn parity_bytes_are_golden() {
    let cases: [(u8, u8, &[u32]); 6] = [
        (2, 1, &GOLDEN_2_1),
        (4, 1, &GOLDEN_4_1),
        (2, 2, &GOLDEN_2_2),
        (4, 2, &GOLDEN_4_2),
        (5, 3, &GOLDEN_5_3),
        (28, 4, &GOLDEN_28_4),
    ];
    let coder = ParityCoder::default();
    for (data, parity, expected) in cases {
        let scheme = Scheme::new(data, parity).unwrap();
        let encoded = encode(&coder, scheme, &units(usize::from(data), 4096, 1));
        let found: Vec<u32> = encoded.iter().map(|unit| crc32c(unit)).collect();
        assert_eq!(found, expected, "{scheme}: {found:#x?}");
    }
}

const GOLDEN_2_1: [u32; 1] = [0x496c_7a8f];
const GOLDEN_4_1: [u32; 1] = [0x8f7d_d997];
const GOLDEN_2_2: [u32; 2] = [0xfc82_842e, 0x2d17_bf28];
const GOLDEN_4_2: [u32; 2] = [0x8f98_75d8, 0x981c_edc6];
const GOLDEN_5_3: [u32; 3] = [0xe8c9_15e9, 0xc643_b190, 0xc5c9_5937];
const GOLDEN_28_4: [u32; 4] = [0x1b30_958a, 0xcfd2_43d4, 0x321d_4a16, 0x6692_22b3];

#[test]
fn xor_is_written_out_by_hand() {
    let mut target = [9; 3];
    xor_all(&mut target, &[&[1, 2, 3], &[1, 1, 1], &[0, 0, 255]]);
    assert_eq!(target, [0, 3, 253]);
    xor_all(&mut target, &[&[5, 6, 7]]);
    assert_eq!(target, [5, 6, 7]);
    xor_all(&mut target, &[]);
    assert_eq!(target, [0; 3]);
}

proptest! {
    /// Any k of the k+m units give all others, also for a part of the unit by itself.
    #[test]
    fn any_k_units_are_enough(
        data in 1u8..9, parity in 1u8..5, positions in 1usize..20, seed: u32, order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let scheme = Scheme::new(data, parity).unwrap();
        let coder = ParityCoder::default();
        let data_units = units(usize::from(data), positions * 64, seed);
        let mut all = data_units.clone();
        all.extend(encode(&coder, scheme, &data_units));
        let order: Vec<usize> = order.into_iter().filter(|&chunk| chunk < scheme.width()).collect();
        let (known, lost) = order.split_at(usize::from(data));
        let part = (positions / 3 * 64)..(positions - positions / 4) * 64;
        let known: Vec<(usize, &[u8])> = known.iter().map(|&chunk| (chunk, &all[chunk][part.clone()])).collect();
        let mut rebuilt = vec![vec![0x55; part.len()]; lost.len()];
        let mut wanted: Vec<(usize, &mut [u8])> =
            lost.iter().copied().zip(rebuilt.iter_mut().map(|unit| &mut unit[..])).collect();
        coder.rebuild(scheme, &known, &mut wanted).unwrap();
        for (chunk, unit) in lost.iter().zip(&rebuilt) {
            prop_assert_eq!(&unit[..], &all[*chunk][part.clone()], "chunk {} of {}", chunk, scheme);
        }
    }
}
