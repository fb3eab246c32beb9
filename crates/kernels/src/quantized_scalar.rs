//! Products of a tile without vectors: the reference for the other instruction sets, and the
//! fallback where there are none.

use crate::quantized_blocks::{QuantType, BLOCK, TILE_ROWS};
use crate::quantized_rows::{place, XRows};
use half::f16;

/// Computes `sums[row of x][row of the tile]` for contiguous rows of `x`.
pub fn tile_products(kind: QuantType, tile: &[u8], x: XRows<'_>, sums: &mut [[f32; TILE_ROWS]]) {
    let blocks = tile.chunks_exact(TILE_ROWS * kind.bytes());
    let row_blocks = blocks.len();
    for (at, sums) in sums.iter_mut().enumerate() {
        *sums = [0.0; TILE_ROWS];
        let x = x.blocks(at * row_blocks, row_blocks);
        for (b, block) in blocks.clone().enumerate() {
            for row in 0..TILE_ROWS {
                add_block(kind, block, row, x.blocks(b, 1), &mut sums[row]);
            }
        }
    }
}

/// Adds the product of 32 numbers to a sum.
fn add_block(kind: QuantType, block: &[u8], row: usize, x: XRows<'_>, sum: &mut f32) {
    let number = |at: usize| f16::from_le_bytes([block[2 * at], block[2 * at + 1]]).to_f32();
    let scales = if kind == QuantType::Q4_1 { 2 } else { 1 };
    let integers = &block[scales * 2 * TILE_ROWS..];
    let byte = |i: usize| integers[i / 4 * 4 * TILE_ROWS + row * 4 + i % 4];
    let mut product = 0;
    if kind == QuantType::Q8_0 {
        let x = &x.words[0];
        for i in 0..BLOCK {
            product += i32::from(byte(i) as i8) * i32::from(x.q[place(i)]);
        }
        *sum = (product as f32).mul_add(number(row) * x.scale, *sum);
        return;
    }
    let x = &x.bytes[0];
    let offset = if kind == QuantType::Q4_0 { 8 } else { 0 };
    for i in 0..BLOCK {
        let q = i32::from(byte(i % 16) >> (i / 16 * 4) & 15) - offset;
        product += q * i32::from(x.q[i]);
    }
    *sum = (product as f32).mul_add(number(row) * x.scale, *sum);
    if kind == QuantType::Q4_1 {
        *sum = number(TILE_ROWS + row).mul_add(x.scale * x.sum as f32, *sum);
    }
}
