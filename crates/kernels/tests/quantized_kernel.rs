//! Products with quantized weights: worked by hand, and compared bit for bit with plain code for
//! every instruction set that this machine has.

use candecode_kernels::{
    quantized_linear, quantized_linear_by, InstructionSet, QuantType, TiledWeights, TILE_ROWS,
};
use half::f16;

const KINDS: [QuantType; 3] = [QuantType::Q8_0, QuantType::Q4_0, QuantType::Q4_1];

/// A random number generator for tests (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number from -1 to 1.
    fn float(&mut self) -> f32 {
        (self.next() % 20_001) as f32 / 10_000.0 - 1.0
    }

    /// Returns tiles with random scales and random integers, which can have any value, including
    /// -128.
    fn tiles(&mut self, kind: QuantType, out: usize, inner: usize) -> Vec<u8> {
        let scales = if kind == QuantType::Q4_1 { 2 } else { 1 } * TILE_ROWS;
        let mut tiles = vec![];
        for _ in 0..out.div_ceil(TILE_ROWS) * (inner / 32) {
            for _ in 0..scales {
                tiles.extend(f16::from_f32(self.float()).to_le_bytes());
            }
            for _ in 2 * scales..kind.bytes() * TILE_ROWS {
                tiles.push(self.next() as u8);
            }
        }
        tiles
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// Returns one block of sixteen equal rows.
fn tile(scales: &[f32], integers: &[u8]) -> Vec<u8> {
    let mut tile = vec![];
    for scale in scales {
        tile.extend(f16::from_f32(*scale).to_le_bytes().repeat(TILE_ROWS));
    }
    for four in integers.chunks(4) {
        tile.extend(four.repeat(TILE_ROWS));
    }
    tile
}

/// The activations are 127, 1, 0, 0, …, and 2 at index 16. As bytes they have a scale of 1; as
/// 16-bit words they have a scale of 1 / 257, where the largest is 32,639. Both represent them
/// exactly.
#[test]
fn products_of_one_block_by_hand() {
    let mut x = vec![0f32; 32];
    (x[0], x[1], x[16]) = (127.0, 1.0, 2.0);

    let mut q8 = [0u8; 32];
    (q8[0], q8[1], q8[16]) = (-3i8 as u8, 5, 10);
    let mut q4 = [0x88u8; 16]; // eight everywhere
    (q4[0], q4[1]) = (0xc5, 0x8f); // number 0 is 5, number 16 is 12, number 1 is 15
    let cases = [
        // 0.5 * (-3 * 127 + 5 * 1 + 10 * 2) = 0.5 * -356
        (QuantType::Q8_0, tile(&[0.5], &q8), -178.0),
        // 0.5 * ((5 - 8) * 127 + (15 - 8) * 1 + (12 - 8) * 2) = 0.5 * -366
        (QuantType::Q4_0, tile(&[0.5], &q4), -183.0),
        // 0.5 * (5 * 127 + 15 * 1 + 12 * 2) - 1 * (127 + 1 + 2) = 0.5 * 674 - 130
        (QuantType::Q4_1, tile(&[0.5, -1.0], &q4), 207.0),
    ];
    for (kind, tiles, want) in cases {
        for set in InstructionSet::ALL {
            let w = TiledWeights { kind, out: 3, tiles: &tiles };
            let got = quantized_linear_by(set, &x, 32, &[w]);
            assert_eq!(got, [want; 3], "{kind:?} with {}", set.name());
        }
    }
}

/// For a set that the machine lacks, plain code runs instead, and the comparison proves nothing.
#[test]
fn every_instruction_set_equals_plain_code_bit_for_bit() {
    let mut numbers = Numbers(11);
    for kind in KINDS {
        for (out, inner) in [(1, 32), (16, 64), (33, 96), (40, 576)] {
            let tiles = numbers.tiles(kind, out, inner);
            let w = TiledWeights { kind, out, tiles: &tiles };
            for rows in 1..=33 {
                let x = numbers.floats(rows * inner);
                let plain = quantized_linear_by(InstructionSet::Scalar, &x, inner, &[w]);
                for set in InstructionSet::ALL {
                    let got = quantized_linear_by(set, &x, inner, &[w]);
                    let what = format!("{kind:?} {out} x {inner}, {rows} rows, {}", set.name());
                    assert_eq!(bits(&got), bits(&plain), "{what}");
                }
            }
        }
    }
}

#[test]
fn the_largest_integers_do_not_overflow() {
    let (ones, x) = (vec![0x80u8; 32], vec![-1f32; 96]); // -128 times -32639, 32 times
    for set in InstructionSet::ALL {
        let tiles = tile(&[1.0], &ones).repeat(3);
        let w = TiledWeights { kind: QuantType::Q8_0, out: 16, tiles: &tiles };
        let got = quantized_linear_by(set, &x, 96, &[w]);
        let want = 3.0 * 32.0 * 128.0;
        assert!((got[0] / want - 1.0).abs() < 1e-6, "{}: {} and {want}", set.name(), got[0]);
    }
}

#[test]
fn a_row_gets_the_same_result_in_a_batch_as_alone() {
    let mut numbers = Numbers(5);
    for kind in KINDS {
        let (out, inner, rows) = (700, 576, 70);
        let tiles = numbers.tiles(kind, out, inner);
        let w = TiledWeights { kind, out, tiles: &tiles };
        let x = numbers.floats(rows * inner);
        let all = quantized_linear(&x, inner, &[w]);
        for row in 0..rows {
            let alone = quantized_linear(&x[row * inner..][..inner], inner, &[w]);
            assert_eq!(bits(&alone), bits(&all[row * out..][..out]), "{kind:?}, row {row}");
        }
    }
}

#[test]
fn matrices_that_share_an_input_are_multiplied_as_if_alone() {
    let mut numbers = Numbers(7);
    let (inner, rows) = (96, 3);
    let x = numbers.floats(rows * inner);
    let first = numbers.tiles(QuantType::Q8_0, 20, inner);
    let second = numbers.tiles(QuantType::Q4_1, 7, inner);
    let first = TiledWeights { kind: QuantType::Q8_0, out: 20, tiles: &first };
    let second = TiledWeights { kind: QuantType::Q4_1, out: 7, tiles: &second };
    let mut want = quantized_linear(&x, inner, &[first]);
    want.extend(quantized_linear(&x, inner, &[second]));
    assert_eq!(bits(&quantized_linear(&x, inner, &[first, second])), bits(&want));
}

#[test]
fn nan_and_infinity_are_not_hidden() {
    let tiles = tile(&[1.0], &[1; 32]);
    let w = TiledWeights { kind: QuantType::Q8_0, out: 2, tiles: &tiles };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for set in InstructionSet::ALL {
            let mut x = vec![1f32; 64];
            x[40] = bad;
            let got = quantized_linear_by(set, &x, 32, &[w]);
            assert!(got[..2].iter().all(|y| y.is_finite()), "{bad}: another row");
            assert!(got[2..].iter().all(|y| !y.is_finite()), "{bad}: its own row");
        }
    }
}

#[test]
fn an_instruction_set_is_chosen_by_name() {
    assert_eq!(InstructionSet::named("scalar"), Ok(InstructionSet::Scalar));
    let unknown = InstructionSet::named("sse9").unwrap_err();
    assert!(unknown.contains("CANDECODE_SIMD") && unknown.contains("scalar"), "{unknown}");
    for set in InstructionSet::ALL {
        assert_eq!(InstructionSet::named(set.name()).is_ok(), set.is_here());
    }
}
