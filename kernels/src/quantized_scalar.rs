//! Products of a tile without vectors: what the other instruction sets are compared with, and what
//! runs where there are none.

use crate::quantized_kernel::{BlockType, BLOCK, TILE_ROWS};
use crate::quantized_rows::XBlock;
use half::f16;

/// `sums[row of x][row of the tile]`, for rows of `x` that lie one behind the other.
pub fn tile_products(kind: BlockType, tile: &[u8], x: &[XBlock], sums: &mut [[f32; TILE_ROWS]]) {
    let row_blocks = x.len() / sums.len();
    for (x, sums) in x.chunks_exact(row_blocks).zip(sums) {
        *sums = [0.0; TILE_ROWS];
        for (block, x) in tile.chunks_exact(TILE_ROWS * kind.bytes()).zip(x) {
            for row in 0..TILE_ROWS {
                add_block(kind, block, row, x, &mut sums[row]);
            }
        }
    }
}

/// Adds the product of 32 numbers to a sum.
fn add_block(kind: BlockType, block: &[u8], row: usize, x: &XBlock, sum: &mut f32) {
    let number = |at: usize| f16::from_le_bytes([block[2 * at], block[2 * at + 1]]).to_f32();
    let scales = if kind == BlockType::Q4_1 { 2 } else { 1 };
    let integers = &block[scales * 2 * TILE_ROWS..];
    let byte = |i: usize| integers[i / 4 * 4 * TILE_ROWS + row * 4 + i % 4];
    let mut product = 0;
    for i in 0..BLOCK {
        let q = match kind {
            BlockType::Q8_0 => i32::from(byte(i) as i8),
            BlockType::Q4_0 => i32::from(byte(i % 16) >> (i / 16 * 4) & 15) - 8,
            BlockType::Q4_1 => i32::from(byte(i % 16) >> (i / 16 * 4) & 15),
        };
        product += q * i32::from(x.q[i]);
    }
    *sum = (product as f32).mul_add(number(row) * x.scale, *sum);
    if kind == BlockType::Q4_1 {
        *sum = number(TILE_ROWS + row).mul_add(x.scale * x.sum as f32, *sum);
    }
}
