//! What day 10's checkers assert.

use super::checks::{
    bits_equal, close, device, ensure, equal, equal_tokens, golden, golden_json, models_dir,
    refused, tokenizer, Keep, Likely, Outcome, Random, Witness,
};
use candecode::engine::load_model;
use candecode::kit::{
    Cache, CacheKind, GenerationOptions, Logits, Model, ModelConfig, NoCache, Step, Token,
    Tokenizer,
};
use candle_core::{bail, DType, Device, Error, IndexOp, Result, Tensor};

/// Puts columns into a cache.
pub type Fill<'a> = &'a dyn Fn(&mut dyn Cache) -> Result<()>;

/// The loop.
pub type Generate = for<'a> fn(
    &'a dyn Model,
    &'a Tokenizer,
    &[u32],
    GenerationOptions<'a>,
    Box<dyn Cache + 'a>,
) -> Result<Vec<Token>>;

/// Day 10 as a bundle of functions.
#[derive(Clone, Copy)]
pub struct Day {
    pub bytes: fn(&ModelConfig, usize, usize, DType) -> usize,
    pub grow: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub write_at: fn(&Tensor, &Tensor, usize) -> Result<Tensor>,
    pub stack_rows: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub new: fn(CacheKind, usize) -> Box<dyn Cache>,
    /// A cache that was filled, and its clone.
    pub cloned: fn(CacheKind, usize, Fill) -> Result<[Box<dyn Cache>; 2]>,
    pub next_step: fn(&dyn Model, &[u32], &mut usize, usize, &mut dyn Cache) -> Result<Step>,
    pub generate: Generate,
}

/// Fills the bundle from a module: the reader's, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        day::Day {
            bytes: code::cache_bytes,
            grow: code::grow,
            write_at: code::write_at,
            stack_rows: code::stack_rows,
            new: |kind, layers| Box::new(code::KvCache::new(kind, layers)),
            cloned: |kind, layers, fill| {
                let mut cache = code::KvCache::new(kind, layers);
                fill(&mut cache)?;
                let clone = cache.try_clone()?;
                Ok([Box::new(cache), Box::new(clone)])
            },
            next_step: code::next_step,
            generate: |model, tokenizer, prompt, options, cache| {
                code::generate_cached(model, tokenizer, prompt, options, cache)?.take(1000).collect()
            },
        }
    }};
}

/// Caches made by hand have so many layers and heads, and heads so wide.
const LAYERS: usize = 2;
const HEADS: usize = 2;
const WIDTH: usize = 3;

/// Columns of rows, as numbers; None is padding.
type Rows = Vec<Vec<Option<u32>>>;

fn rows(numbers: &[&[u32]]) -> Rows {
    numbers.iter().map(|row| row.iter().map(|n| Some(*n)).collect()).collect()
}

/// Keys and values of a layer, `(B, 2, T, 3)`: a key is its column's number and a fraction for layer, head and place (all
/// exact in f32), a value is minus that, padding is 0. They are strided, as the heads of a model are.
fn marked(rows: &Rows, layer: usize) -> Result<(Tensor, Tensor)> {
    let (b, t) = (rows.len(), rows[0].len());
    let mut numbers = Vec::new();
    for column in rows.iter().flatten() {
        for (head, d) in (0..HEADS).flat_map(|head| (0..WIDTH).map(move |d| (head, d))) {
            let mark = layer as f32 / 4.0 + head as f32 / 8.0 + d as f32 / 32.0;
            numbers.push(column.map_or(0.0, |n| n as f32 + mark));
        }
    }
    let keys = Tensor::from_vec(numbers, (b, t, HEADS, WIDTH), &Device::Cpu)?.transpose(1, 2)?;
    let values = keys.neg()?;
    Ok((keys, values))
}

/// Appends columns to every layer; gives what the last one gave back.
fn feed(cache: &mut dyn Cache, rows: &Rows) -> Result<(Tensor, Tensor)> {
    let mut all = None;
    for layer in 0..LAYERS {
        let (k, v) = marked(rows, layer)?;
        all = Some(cache.append(layer, &k, &v)?);
    }
    all.ok_or(Error::Msg("no layers".into()))
}

/// The cache holds exactly these columns, in every layer.
fn holds(input: &str, cache: &dyn Cache, rows: &Rows) -> Outcome {
    equal(&format!("{input}: len"), Ok(cache.len()), &rows[0].len())?;
    for layer in 0..LAYERS {
        let (k, v) = marked(rows, layer)?;
        let got = cache.layer(layer)?;
        bits_equal(&format!("{input}: keys of layer {layer}, then"), Ok(got.0), &k)?;
        bits_equal(&format!("{input}: values of layer {layer}, then"), Ok(got.1), &v)?;
    }
    Ok(())
}

/// The two that never drop a column by themselves.
const KINDS: [CacheKind; 2] = [CacheKind::Dynamic, CacheKind::Static(40)];

fn config(name: &str) -> Result<ModelConfig> {
    ModelConfig::from_dir(&models_dir()?.join(name)).map_err(|e| Error::Msg(format!("{e:#}")))
}

pub fn memory_by_hand(day: &Day) -> Outcome {
    // 6 layers, 2 key/value heads of 32 (6 query heads): 2 · 6 · 2 · 32 · 4 bytes.
    let bytes = (day.bytes)(&config("story-3m")?, 1, 1, DType::F32);
    equal("story-3m, 1 row, 1 column, f32: bytes", Ok(bytes), &3_072)
        .likely("keys and values, of every layer, of the heads that keys and values have")?;
    let bytes = (day.bytes)(&config("story-3m")?, 4, 512, DType::BF16);
    equal("story-3m, 4 rows, 512 columns, bf16: bytes", Ok(bytes), &3_145_728)?;
    // 4 layers, 4 heads of 32: 2 · 4 · 4 · 32 · 4 · 256.
    let bytes = (day.bytes)(&config("story-gpt2-1m")?, 1, 256, DType::F32);
    equal("story-gpt2-1m, 1 row, 256 columns, f32: bytes", Ok(bytes), &1_048_576)
}

pub fn the_formula_is_what_a_model_leaves(day: &Day) -> Outcome {
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        let (model, mut cache) = (load(name, DType::F32)?, Keep::default());
        model.forward(&Step::new(&*model, &[5, 6, 7, 8, 9], 0)?, &mut cache)?;
        let size = |layer| -> Result<usize> {
            let (k, v) = cache.layer(layer)?;
            Ok(4 * (k.elem_count() + v.elem_count()))
        };
        let want: Result<usize> = (0..model.config().num_hidden_layers).map(size).sum();
        let got = (day.bytes)(model.config(), 1, 5, DType::F32);
        equal(&format!("bytes of what {name} appends for 5 tokens, f32"), Ok(got), &want?)?;
    }
    Ok(())
}

pub fn growing_by_hand(day: &Day) -> Outcome {
    let old = Tensor::new(&[[[[1f32, 2.], [3., 4.]], [[5., 6.], [7., 8.]]]], &Device::Cpu)?;
    let new = Tensor::new(&[[[[10f32, 20.]], [[50., 60.]]]], &Device::Cpu)?;
    let want = [[[[1f32, 2.], [3., 4.], [10., 20.]], [[5., 6.], [7., 8.], [50., 60.]]]];
    let input = "old (1, 2 heads, 2 columns, 2), new (1, 2 heads, 1 column, 2)";
    bits_equal(input, (day.grow)(&old, &new), &Tensor::new(&want, &Device::Cpu)?)
        .likely("columns are the third dimension; heads stay as they are")
}

pub fn growing_anything(day: &Day) -> Outcome {
    let mut random = Random::new(102);
    for _ in 0..20 {
        let (b, s, t) = (1 + random.below(3), 1 + random.below(5), 1 + random.below(4));
        let (old, new) = (random.tensor(&[b, 2, s, 3])?, random.tensor(&[b, t, 2, 3])?);
        let new = new.transpose(1, 2)?;
        let got = (day.grow)(&old, &new)?;
        let input = format!("old ({b}, 2, {s}, 3), new ({b}, 2, {t}, 3), strided");
        equal(&input, Ok(got.dims().to_vec()), &vec![b, 2, s + t, 3])?;
        bits_equal(&format!("{input}: the old columns"), got.narrow(2, 0, s), &old)?;
        bits_equal(&format!("{input}: the new columns"), got.narrow(2, s, t), &new)?;
    }
    let (two, three) = (random.tensor(&[2, 2, 1, 3])?, random.tensor(&[3, 2, 1, 3])?);
    refused("old of 2 rows, new of 3", (day.grow)(&two, &three).map(|t| t.dims().to_vec()), &[])
}

pub fn writing_in_place_by_hand(day: &Day) -> Outcome {
    let buffer = Tensor::zeros((1, 2, 4, 1), DType::F32, &Device::Cpu)?;
    let two = Tensor::new(&[[[[1f32], [2.]], [[5.], [6.]]]], &Device::Cpu)?;
    let input = "a buffer of 4 columns, 2 heads of width 1: columns 1, 2 and 5, 6 written at 0";
    bits_equal(input, (day.write_at)(&buffer, &two, 0), &two)
        .likely("the view ends with the last column written: what is behind it is not text")?;
    let one = Tensor::new(&[[[[3f32]], [[7.]]]], &Device::Cpu)?;
    let want = Tensor::new(&[[[[1f32], [2.], [3.]], [[5.], [6.], [7.]]]], &Device::Cpu)?;
    let got = (day.write_at)(&buffer, &one, 2);
    bits_equal(&format!("{input}; then columns 3 and 7 at 2"), got, &want)?;
    let want =
        Tensor::new(&[[[[1f32], [2.], [3.], [0.]], [[5.], [6.], [7.], [0.]]]], &Device::Cpu)?;
    bits_equal("the buffer itself after that", Ok(buffer), &want)
        .likely("slice_set writes into the buffer; a new tensor would leave it as it was")
}

pub fn a_full_buffer_is_refused(day: &Day) -> Outcome {
    let buffer = Tensor::zeros((1, 2, 4, 1), DType::F32, &Device::Cpu)?;
    let two = Tensor::ones((1, 2, 2, 1), DType::F32, &Device::Cpu)?;
    for at in [3, 4, 9] {
        let got = (day.write_at)(&buffer, &two, at).map(|t| t.dims().to_vec());
        refused(&format!("2 columns at {at} of a buffer of 4"), got, &[])?;
    }
    let got = (day.write_at)(&buffer, &two, 2).map(|t| t.dims().to_vec());
    equal("2 columns at 2 of a buffer of 4: shape of the view", got, &vec![1, 2, 4, 1])
}

pub fn writing_strided_columns(day: &Day) -> Outcome {
    let mut random = Random::new(103);
    for _ in 0..20 {
        let (b, at, t) = (1 + random.below(3), random.below(4), 1 + random.below(3));
        let buffer = random.tensor(&[b, 2, 8, 3])?;
        let before = buffer.copy()?;
        let new = random.tensor(&[b, t, 2, 3])?.transpose(1, 2)?;
        let got = (day.write_at)(&buffer, &new, at)?;
        let input = format!("{t} strided columns at {at} of ({b}, 2, 8, 3)");
        equal(&input, Ok(got.dims().to_vec()), &vec![b, 2, at + t, 3])?;
        bits_equal(&format!("{input}: the new ones"), buffer.narrow(2, at, t), &new)
            .likely("slice_set wants contiguous tensors, and the heads of a model are not")?;
        let (front, back) = (buffer.narrow(2, 0, at), buffer.narrow(2, at + t, 8 - at - t));
        bits_equal(&format!("{input}: before"), front, &before.narrow(2, 0, at)?)?;
        let want = before.narrow(2, at + t, 8 - at - t)?;
        bits_equal(&format!("{input}: behind"), back, &want)?;
    }
    Ok(())
}

pub fn appending_by_hand(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut cache = (day.new)(kind, LAYERS);
        equal(&format!("{kind:?}: len of an empty cache"), Ok(cache.len()), &0)?;
        feed(&mut *cache, &rows(&[&[1, 2]]))?;
        let all = feed(&mut *cache, &rows(&[&[3]]))?;
        let input = format!("{kind:?}: columns 1, 2 appended to both layers, then 3");
        let want = marked(&rows(&[&[1, 2, 3]]), LAYERS - 1)?;
        bits_equal(&format!("{input}: keys that append gave back"), Ok(all.0), &want.0)?;
        bits_equal(&format!("{input}: values that append gave back"), Ok(all.1), &want.1)?;
        holds(&input, &*cache, &rows(&[&[1, 2, 3]]))?;
    }
    Ok(())
}

pub fn len_moves_with_the_last_layer(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut cache = (day.new)(kind, 3);
        for (columns, want) in [(rows(&[&[1, 2, 3]]), [0, 0, 3]), (rows(&[&[4]]), [3, 3, 4])] {
            let mut lens = Vec::new();
            for layer in 0..3 {
                let (k, v) = marked(&columns, layer)?;
                cache.append(layer, &k, &v)?;
                lens.push(cache.len());
            }
            let input = format!("{kind:?}, 3 layers, 3 columns, and then 1: len after each append");
            equal(&input, Ok(lens), &want.to_vec())
                .likely("a step appends layer by layer; all of them write at the same column")?;
        }
    }
    Ok(())
}

pub fn pieces_equal_the_whole(day: &Day) -> Outcome {
    let mut random = Random::new(104);
    for trial in 0..12 {
        let kind = KINDS[trial % 2];
        let (b, mut cache, mut whole) = (1 + random.below(3), (day.new)(kind, LAYERS), Vec::new());
        whole.resize(b, Vec::new());
        let mut input = format!("{kind:?}, {b} rows, appended in pieces of");
        while whole[0].len() < 20 {
            let t = 1 + random.below(5);
            let start = whole[0].len() as u32;
            let piece: Rows = (0..b as u32)
                .map(|b| (0..t as u32).map(|j| Some(100 * b + start + j + 1)).collect())
                .collect();
            input += &format!(" {t}");
            whole.iter_mut().zip(&piece).for_each(|(row, new)| row.extend(new));
            let all = feed(&mut *cache, &piece)?;
            let want = marked(&whole, LAYERS - 1)?;
            bits_equal(&format!("{input}: keys given back"), Ok(all.0), &want.0)?;
            bits_equal(&format!("{input}: values given back"), Ok(all.1), &want.1)?;
        }
        holds(&input, &*cache, &whole)?;
    }
    Ok(())
}

pub fn a_static_cache_is_full_once(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheKind::Static(3), LAYERS);
    feed(&mut *cache, &rows(&[&[1, 2]]))?;
    feed(&mut *cache, &rows(&[&[3]]))?;
    holds("Static(3): columns 1, 2, then 3", &*cache, &rows(&[&[1, 2, 3]]))?;
    let got = feed(&mut *cache, &rows(&[&[4]])).map(|_| ());
    refused("Static(3), a fourth column", got, &[])?;
    let got = feed(&mut *(day.new)(CacheKind::Static(3), LAYERS), &rows(&[&[1, 2, 3, 4]]));
    refused("Static(3), four columns at once", got.map(|_| ()), &[])
}

pub fn a_layer_too_many_is_refused(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheKind::Dynamic, LAYERS);
    let (k, v) = marked(&rows(&[&[1]]), 0)?;
    refused("layer 2 of a cache for 2 layers", cache.append(2, &k, &v).map(|_| ()), &[])
}

pub fn truncate_keeps_the_first_columns(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut cache = (day.new)(kind, LAYERS);
        feed(&mut *cache, &rows(&[&[1, 2, 3, 4, 5], &[11, 12, 13, 14, 15]]))?;
        cache.truncate(3)?;
        let input = format!("{kind:?}: rows 1 to 5 and 11 to 15, truncated to 3");
        holds(&input, &*cache, &rows(&[&[1, 2, 3], &[11, 12, 13]]))
            .likely("the newest columns are the rejected ones")?;
        feed(&mut *cache, &rows(&[&[6], &[16]]))?;
        let want = rows(&[&[1, 2, 3, 6], &[11, 12, 13, 16]]);
        holds(&format!("{input}, then 6 and 16"), &*cache, &want)?;
        cache.truncate(4)?;
        holds(&format!("{input}, then 6 and 16, truncated to 4"), &*cache, &want)?;
        refused(&format!("{kind:?}, 4 columns truncated to 5"), cache.truncate(5), &[])?;
    }
    Ok(())
}

pub fn an_emptied_cache_begins_anew(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut cache = (day.new)(kind, LAYERS);
        feed(&mut *cache, &rows(&[&[1, 2], &[11, 12]]))?;
        cache.truncate(0)?;
        let input = format!("{kind:?}: two rows of 2 columns, truncated to 0");
        equal(&format!("{input}: len"), Ok(cache.len()), &0)?;
        feed(&mut *cache, &rows(&[&[7], &[8]]))?;
        holds(&format!("{input}, then 7 and 8"), &*cache, &rows(&[&[7], &[8]]))?;
        cache.truncate(0)?;
        feed(&mut *cache, &rows(&[&[5, 6]]))?;
        let input = format!("{input}; emptied again, then one row 5, 6");
        holds(&input, &*cache, &rows(&[&[5, 6]]))?;
    }
    Ok(())
}

/// Logits of the last position of `ids`, fed after the `held` columns of a cache.
pub fn logits(model: &dyn Model, ids: &[u32], cache: &mut dyn Cache) -> Result<Tensor> {
    let step = Step::new(model, ids, cache.len())?.with_logits(Logits::Last(1));
    model.forward(&step, cache)?.flatten_all()
}

pub fn what_was_taken_back_leaves_no_trace(day: &Day) -> Outcome {
    let model = load("story-230k", DType::F32)?;
    let ids: Vec<u32> = (300..330).collect();
    let want = logits(&*model, &ids, &mut NoCache)?;
    for kind in [CacheKind::Dynamic, CacheKind::Static(64)] {
        let mut cache = (day.new)(kind, model.config().num_hidden_layers);
        logits(&*model, &ids[..20], &mut *cache)?;
        logits(&*model, &[1000, 1001, 1002, 1003], &mut *cache)?;
        cache.truncate(20)?;
        let got = logits(&*model, &ids[20..], &mut *cache);
        let input = format!("story-230k, {kind:?}: 20 tokens, 4 wrong ones, truncated, 10 more");
        close(&input, got, &want, LOGITS)?;
    }
    Ok(())
}

pub fn clones_share_nothing(day: &Day) -> Outcome {
    for kind in KINDS {
        let fill = |cache: &mut dyn Cache| feed(cache, &rows(&[&[1, 2]])).map(|_| ());
        let [mut one, mut two] = (day.cloned)(kind, LAYERS, &fill)?;
        let input = format!("{kind:?}, columns 1, 2, cloned");
        holds(&format!("{input}: the clone"), &*two, &rows(&[&[1, 2]]))?;
        feed(&mut *one, &rows(&[&[3]]))?;
        feed(&mut *two, &rows(&[&[4]]))?;
        holds(
            &format!("{input}, 3 to the first, 4 to the clone: the first"),
            &*one,
            &rows(&[&[1, 2, 3]]),
        )
        .likely("Tensor::clone shares the numbers, and a static cache writes in place")?;
        holds(
            &format!("{input}, 3 to the first, 4 to the clone: the clone"),
            &*two,
            &rows(&[&[1, 2, 4]]),
        )?;
        one.truncate(1)?;
        feed(&mut *one, &rows(&[&[7, 8, 9]]))?;
        holds(
            &format!("{input}, the first truncated and refilled: the clone"),
            &*two,
            &rows(&[&[1, 2, 4]]),
        )?;
    }
    Ok(())
}

pub fn selecting_by_hand(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut cache = (day.new)(kind, LAYERS);
        feed(&mut *cache, &rows(&[&[1, 2], &[11, 12], &[21, 22]]))?;
        cache.select(&[2, 0, 0])?;
        let input = format!("{kind:?}: rows 1 2, 11 12, 21 22; select [2, 0, 0]");
        holds(&input, &*cache, &rows(&[&[21, 22], &[1, 2], &[1, 2]])).likely(
            "new row i is old row rows[i]: rows are the first dimension, of keys and of values",
        )?;
        feed(&mut *cache, &rows(&[&[5], &[6], &[7]]))?;
        let want = rows(&[&[21, 22, 5], &[1, 2, 6], &[1, 2, 7]]);
        holds(&format!("{input}, then 5, 6, 7"), &*cache, &want)?;
        cache.select(&[1])?;
        holds(&format!("{input}, then 5, 6, 7, then select [1]"), &*cache, &rows(&[&[1, 2, 6]]))?;
    }
    let mut cache = (day.new)(CacheKind::Dynamic, LAYERS);
    feed(&mut *cache, &rows(&[&[1], &[2]]))?;
    refused("row 2 of 2 rows", cache.select(&[0, 2]), &[])
}

pub fn a_beam_and_its_sibling_part(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut model = Witness::mixing(50, 30, 99);
        let mut cache = (day.new)(kind, model.layers());
        let mut beams = vec![vec![7, 8, 9]];
        let step = |beams: &[Vec<u32>], held: usize| {
            let new: Vec<Vec<u32>> = beams.iter().map(|beam| beam[held..].to_vec()).collect();
            let positions: Vec<u32> = (held as u32..beams[0].len() as u32).collect();
            Step::batch(&model, &new, &vec![positions; beams.len()], None)
        };
        model.forward(&step(&beams, 0)?, &mut *cache)?;
        let mut input = format!("{kind:?}, beams that fork:");
        for (turn, parents) in
            [vec![0, 0], vec![1, 0, 1], vec![2, 2, 0], vec![1, 0]].into_iter().enumerate()
        {
            cache.select(&parents)?;
            input += &format!(" select {parents:?}");
            beams = parents.iter().map(|parent| beams[*parent as usize].clone()).collect();
            for (i, beam) in beams.iter_mut().enumerate() {
                beam.push((10 * turn + i + 10) as u32);
            }
            model.forward(&step(&beams, cache.len())?, &mut *cache)?;
            let seen =
                model.passes.borrow().last().map(|pass| pass.seen.clone()).unwrap_or_default();
            let ids = |row: &Vec<(u32, u32)>| row.iter().map(|(id, _)| *id).collect::<Vec<_>>();
            let seen: Vec<Vec<u32>> = seen.iter().map(ids).collect();
            equal(&format!("{input}: the tokens that each beam sees"), Ok(seen), &beams)?;
        }
        model.passes.get_mut().clear();
    }
    Ok(())
}

/// What one random operation does to both; a line of the input's description.
fn operate(
    random: &mut Random,
    cache: &mut dyn Cache,
    plain: &mut Rows,
    all: usize,
) -> Result<String> {
    let (b, len) = (plain.len(), plain[0].len());
    match random.below(all) {
        0 if len > 0 => {
            let keep = random.below(len + 1).max(1);
            plain.iter_mut().for_each(|row| row.truncate(keep));
            cache.truncate(keep)?;
            Ok(format!("truncate({keep})"))
        }
        1 => {
            let chosen: Vec<u32> =
                (0..1 + random.below(3)).map(|_| random.below(b) as u32).collect();
            *plain = chosen.iter().map(|row| plain[*row as usize].clone()).collect();
            cache.select(&chosen)?;
            Ok(format!("select({chosen:?})"))
        }
        _ => {
            let new: Rows = (0..b)
                .map(|_| (0..1 + random.below(1)).map(|_| Some(random.below(900) as u32)).collect())
                .collect();
            plain.iter_mut().zip(&new).for_each(|(row, new)| row.extend(new));
            feed(cache, &new)?;
            Ok("append".into())
        }
    }
}

pub fn any_order_of_operations(day: &Day) -> Outcome {
    for seed in 0..12 {
        let (mut random, kind) = (Random::new(200 + seed), KINDS[seed as usize % 2]);
        let mut cache = (day.new)(kind, LAYERS);
        let mut plain = rows(&[&[1], &[2]]);
        feed(&mut *cache, &plain)?;
        let mut input = format!("{kind:?}: two rows of 1");
        for _ in 0..14 {
            input += &format!(", {}", operate(&mut random, &mut *cache, &mut plain, 5)?);
            holds(&input, &*cache, &plain)?;
        }
    }
    Ok(())
}

/// A cache that only counts: as many columns as it is told.
struct Ledger {
    len: usize,
    emptied: usize,
}

impl Cache for Ledger {
    fn append(&mut self, _layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((k.clone(), v.clone()))
    }

    fn layer(&self, _layer: usize) -> Result<(Tensor, Tensor)> {
        bail!("there is nothing in it")
    }

    fn len(&self) -> usize {
        self.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        (self.len, self.emptied) = (len, self.emptied + 1);
        Ok(())
    }

    fn select(&mut self, _rows: &[u32]) -> Result<()> {
        Ok(())
    }

    fn join(&mut self, _other: &dyn Cache) -> Result<()> {
        bail!("it does not join")
    }

    fn trim(&mut self, _front: usize) -> Result<()> {
        bail!("it does not trim")
    }
}

pub fn the_next_step_by_hand(day: &Day) -> Outcome {
    let model = Witness::mixing(100, 6, 99);
    let text: Vec<u32> = (10..30).collect();
    let (mut ledger, mut first) = (Ledger { len: 0, emptied: 0 }, 0);
    // TokenIter, columns held before; then ids, positions, and what first is after it. ProcessorInput 6, stride 2.
    for (tokens, held, ids, start, window, emptied) in [
        (3, 0, 10..13, 0, 0, 0), // the prompt, whole
        (4, 3, 13..14, 3, 0, 0), // one token
        (6, 4, 14..16, 4, 0, 0), // two: one was taken back
        (7, 6, 12..17, 0, 2, 1), // a seventh token: the window moves by 2, positions begin at 0
        (8, 5, 17..18, 5, 2, 1),
        (9, 6, 14..19, 0, 4, 2), // and again
    ] {
        ledger.len = held;
        let step = (day.next_step)(&model, &text[..tokens], &mut first, 2, &mut ledger)?;
        let input = format!("context 6, stride 2, {tokens} tokens 10, 11, …, {held} columns held");
        let got = step.ids.to_vec2::<u32>()?;
        equal(&format!("{input}: ids"), Ok(got), &vec![ids.clone().collect::<Vec<u32>>()])?;
        let positions: Vec<u32> = (start..start + ids.len() as u32).collect();
        let got = step.positions.to_vec2::<u32>()?;
        equal(&format!("{input}: positions"), Ok(got), &vec![positions])
            .likely("the first new token stands at the number of columns that are held")?;
        equal(&format!("{input}: first"), Ok(first), &window)?;
        equal(
            &format!("{input}: times the cache was emptied so far"),
            Ok(ledger.emptied),
            &emptied,
        )?;
    }
    Ok(())
}

pub fn without_a_cache_every_step_is_whole(day: &Day) -> Outcome {
    let (model, mut first) = (Witness::mixing(100, 6, 99), 0);
    for (len, want) in [(2, 0..2), (3, 0..3), (6, 0..6), (7, 2..7), (8, 2..8)] {
        let text: Vec<u32> = (0..len).collect();
        let step = (day.next_step)(&model, &text, &mut first, 2, &mut NoCache)?;
        let input = format!("NoCache, context 6, stride 2, tokens 0 to {}: ids", len - 1);
        equal(&input, Ok(step.ids.to_vec2::<u32>()?), &vec![want.collect::<Vec<u32>>()])?;
    }
    Ok(())
}

/// The best token, the first of equals. Day 7 has the reader's own.
fn largest(_row: usize, logits: &[f32]) -> Result<u32> {
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.map(|best| best as u32).ok_or(Error::Msg("there are no logits".into()))
}

/// Greedy options without an end but the bound.
pub fn options<'a>(model: &dyn Model, most: usize, stride: usize) -> GenerationOptions<'a> {
    let mut options = GenerationOptions::new(model.config(), most, largest);
    options.eos_token_ids.clear();
    options.stride = stride;
    options
}

fn ids(tokens: Result<Vec<Token>>) -> Result<Vec<u32>> {
    Ok(tokens?.iter().map(|token| token.id).collect())
}

/// Day 7's loop: every step computes the whole window anew.
fn uncached(model: &dyn Model, prompt: &[u32], most: usize, stride: usize) -> Result<Vec<u32>> {
    let (mut text, context) = (prompt.to_vec(), model.config().max_position_embeddings);
    for _ in 0..most {
        let first = text.len().saturating_sub(context).div_ceil(stride) * stride;
        let last = logits(model, &text[first..], &mut NoCache)?;
        text.push(largest(0, &last.to_vec1()?)?);
    }
    Ok(text.split_off(prompt.len()))
}

pub fn cached_equals_uncached(day: &Day) -> Outcome {
    let (tokenizer, mut random) = (tokenizer()?, Random::new(108));
    for trial in 0..10 {
        let (context, vocab) = (4 + random.below(12), 40);
        let stride = 1 + random.below(context);
        let (len, most) = (1 + random.below(context), 1 + random.below(30));
        let prompt: Vec<u32> = (0..len).map(|_| random.below(vocab) as u32).collect();
        let kind = [CacheKind::Dynamic, CacheKind::Static(context)][trial % 2];
        let model = Witness::mixing(vocab, context, most);
        let cache = (day.new)(kind, model.layers());
        let got = (day.generate)(&model, &tokenizer, &prompt, options(&model, most, stride), cache);
        let want = uncached(&Witness::mixing(vocab, context, most), &prompt, most, stride)?;
        let input = format!(
            "a model whose token depends on all it sees, {kind:?}, prompt {prompt:?}, {most} new, context {context}, stride {stride}"
        );
        equal_tokens(&input, ids(got), &want, &[])?;
    }
    Ok(())
}

pub fn ten_and_twenty_compute_29(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let model = Witness::mixing(40, 64, 20);
    let prompt: Vec<u32> = (1..11).collect();
    let cache = (day.new)(CacheKind::Dynamic, model.layers());
    (day.generate)(&model, &tokenizer, &prompt, options(&model, 20, 16), cache)?;
    let input = "a prompt of 10 tokens, 20 new, a context that holds them: positions computed";
    equal(input, Ok(model.positions_computed()), &29)
        .likely("10 for the prompt, then 19 times 1: the last token is never fed")?;
    // ProcessorInput 12, stride 3: the 13th token moves the window by 3 and 10 are computed, then one each, three times.
    let model = Witness::mixing(40, 12, 20);
    let cache = (day.new)(CacheKind::Dynamic, model.layers());
    (day.generate)(&model, &tokenizer, &prompt, options(&model, 20, 3), cache)?;
    let sizes: Vec<usize> = model.passes.borrow().iter().map(|pass| pass.ids[0].len()).collect();
    let want = vec![10, 1, 1, 10, 1, 1, 10, 1, 1, 10, 1, 1, 10, 1, 1, 10, 1, 1, 10, 1];
    equal("the same with a context of 12, stride 3: positions of each pass", Ok(sizes), &want)
}

pub fn the_loop_ends(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let run = |most: usize, prompt: &[u32]| {
        let model = Witness::new(9, 8, 30, |seen| {
            let next = (seen[seen.len() - 1].0 + 8) % 9; // down to 0, which is EOS
            (0..9).map(|id| if id == next { 5.0 } else { 0.0 }).collect()
        });
        let mut options = options(&model, most, 2);
        options.eos_token_ids = vec![0];
        let cache = (day.new)(CacheKind::Dynamic, model.layers());
        let tokens = (day.generate)(&model, &tokenizer, prompt, options, cache)?;
        if let Some(token) = tokens.iter().find(|token| token.row != 0) {
            bail!("a token says that it is of row {}; the only text is row 0", token.row)
        }
        Ok(tokens.iter().map(|token| (token.id, token.finish.is_some())).collect::<Vec<_>>())
    };
    let want = vec![(2, false), (1, false), (0, true)];
    equal("prompt 4, 3; the model counts down to 0, which is EOS", run(9, &[4, 3]), &want)?;
    let want = vec![(2, false), (1, true)];
    equal("prompt 4, 3; at most 2 new", run(2, &[4, 3]), &want)?;
    equal("prompt 4, 3; at most 1 new", run(1, &[4, 3]), &vec![(2, true)])?;
    equal("prompt 4, 3; at most 0 new", run(0, &[4, 3]), &vec![])?;
    refused("an empty prompt", run(3, &[]), &["empty"])?;
    refused("a prompt of 9, a context of 8", run(3, &[1; 9]), &["context"])
}

// Six layers of f32 sums in another order; the logits are near 10 (as day 5).
const LOGITS: f32 = 1e-4;

pub fn load(name: &str, dtype: DType) -> Result<Box<dyn Model>> {
    let model = load_model(&models_dir()?.join(name), dtype, &device()?);
    model.map_err(|e| Error::Msg(format!("{e:#}")))
}

/// A text of `tests/oracle/day10.json`.
pub struct Golden {
    pub model: String,
    pub prompt: Vec<u32>,
    pub new_ids: Vec<u32>,
    pub margins: Vec<f32>,
    pub at: Vec<usize>,
}

fn read(json: &serde_json::Value, at: &str) -> Golden {
    let numbers = |key: &str| {
        let list = json[key].as_array().into_iter().flatten();
        list.filter_map(serde_json::Value::as_f64).collect::<Vec<_>>()
    };
    let ids = |key: &str| numbers(key).into_iter().map(|id| id as u32).collect();
    Golden {
        model: json["model"].as_str().unwrap_or_default().to_string(),
        prompt: ids("prompt_ids"),
        new_ids: ids("new_ids"),
        margins: numbers("margins").into_iter().map(|margin| margin as f32).collect(),
        at: numbers(at).into_iter().map(|at| at as usize).collect(),
    }
}

pub fn goldens() -> Result<Vec<Golden>> {
    let json = golden_json("day10")?;
    let cases = json["cached"].as_array().into_iter().flatten();
    Ok(cases.map(|case| read(case, "logits_of_steps")).collect())
}

pub fn tokens_equal_transformers(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    for (number, golden) in goldens()?.iter().enumerate() {
        let model = load(&golden.model, DType::F32)?;
        let config = model.config();
        let kinds = [CacheKind::Static(config.max_position_embeddings), CacheKind::Dynamic];
        let (kind, most) = (kinds[number % 2], golden.new_ids.len());
        let cache = (day.new)(kind, config.num_hidden_layers);
        let got =
            (day.generate)(&*model, &tokenizer, &golden.prompt, options(&*model, most, 64), cache);
        let input = format!("{}, {kind:?}, {most} new tokens", golden.model);
        equal_tokens(&input, ids(got), &golden.new_ids, &golden.margins)?;
    }
    Ok(())
}

/// Feeds a golden text token by token after its prompt; for each new token, the logits it was chosen from.
pub fn forced(model: &dyn Model, golden: &Golden, cache: &mut dyn Cache) -> Result<Vec<Vec<f32>>> {
    let mut all = vec![logits(model, &golden.prompt, cache)?.to_vec1()?];
    for id in &golden.new_ids[..golden.new_ids.len() - 1] {
        all.push(logits(model, &[*id], cache)?.to_vec1()?);
    }
    Ok(all)
}

pub fn logits_equal_transformers(day: &Day) -> Outcome {
    for case in goldens()? {
        let model = load(&case.model, DType::F32)?;
        let layers = model.config().num_hidden_layers;
        let want = golden("day10", &format!("cached.{}", case.model))?;
        let all = forced(&*model, &case, &mut *(day.new)(CacheKind::Dynamic, layers))?;
        for (i, step) in case.at.iter().enumerate() {
            let got = Tensor::new(all[*step].as_slice(), want.device());
            let input = format!("{}: logits of step {step}, with a cache", case.model);
            close(&input, got, &want.i(i)?, LOGITS)?;
        }
    }
    Ok(())
}

pub fn past_the_context_the_window_moves(day: &Day) -> Outcome {
    // Day 7's golden: transformers' forward on the cropped ids, context 256, stride 64. From its 250th token on.
    let case = read(&golden_json("day07")?["windowed"][0], "");
    let text = [case.prompt.clone(), case.new_ids].concat();
    let (model, tokenizer) = (load(&case.model, DType::F32)?, tokenizer()?);
    let (start, most) = (250, 80);
    let cache = (day.new)(CacheKind::Static(256), model.config().num_hidden_layers);
    let got =
        (day.generate)(&*model, &tokenizer, &text[..start], options(&*model, most, 64), cache);
    let margins = &case.margins[start - case.prompt.len()..];
    let input = "story-gpt2-1m, a prompt of 250 tokens, 80 new, a context of 256, stride 64";
    equal_tokens(input, ids(got), &text[start..start + most], margins)
        .likely("the window moves when the 257th and the 321st token come")
}

/// A cache that holds its numbers in another type: what half precision does to it.
pub struct Narrow(pub Box<dyn Cache>, pub DType);

impl Cache for Narrow {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let all = self.0.append(layer, &k.to_dtype(self.1)?, &v.to_dtype(self.1)?)?;
        Ok((all.0.to_dtype(k.dtype())?, all.1.to_dtype(v.dtype())?))
    }

    fn layer(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        self.0.layer(layer)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.0.truncate(len)
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        self.0.select(rows)
    }

    fn join(&mut self, other: &dyn Cache) -> Result<()> {
        self.0.join(other)
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        self.0.trim(front)
    }
}

/// Two runs over the same text are no further apart than `bound`; else the first token that would differ is named.
fn within(input: &str, got: &[Vec<f32>], want: &[Vec<f32>], bound: f32) -> Outcome {
    let apart = |(g, w): (&Vec<f32>, &Vec<f32>)| {
        g.iter().zip(w).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max)
    };
    let most = got.iter().zip(want).map(apart).fold(0.0, f32::max);
    let differs = |(g, w): (&Vec<f32>, &Vec<f32>)| largest(0, g).ok() != largest(0, w).ok();
    let first = match got.iter().zip(want).position(differs) {
        Some(at) => format!("the first token that differs is number {at}"),
        None => format!("none of {} tokens differs", want.len()),
    };
    println!("{input}: logits at most {most:.6} apart; {first}");
    ensure(input, most <= bound, &format!("logits are {most} apart, more than {bound}; {first}"))
}

pub fn half_precision_stays_near(day: &Day) -> Outcome {
    for case in goldens()?.iter().skip(1) {
        let plain = load(&case.model, DType::F32)?;
        let layers = plain.config().num_hidden_layers;
        let new = |kind| (day.new)(kind, layers);
        let f32s = forced(&*plain, case, &mut Keep::default())?;
        for (dtype, bound) in [(DType::BF16, 0.25), (DType::F16, 0.03)] {
            // The cache alone in half precision: 8 or 11 bits of each key and value.
            let mut cache = Narrow(new(CacheKind::Static(100)), dtype);
            let got = forced(&*plain, case, &mut cache)?;
            within(&format!("{}, a cache of {dtype:?}", case.model), &got, &f32s, bound)?;
            let (k, _) = cache.layer(0)?;
            equal("the type of the keys it holds", Ok(k.dtype()), &dtype)?;
            // The weights: on the CPU activations stay f32, and the files are bf16 as they are; on an accelerator all is.
            let model = load(&case.model, dtype)?;
            let bound = if device()?.is_cpu() { 1e-3 } else { 2.0 * bound };
            let got = forced(&*model, case, &mut *new(CacheKind::Dynamic))?;
            within(&format!("{}, weights of {dtype:?}", case.model), &got, &f32s, bound)?;
        }
    }
    Ok(())
}

pub fn rows_are_stacked_by_hand(day: &Day) -> Outcome {
    let a = Tensor::new(&[[[[1f32], [2.], [3.]]]], &Device::Cpu)?;
    let b = Tensor::new(&[[[[7f32]]], [[[8.]]]], &Device::Cpu)?;
    let want = Tensor::new(
        &[[[[1f32], [2.], [3.]]], [[[0.], [0.], [7.]]], [[[0.], [0.], [8.]]]],
        &Device::Cpu,
    )?;
    bits_equal("a row 1 2 3 and two rows 7, 8 of one column", (day.stack_rows)(&a, &b), &want)
        .likely("the newest columns of all rows must be the same column: pad on the left")?;
    let want = Tensor::new(
        &[[[[0f32], [0.], [7.]]], [[[0.], [0.], [8.]]], [[[1.], [2.], [3.]]]],
        &Device::Cpu,
    )?;
    bits_equal("two rows 7, 8 of one column and a row 1 2 3", (day.stack_rows)(&b, &a), &want)?;
    let want = Tensor::new(&[[[[1f32], [2.], [3.]]], [[[1.], [2.], [3.]]]], &Device::Cpu)?;
    bits_equal("a row 1 2 3 and itself", (day.stack_rows)(&a, &a), &want)
}

/// A cache of that kind with these rows.
fn filled(day: &Day, kind: CacheKind, rows: &Rows) -> Result<Box<dyn Cache>> {
    let mut cache = (day.new)(kind, LAYERS);
    feed(&mut *cache, rows)?;
    Ok(cache)
}

pub fn joining_by_hand(day: &Day) -> Outcome {
    let (long, short) = (rows(&[&[1, 2, 3]]), rows(&[&[7], &[8]]));
    for (mine, theirs) in [(KINDS[0], KINDS[1]), (KINDS[1], KINDS[0])] {
        let mut cache = filled(day, mine, &long)?;
        cache.join(&*filled(day, theirs, &short)?)?;
        let input = format!("{mine:?} of 1 2 3, joined by {theirs:?} of rows 7 and 8");
        let want = vec![long[0].clone(), vec![None, None, Some(7)], vec![None, None, Some(8)]];
        holds(&input, &*cache, &want)?;
        feed(&mut *cache, &rows(&[&[4], &[5], &[6]]))?;
        let mut want = want;
        want.iter_mut().zip(4..).for_each(|(row, n)| row.push(Some(n)));
        holds(&format!("{input}, then 4, 5, 6"), &*cache, &want)?;

        let mut cache = filled(day, mine, &short)?;
        cache.join(&*filled(day, theirs, &long)?)?;
        let input = format!("{mine:?} of rows 7 and 8, joined by {theirs:?} of 1 2 3");
        let want = vec![vec![None, None, Some(7)], vec![None, None, Some(8)], long[0].clone()];
        holds(&input, &*cache, &want)?;
    }
    Ok(())
}

pub fn an_empty_cache_is_joined(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut cache = (day.new)(kind, LAYERS);
        cache.join(&*filled(day, kind, &rows(&[&[1, 2], &[3, 4]]))?)?;
        let input = format!("an empty {kind:?}, joined by rows 1 2 and 3 4");
        holds(&input, &*cache, &rows(&[&[1, 2], &[3, 4]]))?;
        cache.truncate(0)?;
        cache.join(&*filled(day, kind, &rows(&[&[5]]))?)?;
        let input = format!("{input}, emptied, joined by a row 5");
        holds(&input, &*cache, &rows(&[&[5]]))?;
    }
    Ok(())
}

pub fn what_has_joined_shares_nothing(day: &Day) -> Outcome {
    // As wide as it can be: then nothing is padded, and a view would do, but for what happens next.
    let guest_kind = CacheKind::Static(3);
    for kind in [CacheKind::Dynamic, guest_kind, CacheKind::Static(9)] {
        for mine in [None, Some(rows(&[&[7, 8, 9]]))] {
            let mut cache = (day.new)(kind, LAYERS);
            let mut want = Vec::new();
            if let Some(mine) = &mine {
                feed(&mut *cache, mine)?;
                want.extend(mine.clone());
            }
            let mut guest = filled(day, guest_kind, &rows(&[&[1, 2, 3]]))?;
            cache.join(&*guest)?;
            want.extend(rows(&[&[1, 2, 3]]));
            guest.truncate(1)?;
            feed(&mut *guest, &rows(&[&[50, 60]]))?;
            let input = format!("{kind:?} of {mine:?}, joined by {guest_kind:?} of 1 2 3, which is then truncated and refilled");
            holds(&input, &*cache, &want)?;
        }
    }
    Ok(())
}

pub fn a_sliding_cache_does_not_join(day: &Day) -> Outcome {
    let one = rows(&[&[1, 2]]);
    let (mut dynamic, mut sliding) =
        (filled(day, CacheKind::Dynamic, &one)?, filled(day, CacheKind::Sliding(9), &one)?);
    refused("a dynamic cache joined by a sliding one", dynamic.join(&*sliding), &[])?;
    refused("a sliding cache joined by a dynamic one", sliding.join(&*dynamic), &[])?;
    holds("the dynamic one after that", &*dynamic, &one)
}

pub fn trimming_by_hand(day: &Day) -> Outcome {
    for kind in KINDS {
        let mut cache = filled(day, kind, &rows(&[&[1, 2, 3, 4], &[11, 12, 13, 14]]))?;
        cache.trim(2)?;
        let input = format!("{kind:?}: rows 1 to 4 and 11 to 14, 2 columns trimmed");
        holds(&input, &*cache, &rows(&[&[3, 4], &[13, 14]]))
            .likely("the front goes, and every other column moves up")?;
        cache.trim(0)?;
        feed(&mut *cache, &rows(&[&[5], &[15]]))?;
        let want = rows(&[&[3, 4, 5], &[13, 14, 15]]);
        holds(&format!("{input}, then 0 more, then 5 and 15 appended"), &*cache, &want)?;
        refused(&format!("{kind:?}, 3 columns, 4 trimmed"), cache.trim(4), &[])?;
        cache.trim(3)?;
        equal(&format!("{kind:?}, 3 columns, all trimmed: len"), Ok(cache.len()), &0)?;
        feed(&mut *cache, &rows(&[&[6, 7]]))?;
        holds(&format!("{kind:?}, all trimmed, then 6 7"), &*cache, &rows(&[&[6, 7]]))?;
    }
    Ok(())
}

pub fn a_static_cache_keeps_its_capacity(day: &Day) -> Outcome {
    let mut cache = filled(day, CacheKind::Static(4), &rows(&[&[1, 2, 3, 4]]))?;
    cache.trim(2)?;
    feed(&mut *cache, &rows(&[&[5, 6]]))?;
    let input = "Static(4), full, 2 columns trimmed, 2 appended";
    holds(input, &*cache, &rows(&[&[3, 4, 5, 6]]))
        .likely("the buffer must be as long as before, with the room behind what is left")?;
    let mut cache = filled(day, CacheKind::Static(4), &rows(&[&[1, 2]]))?;
    cache.join(&*filled(day, CacheKind::Dynamic, &rows(&[&[3]]))?)?;
    feed(&mut *cache, &rows(&[&[4, 5], &[6, 7]]))?;
    let want = vec![rows(&[&[1, 2, 4, 5]])[0].clone(), vec![None, Some(3), Some(6), Some(7)]];
    holds("Static(4) of 1 2, joined by 3, then 2 columns appended", &*cache, &want)
}

pub fn any_order_of_joins_and_trims(day: &Day) -> Outcome {
    for seed in 0..12 {
        let (mut random, kind) = (Random::new(300 + seed), KINDS[seed as usize % 2]);
        let mut plain = rows(&[&[1, 2], &[3, 4]]);
        let mut cache = filled(day, kind, &plain)?;
        let mut input = format!("{kind:?}: rows 1 2 and 3 4");
        for _ in 0..12 {
            let len = plain[0].len();
            match random.below(5) {
                0 if plain.len() < 5 && len > 0 => {
                    let columns = 1 + random.below(7);
                    let new: Rows =
                        vec![(0..columns).map(|_| Some(random.below(900) as u32)).collect()];
                    cache.join(&*filled(day, KINDS[random.below(2)], &new)?)?;
                    plain.extend(new);
                    let all = len.max(columns);
                    plain.iter_mut().for_each(|row| {
                        let padding = vec![None; all - row.len()];
                        row.splice(0..0, padding);
                    });
                    input += &format!(", join({columns} columns)");
                }
                1 if len > 1 => {
                    let front = random.below(len);
                    plain.iter_mut().for_each(|row| drop(row.drain(..front)));
                    cache.trim(front)?;
                    input += &format!(", trim({front})");
                }
                _ => input += &format!(", {}", operate(&mut random, &mut *cache, &mut plain, 4)?),
            }
            holds(&input, &*cache, &plain)?;
        }
    }
    Ok(())
}

pub fn sliding_by_hand(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheKind::Sliding(3), LAYERS);
    let mut record = Vec::new();
    for new in [rows(&[&[1, 2]]), rows(&[&[3]]), rows(&[&[4]]), rows(&[&[5]])] {
        let (k, _) = feed(&mut *cache, &new)?;
        record.push((k.dim(2)?, cache.len(), cache.slid()));
    }
    let input =
        "Sliding(3), columns 1 2, then 3, 4, 5: what append gave back, len and slid after it";
    let want = vec![(2, 2, Some(0)), (3, 2, Some(1)), (3, 2, Some(2)), (3, 2, Some(3))];
    equal(input, Ok(record), &want)
        .likely("a token sees 3 columns, itself included: 2 are kept for the next one")?;
    holds("what it holds then", &*cache, &rows(&[&[4, 5]]))?;
    let slid = [CacheKind::Dynamic, CacheKind::Static(9)].map(|kind| (day.new)(kind, 1).slid());
    equal("slid() of a dynamic and of a static cache", Ok(slid), &[None, None])
}

pub fn what_has_slid_is_not_truncated(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheKind::Sliding(4), LAYERS);
    feed(&mut *cache, &rows(&[&[1, 2, 3]]))?;
    cache.truncate(2)?;
    holds(
        "Sliding(4), 3 columns, truncated to 2: nothing has slid yet",
        &*cache,
        &rows(&[&[1, 2]]),
    )?;
    feed(&mut *cache, &rows(&[&[5, 6]]))?;
    equal("Sliding(4), 4 columns: slid", Ok(cache.slid()), &Some(1))?;
    refused("Sliding(4), 4 columns, one slid away, truncated to 2", cache.truncate(2), &[])?;
    let input = "Sliding(4), 4 columns, one slid away, truncated to the 3 that it holds";
    if let Err(error) = cache.truncate(3) {
        let error = candecode::kit::error::plain(&error);
        let want = "want   no error: truncate(len()), task 10.5, takes nothing back";
        return ensure(input, false, &format!("got    the error: {error}\n{want}"));
    }
    holds(input, &*cache, &rows(&[&[2, 5, 6]]))?;
    let got = feed(&mut *(day.new)(CacheKind::Sliding(4), LAYERS), &rows(&[&[1, 2, 3, 4, 5]]));
    refused("Sliding(4), 5 columns at once", got.map(|_| ()), &[])?;
    let four = feed(&mut *(day.new)(CacheKind::Sliding(4), LAYERS), &rows(&[&[1, 2, 3, 4]]));
    equal("Sliding(4), 4 columns at once: columns given back", four.and_then(|(k, _)| k.dim(2)), &4)
}

pub fn a_sliding_text_sees_its_last_tokens(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    for (window, len) in [(6, 3), (6, 6), (2, 1), (9, 8)] {
        let model = Witness::mixing(40, window, 20);
        let prompt: Vec<u32> = (1..=len).collect();
        let cache = (day.new)(CacheKind::Sliding(window), model.layers());
        let new = ids((day.generate)(&model, &tokenizer, &prompt, options(&model, 20, 1), cache))?;
        let text = [prompt, new].concat();
        for (pass, end) in model.passes.borrow().iter().zip(len as usize..) {
            let want: Vec<(u32, u32)> =
                (end.saturating_sub(window)..end).map(|i| (text[i], i as u32)).collect();
            let input = format!("Sliding({window}), token {end} of a text: the (token, position) pairs that it is chosen from");
            equal(&input, Ok(pass.seen[0].clone()), &want)
                .likely("positions go on counting: the keys in the cache have theirs already")?;
        }
    }
    Ok(())
}

fn sliding_golden() -> Result<Golden> {
    Ok(read(&golden_json("day10")?["sliding"], "logits_of_positions"))
}

/// The golden sliding text, fed token by token through a sliding cache of 64: logits of every position from the prompt's end.
fn slid(day: &Day, model: &dyn Model, golden: &Golden) -> Result<Vec<Vec<f32>>> {
    let mut cache = (day.new)(CacheKind::Sliding(64), model.config().num_hidden_layers);
    let text = [golden.prompt.clone(), golden.new_ids.clone()].concat();
    let (mut held, mut all) = (0, Vec::new());
    for end in golden.prompt.len()..text.len() {
        let step = Step::sliding(model, &text[..end], held)?.with_logits(Logits::Last(1));
        all.push(model.forward(&step, &mut *cache)?.flatten_all()?.to_vec1()?);
        held = end;
    }
    Ok(all)
}

pub fn sliding_equals_a_banded_mask(day: &Day) -> Outcome {
    let (case, want) = (sliding_golden()?, golden("day10", "sliding")?);
    let model = load(&case.model, DType::F32)?;
    let all = slid(day, &*model, &case)?;
    for (i, at) in case.at.iter().enumerate().filter(|(_, at)| **at + 1 >= case.prompt.len()) {
        let got = Tensor::new(all[at + 1 - case.prompt.len()].as_slice(), want.device());
        let input = format!("story-230k, Sliding(64), logits of position {at}, against transformers' one pass with a banded mask");
        close(&input, got, &want.i(i)?, LOGITS)?;
    }
    Ok(())
}

pub fn sliding_tokens_equal_transformers(day: &Day) -> Outcome {
    let (case, tokenizer) = (sliding_golden()?, tokenizer()?);
    let model = load(&case.model, DType::F32)?;
    let cache = (day.new)(CacheKind::Sliding(64), model.config().num_hidden_layers);
    let most = case.new_ids.len();
    let got = (day.generate)(&*model, &tokenizer, &case.prompt, options(&*model, most, 64), cache);
    let input = format!(
        "story-230k, Sliding(64), {most} new tokens, against transformers with sliding_window 64"
    );
    equal_tokens(&input, ids(got), &case.new_ids, &case.margins)
}

pub fn a_slid_cache_is_not_a_window(day: &Day) -> Outcome {
    // The keys that are left were computed from tokens that are gone: in a window computed anew they are not.
    let case = sliding_golden()?;
    let model = load(&case.model, DType::F32)?;
    let all = slid(day, &*model, &case)?;
    let text = [case.prompt.clone(), case.new_ids.clone()].concat();
    for (at, least, most) in
        [(62, 0.0, LOGITS), (63, 0.0, LOGITS), (64, 0.01, 2.0), (65, 0.01, 2.0)]
    {
        let anew = logits(&*model, &text[(at + 1usize).saturating_sub(64)..=at], &mut NoCache)?
            .to_vec1::<f32>()?;
        let got = &all[at + 1 - case.prompt.len()];
        let apart = got.iter().zip(&anew).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
        let input = format!("story-230k, position {at}: logits of Sliding(64) against those of the last 64 tokens computed anew");
        let otherwise = format!("they are {apart} apart, and should be between {least} and {most}");
        ensure(&input, (least..=most).contains(&apart), &otherwise)?;
    }
    Ok(())
}

pub fn gpt2_does_not_slide(day: &Day) -> Outcome {
    let (model, tokenizer) = (load("story-gpt2-1m", DType::F32)?, tokenizer()?);
    let cache = (day.new)(CacheKind::Sliding(256), model.config().num_hidden_layers);
    let got = (day.generate)(&*model, &tokenizer, &[5, 6], options(&*model, 3, 64), cache);
    refused("story-gpt2-1m with a sliding cache", ids(got), &["RoPE"])?;
    // What does slide, slides from the first token on.
    let model = load("story-230k", DType::F32)?;
    let cache = (day.new)(CacheKind::Sliding(8), model.config().num_hidden_layers);
    let got = (day.generate)(&*model, &tokenizer, &[5, 6, 7], options(&*model, 12, 64), cache);
    equal("story-230k, Sliding(8), 12 new tokens: how many", ids(got).map(|ids| ids.len()), &12)
}
