//! Caches filled by hand, for the checks of days 10 and 12: positions that say where they are from.

use super::{bits_equal, equal, Outcome};
use candecode::kit::{Cache, View};
use candle_core::{Device, Error, Result, Tensor};

/// Layers of a cache filled by hand; its heads, and how wide they are.
pub const LAYERS: usize = 2;
const HEADS: usize = 2;
const WIDTH: usize = 3;

/// Positions of rows, as numbers; None is padding.
pub type Rows = Vec<Vec<Option<u32>>>;

/// Rows without padding.
pub fn rows(numbers: &[&[u32]]) -> Rows {
    numbers.iter().map(|row| row.iter().map(|n| Some(*n)).collect()).collect()
}

/// Keys and values of a layer, `(B, 2, T, 3)`: a key is its position's number and a fraction for
/// layer, head and place (all exact in f32), a value is minus that, padding is 0. They are strided,
/// as the heads of a model are.
pub fn marked(rows: &Rows, layer: usize) -> Result<(Tensor, Tensor)> {
    let (b, t) = (rows.len(), rows[0].len());
    let mut numbers = Vec::new();
    for position in rows.iter().flatten() {
        for (head, d) in (0..HEADS).flat_map(|head| (0..WIDTH).map(move |d| (head, d))) {
            let mark = layer as f32 / 4.0 + head as f32 / 8.0 + d as f32 / 32.0;
            numbers.push(position.map_or(0.0, |n| n as f32 + mark));
        }
    }
    let keys = Tensor::from_vec(numbers, (b, t, HEADS, WIDTH), &Device::Cpu)?.transpose(1, 2)?;
    let values = keys.neg()?;
    Ok((keys, values))
}

/// Appends positions to every layer; returns what the last one returned.
pub fn feed(cache: &mut dyn Cache, rows: &Rows) -> Result<View> {
    let mut all = None;
    for layer in 0..LAYERS {
        let (k, v) = marked(rows, layer)?;
        all = Some(cache.append(layer, &k, &v)?);
    }
    all.ok_or(Error::Msg("no layers".into()))
}

/// A cache of `len` positions, whose layers are `held`, holds exactly these positions, in every
/// layer.
pub fn holds(
    input: &str,
    len: usize,
    held: impl Fn(usize) -> Result<View>,
    rows: &Rows,
) -> Outcome {
    equal(&format!("{input}: len"), Ok(len), &rows[0].len())?;
    for layer in 0..LAYERS {
        let (k, v) = marked(rows, layer)?;
        let got = held(layer)?;
        bits_equal(&format!("{input}: keys of layer {layer}, then"), Ok(got.k), &k)?;
        bits_equal(&format!("{input}: values of layer {layer}, then"), Ok(got.v), &v)?;
    }
    Ok(())
}
