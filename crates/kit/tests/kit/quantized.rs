//! Tests of quantized matrices: their bytes, tiles and errors.

use crate::message;
use candecode_kit::{QuantType, QuantizedMatrix};

const KINDS: [QuantType; 3] = [QuantType::Q8_0, QuantType::Q4_0, QuantType::Q4_1];

/// Returns a matrix with varied bytes and finite scales.
fn matrix(kind: QuantType, out: usize, inner: usize) -> QuantizedMatrix {
    let mut blocks = vec![];
    for block in 0..out * inner / 32 {
        for at in 0..kind.bytes_per_block() {
            blocks.push(((block * 31 + at * 7) % 251) as u8 & 0x7b);
        }
    }
    QuantizedMatrix::new(kind, out, inner, blocks).unwrap()
}

/// Returns the message of a candle error.
fn words<T>(result: candle_core::Result<T>) -> String {
    message(result.map_err(anyhow::Error::from))
}

#[test]
fn tiles_hold_the_same_rows() {
    for kind in KINDS {
        for (out, inner) in [(1, 32), (16, 64), (37, 96)] {
            let rows = matrix(kind, out, inner);
            let tiled = rows.clone().tiled();
            assert_eq!((rows.tiles(), tiled.shape()), (None, (out, inner)));
            for row in 0..out {
                assert_eq!(rows.row(row), tiled.row(row), "{kind}, row {row}");
            }
            let padded = out.next_multiple_of(16) * inner / 32 * kind.bytes_per_block();
            assert_eq!((tiled.bytes(), tiled.tiles().unwrap().len()), (padded, padded));
        }
    }
}

/// Two rows of one Q8_0 block: first the scales of sixteen rows, then four bytes from each row.
#[test]
fn a_tile_by_hand() {
    let mut blocks = vec![];
    for row in [10u8, 50] {
        blocks.extend([row, 0x3c]);
        blocks.extend((0..32).map(|i| row + 1 + i));
    }
    let tiled = QuantizedMatrix::new(QuantType::Q8_0, 2, 32, blocks).unwrap().tiled();
    let tile = tiled.tiles().unwrap();
    assert_eq!(tile[..6], [10, 0x3c, 50, 0x3c, 0, 0]);
    assert_eq!(tile[32..42], [11, 12, 13, 14, 51, 52, 53, 54, 0, 0]);
    assert_eq!(tile[32 + 64..32 + 64 + 8], [15, 16, 17, 18, 55, 56, 57, 58]);
}

#[test]
fn widened_rows_equal_rows_of_the_widened_matrix() {
    let matrix = matrix(QuantType::Q8_0, 37, 96).tiled();
    let all = matrix.widened().unwrap().to_vec2::<f32>().unwrap();
    let some = matrix.widened_rows([36, 0, 36]).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(some, [all[36].clone(), all[0].clone(), all[36].clone()]);
    assert!(words(matrix.widened_rows([37])).contains("no row 37"));
}

#[test]
fn invalid_quantized_matrices_are_refused() {
    let new = |inner, blocks: Vec<u8>| QuantizedMatrix::new(QuantType::Q8_0, 1, inner, blocks);
    assert!(words(new(33, vec![0; 34])).contains("33 numbers"));
    assert!(words(new(32, vec![0; 33])).contains("34 bytes, not 33"));
    let mut infinite = vec![0; 34];
    infinite[1] = 0x7c;
    assert!(words(new(32, infinite)).contains("row 0"));
}
