//! Hand-filled caches for the checks of days 10 and 12. The numbers at each position identify it.

use super::{bits_equal, equal, Outcome};
use candecode::kit::{Cache, View};
use candle_core::{Device, Error, Result, Tensor};

/// Number of layers in a hand-filled cache. The heads and their width follow.
pub const LAYERS: usize = 2;
const HEADS: usize = 2;
const WIDTH: usize = 3;

/// The positions of each row, as numbers. None is padding.
pub type Rows = Vec<Vec<Option<u32>>>;

/// Returns rows without padding.
pub fn rows(numbers: &[&[u32]]) -> Rows {
    numbers.iter().map(|row| row.iter().map(|n| Some(*n)).collect()).collect()
}

/// Returns a layer's keys and values, `(B, 2, T, 3)`. A key is the number of its position plus a
/// fraction for layer, head and index (all exact in f32); a value is the negated key; padding is 0.
/// They are strided, like a model's heads.
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

/// Appends positions to every layer and returns the last layer's view.
pub fn feed(cache: &mut dyn Cache, rows: &Rows) -> Result<View> {
    let mut all = None;
    for layer in 0..LAYERS {
        let (k, v) = marked(rows, layer)?;
        all = Some(cache.append(layer, &k, &v)?);
    }
    all.ok_or(Error::Msg("no layers".into()))
}

/// Checks that a cache of length `len`, with the layers `held`, holds exactly these positions in
/// every layer.
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
        bits_equal(&format!("{input}: keys held in layer {layer}"), Ok(got.k), &k)?;
        bits_equal(&format!("{input}: values held in layer {layer}"), Ok(got.v), &v)?;
    }
    Ok(())
}
