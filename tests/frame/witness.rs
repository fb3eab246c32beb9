//! A model that records which tokens, at which positions, its cache and mask let each row attend
//! to.

use super::fake::{refuse_more_than, tiny_config};
use candecode::kit::{Cache, Logits, Model, ModelConfig, Step, View};
use candle_core::{bail, DType, Device, Result, Tensor};
use std::cell::RefCell;

const LAYERS: usize = 2;
const HEADS: usize = 2;

/// One forward pass: its inputs, and what each row attended to.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    /// The new ids of each row.
    pub ids: Vec<Vec<u32>>,
    /// Their positions.
    pub positions: Vec<Vec<u32>>,
    /// Whether the step supplied a mask.
    pub masked: bool,
    /// For each row, the `(token, position)` pairs attended to by the position whose logits were
    /// requested. With [`Logits::Columns`], one entry for each of the columns.
    pub seen: Vec<Vec<(u32, u32)>>,
}

/// Computes logits from the `(token, position)` pairs attended to.
type Script = Box<dyn Fn(&[(u32, u32)]) -> Vec<f32>>;

/// A two-layer model with `(token, position, layer and head)` as its keys. It reads back what the
/// cache returns, so the logits depend on the actual contents. After `bound` passes it returns an
/// error.
pub struct Witness {
    config: ModelConfig,
    script: Script,
    bound: usize,
    /// Every pass so far.
    pub passes: RefCell<Vec<Pass>>,
}

impl Witness {
    /// Creates a model with `vocab_size` tokens and a context of `context` that allows `bound`
    /// passes. EOS is 0.
    pub fn new(
        vocab_size: usize,
        context: usize,
        bound: usize,
        script: impl Fn(&[(u32, u32)]) -> Vec<f32> + 'static,
    ) -> Self {
        let config = ModelConfig {
            num_hidden_layers: LAYERS,
            num_attention_heads: 2 * HEADS,
            num_key_value_heads: HEADS,
            head_dim: 3,
            ..tiny_config(vocab_size, context)
        };
        Self { config, script: Box::new(script), bound, passes: RefCell::default() }
    }

    /// Creates a model that picks its next token pseudo-randomly, depending on every token seen,
    /// its position, and the order of the tokens.
    pub fn mixing(vocab_size: usize, context: usize, bound: usize) -> Self {
        Self::new(vocab_size, context, bound, move |seen| {
            let mix = |hash: u32, (id, position): &(u32, u32)| {
                (hash * 31 + id + 53 * position + 1) % 65_521
            };
            let hash = seen.iter().fold(7, mix);
            let mut logits: Vec<f32> =
                (0..vocab_size as u32).map(|id| ((hash + 13 * id) % 97) as f32 / 97.0).collect();
            logits[hash as usize % vocab_size] = 4.0;
            logits
        })
    }

    /// Returns the number of layers.
    pub fn layers(&self) -> usize {
        LAYERS
    }

    /// Returns the number of positions computed so far, over all rows and passes.
    pub fn positions_computed(&self) -> usize {
        self.passes.borrow().iter().flat_map(|pass| &pass.ids).map(Vec::len).sum()
    }

    /// Returns the keys of the step's tokens in one layer, `(B, HEADS, T, 3)`. The values are the
    /// keys plus one.
    fn keys(step: &Step, layer: usize) -> Result<Tensor> {
        let (b, t) = step.ids.dims2()?;
        let column = |x: &Tensor| x.to_dtype(DType::F32)?.reshape((b, 1, t, 1));
        let head = |head: usize| {
            let mark = Tensor::full((10 * layer + head) as f32, (b, 1, t, 1), step.ids.device())?;
            Tensor::cat(&[column(&step.ids)?, column(&step.positions)?, mark], 3)
        };
        let heads = (0..HEADS).map(head).collect::<Result<Vec<_>>>()?;
        // Strided, like a real model's heads.
        Tensor::cat(&heads, 1)?.transpose(1, 2)?.contiguous()?.transpose(1, 2)
    }

    /// Returns a row's columns in one layer as token and position. A column where keys, values and
    /// heads disagree is None.
    fn columns(k: &[Vec<Vec<f32>>], v: &[Vec<Vec<f32>>], layer: usize) -> Vec<Column> {
        let column = |j: usize| {
            let agree = (0..HEADS).all(|head| {
                let (key, value) = (&k[head][j], &v[head][j]);
                key[..2] == k[0][j][..2]
                    && key[2] == (10 * layer + head) as f32
                    && key.iter().zip(value).all(|(key, value)| key + 1.0 == *value)
            });
            agree.then(|| (k[0][j][0] as u32, k[0][j][1] as u32))
        };
        (0..k[0].len()).map(column).collect()
    }
}

/// Token and position. None: the keys and values there don't belong to one token.
type Column = Option<(u32, u32)>;

impl Model for Witness {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        let (b, t) = step.ids.dims2()?;
        refuse_more_than(self.bound, self.passes.borrow().len() + 1)?;
        let mut layers: Vec<Vec<Vec<Column>>> = Vec::new(); // layer, row, column
        for layer in 0..LAYERS {
            let k = Self::keys(step, layer)?;
            let View { k: all_k, v: all_v, .. } = cache.append(layer, &k, &(&k + 1.0)?)?;
            let all = all_k.dims().get(2).copied().unwrap_or(0);
            for (name, got) in [("keys", &all_k), ("values", &all_v)] {
                if got.dims() != [b, HEADS, all, 3] || all < t {
                    bail!(
                        "layer {layer}: append returned {name} of {:?} for {b} rows, {HEADS} \
                        heads, {t} new columns of width 3",
                        got.dims()
                    )
                }
            }
            let mut rows = Vec::new();
            for row in 0..b {
                let (k, v) = (all_k.get(row)?.to_vec3()?, all_v.get(row)?.to_vec3()?);
                rows.push(Self::columns(&k, &v, layer));
            }
            layers.push(rows);
        }
        let all = layers[0][0].len();
        if let Some(layer) = (0..LAYERS).find(|layer| layers[*layer][0].len() != all) {
            let got = layers[layer][0].len();
            bail!("layer {layer} of the cache returned {got} columns, but layer 0 returned {all}")
        }
        let mask: Option<Vec<u8>> = match &step.mask {
            Some(mask) if mask.dims() != [b, 1, t, all] => {
                bail!("the mask has shape {:?}, but must be {:?}", mask.dims(), [b, 1, t, all])
            }
            Some(mask) => Some(mask.flatten_all()?.to_vec1()?),
            None => None,
        };
        let may = |row: usize, i: usize, j: usize| match &mask {
            Some(mask) => mask[(row * t + i) * all + j] == 1,
            None => j <= all - t + i,
        };
        if step.chunks.is_some() {
            bail!("the witness doesn't support varlen batches")
        }
        let (mut logits, mut seen) = (Vec::new(), Vec::new());
        for row in 0..b {
            let asked = match &step.logits {
                Logits::Columns(columns) => columns.iter().map(|column| *column as usize).collect(),
                Logits::At(at) => vec![at.get(row).map_or(0, |at| *at as usize)],
                _ => vec![t - 1],
            };
            let mut seen_by = vec![Vec::new(); t];
            for (i, seen_by) in seen_by.iter_mut().enumerate() {
                let mut columns = Vec::new();
                for j in (0..all).filter(|j| may(row, i, *j)) {
                    let here = layers[0][row][j];
                    // Columns that no real row attends to can hold anything, so check only the rows
                    // that need logits.
                    if asked.contains(&i)
                        && layers.iter().any(|rows| rows[row][j] != here || here.is_none())
                    {
                        bail!(
                            "row {row} attends to column {j}, where the keys and values of all \
                            layers and heads should belong to one token, but don't"
                        )
                    }
                    columns.extend(here);
                }
                logits.extend((self.script)(&columns));
                *seen_by = columns;
            }
            seen.extend(asked.iter().filter_map(|i| seen_by.get(*i).cloned()));
        }
        let (ids, positions) = (step.ids.to_vec2()?, step.positions.to_vec2()?);
        self.passes.borrow_mut().push(Pass { ids, positions, masked: mask.is_some(), seen });
        let logits = Tensor::from_vec(logits, (b, t, self.config.vocab_size), &Device::Cpu)?;
        step.chosen(&logits)
    }
}
