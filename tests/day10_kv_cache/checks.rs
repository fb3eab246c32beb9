//! Day 10's checks: the KV cache.

#[path = "../frame/mod.rs"]
mod frame;
mod measure;

#[cfg(not(feature = "mine"))]
use candecode::day10_kv_cache;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day10_kv_cache.rs"]
mod day10_kv_cache;

use candecode::kit::panics::Unwritten;
use candecode::kit::{
    named, Batch, Cache, Logits, Model, ModelConfig, NoCache, PastContext, Request, Step, Token,
    Tokenizer, View,
};
use candecode_engine::CacheConfig;
use candle_core::{bail, DType, Device, Error, IndexOp, Result, Storage, Tensor, Var};
use frame::{
    bits_equal, close, device, ensure, equal, equal_tokens, feed, golden, golden_json, marked,
    model_of, models_dir, refused, rows, tokenizer, Keep, Likely, Outcome, Random, Rows, Witness,
    LAYERS,
};
use std::cell::Cell;

/// Signature of the generation loop.
pub type Generate = for<'a> fn(
    &'a dyn Model,
    &'a Tokenizer,
    Request<'a>,
    Box<dyn Cache + 'a>,
) -> Result<Vec<Token>>;

/// One call of `Cached::logits`: the tokens, and how many trailing positions to return logits for.
pub type Call = (Vec<u32>, usize);

/// The answer to one call: the logits, and the total number of positions computed so far.
pub struct Answer {
    pub logits: Result<Vec<Vec<f32>>>,
    pub computed: usize,
}

/// Runs a series of `logits` calls on one `Cached`.
pub type Ask = for<'a> fn(&'a dyn Model, Box<dyn Cache + 'a>, &[Call]) -> Vec<Answer>;

/// A cache that lets the checks inspect its contents.
pub trait Held: Cache {
    /// Returns a layer's live positions. None if there are none.
    fn held(&self, layer: usize) -> Result<Option<View>>;
}

/// A cache together with the function that inspects it.
pub struct Seen<C> {
    pub cache: C,
    pub held: fn(&C, usize) -> Result<Option<View>>,
}

impl<C: Cache> Cache for Seen<C> {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        self.cache.append(layer, k, v)
    }

    fn len(&self) -> usize {
        self.cache.len()
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.cache.truncate(len)
    }

    fn num_evicted(&self) -> Option<usize> {
        self.cache.num_evicted()
    }
}

impl<C: Cache> Held for Seen<C> {
    fn held(&self, layer: usize) -> Result<Option<View>> {
        (self.held)(&self.cache, layer)
    }
}

/// The day 10 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub bytes: fn(&ModelConfig, usize, usize, DType) -> usize,
    pub concat: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub write_at: fn(&Tensor, &Tensor, usize) -> Result<Tensor>,
    pub new: fn(CacheConfig, usize) -> Box<dyn Held>,
    pub logits: Ask,
    pub generate: Generate,
    pub pick_cache: fn(&[&[u32]], &[u32]) -> Option<usize>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use candecode_engine::CacheConfig;
        use $($path)::+ as code;
        crate::Day {
            bytes: code::cache_bytes,
            concat: code::concat,
            write_at: code::write_at,
            new: |kind, layers| match kind {
                CacheConfig::Dynamic => Box::new(crate::Seen {
                    cache: code::DynamicCache::new(layers),
                    held: |cache, layer| cache.layers.held(layer),
                }),
                CacheConfig::Static(capacity) => Box::new(crate::Seen {
                    cache: code::StaticCache::new(layers, capacity),
                    held: |cache, layer| cache.layers.held(layer),
                }),
                CacheConfig::Sliding(window) => Box::new(crate::Seen {
                    cache: code::SlidingCache::new(layers, window),
                    held: |cache, layer| cache.layers.held(layer),
                }),
                CacheConfig::Paged { .. } => unreachable!("paged caches are checked on day 21"),
            },
            logits: |model, cache, calls| {
                let mut cached = code::Cached::new(model, cache);
                let mut answers = Vec::new();
                for (tokens, n) in calls {
                    let logits = cached.logits(tokens, *n);
                    answers.push(crate::Answer { logits, computed: cached.computed });
                }
                answers
            },
            generate: |model, tokenizer, request, cache| {
                let cached = code::Cached::new(model, cache);
                code::generate_cached(cached, tokenizer, request)?.take(1000).collect()
            },
            pick_cache: code::pick_cache,
        }
    }};
}

frame::checks! {
    day10_kv_cache:
    10.1: memory_by_hand, the_formula_matches_the_bytes_a_model_caches;
    10.2: growing_by_hand, rows_can_be_selected_after_growing,
        an_append_copies_the_old_positions_once;
    10.3: appending_by_hand, strided_keys_and_values_are_stored_contiguously,
        len_grows_only_with_the_last_layer, pieces_equal_the_whole, logits_equal_transformers;
    10.4: only_new_tokens_are_fed, what_differs_is_forgotten,
        the_last_token_is_fed_even_if_it_is_cached, logits_are_returned_for_the_last_n_tokens,
        without_a_cache_every_token_is_fed, calls_in_any_order_reuse_the_common_prefix,
        no_logits_of_nothing, after_an_error_the_whole_text_is_recomputed;
    10.5: cached_equals_uncached, processors_and_the_sampler_choose_the_token,
        a_moving_window_generates_past_the_context,
        a_10_token_prompt_and_20_new_compute_29_positions, the_loop_ends, tokens_equal_transformers;
    10.6: writing_in_place_by_hand, writing_strided_positions;
    10.7: appending_in_place, later_appends_stay_in_place,
        a_full_static_cache_refuses_more_positions, tokens_from_a_static_cache_equal_transformers,
        half_precision_stays_near;
    10.8: truncate_keeps_the_first_positions, an_emptied_cache_can_be_refilled,
        any_order_of_operations, a_moving_window_truncates_the_cache;
    10.9: picking_a_cache_by_hand, pick_cache_minimizes_computed_positions;
    10.10: sliding_by_hand, a_sliding_sequence_sees_only_its_last_tokens,
        sliding_equals_a_banded_mask, sliding_tokens_equal_transformers, gpt2_does_not_slide;
    10.11: a_sliding_cache_cannot_be_shortened_after_it_evicts,
        a_cache_that_has_evicted_can_only_be_extended;
    measure: measure::halves;
}

/// Checks that every layer of the cache holds exactly these positions.
fn holds(input: &str, cache: &dyn Held, rows: &Rows) -> Outcome {
    let held = |layer| {
        cache.held(layer)?.ok_or(Error::Msg(format!("layer {layer} holds no live positions")))
    };
    frame::holds(input, cache.len(), held, rows)
}

/// The two kinds that never evict a position.
const KINDS: [CacheConfig; 2] = [CacheConfig::Dynamic, CacheConfig::Static(40)];

fn config(name: &str) -> Result<ModelConfig> {
    candecode_formats::read_config(&models_dir()?.join(name))
        .map_err(|e| Error::Msg(format!("{e:#}")))
}

fn memory_by_hand(day: &Day) -> Outcome {
    // 6 layers, 2 key/value heads of 32 (6 query heads): 2 · 6 · 2 · 32 · 4 bytes.
    let bytes = (day.bytes)(&config("story-3m")?, 1, 1, DType::F32);
    equal("story-3m, 1 row, 1 position, f32: bytes", Ok(bytes), &3_072)
        .likely("count keys and values, every layer, and only the key/value heads")?;
    let bytes = (day.bytes)(&config("story-3m")?, 4, 512, DType::BF16);
    equal("story-3m, 4 rows, 512 positions, bf16: bytes", Ok(bytes), &3_145_728)?;
    // 4 layers, 4 heads of 32: 2 · 4 · 4 · 32 · 4 · 256.
    let bytes = (day.bytes)(&config("story-gpt2-1m")?, 1, 256, DType::F32);
    equal("story-gpt2-1m, 1 row, 256 positions, f32: bytes", Ok(bytes), &1_048_576)?;
    // Qwen3-0.6B: heads of 128, though 1,024 / 16 is 64. 2 · 28 layers · 8 heads · 128 · 2 bytes.
    let qwen3 = ModelConfig {
        hidden_size: 1024,
        num_hidden_layers: 28,
        num_attention_heads: 16,
        num_key_value_heads: 8,
        head_dim: 128,
        ..config("story-3m")?
    };
    let bytes = (day.bytes)(&qwen3, 1, 1, DType::BF16);
    let input = "Qwen3-0.6B (28 layers, 8 key/value heads, head_dim 128, hidden size 1024, 16 \
        query heads), 1 row, 1 position, bf16: bytes";
    equal(input, Ok(bytes), &114_688)
}

fn the_formula_matches_the_bytes_a_model_caches(day: &Day) -> Outcome {
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        let (model, mut cache) = (load(name, DType::F32)?, Keep::default());
        model.forward(&Step::new(&*model, &[5, 6, 7, 8, 9], 0)?, &mut cache)?;
        let size = |layer| -> Result<usize> {
            let View { k, v, .. } = cache.layer(layer)?;
            Ok(4 * (k.elem_count() + v.elem_count()))
        };
        let want: Result<usize> = (0..model.config().num_hidden_layers).map(size).sum();
        let got = (day.bytes)(model.config(), 1, 5, DType::F32);
        equal(&format!("bytes that {name} appends for 5 tokens, f32"), Ok(got), &want?)?;
    }
    Ok(())
}

fn growing_by_hand(day: &Day) -> Outcome {
    let old = Tensor::new(&[[[[1f32, 2.], [3., 4.]], [[5., 6.], [7., 8.]]]], &Device::Cpu)?;
    let new = Tensor::new(&[[[[10f32, 20.]], [[50., 60.]]]], &Device::Cpu)?;
    let want = [[[[1f32, 2.], [3., 4.], [10., 20.]], [[5., 6.], [7., 8.], [50., 60.]]]];
    let input = "old (1, 2 heads, 2 positions, 2), new (1, 2 heads, 1 position, 2)";
    bits_equal(input, (day.concat)(&old, &new), &Tensor::new(&want, &Device::Cpu)?)
        .likely("positions are the third dimension; heads stay as they are")
}

fn an_append_copies_the_old_positions_once(day: &Day) -> Outcome {
    // Counted rather than timed: sorted_nodes lists all tensors between variable and result.
    let (held, new) = (64, 64);
    let old = Var::from_tensor(&Tensor::zeros((1, 2, held, 4), DType::F32, &Device::Cpu)?)?;
    let more = Tensor::ones((1, 2, new, 4), DType::F32, &Device::Cpu)?;
    let all = (day.concat)(old.as_tensor(), &more)?;
    let computed: usize = all.sorted_nodes().iter().map(|tensor| tensor.elem_count()).sum();
    let times = computed / all.elem_count();
    // Other correct solutions use two or three full-size tensors. Copying once per new position
    // would take 48.
    let otherwise = format!(
        "got    {computed} numbers in total, {times} times the size of the result\n  want   the \
            old positions copied once, regardless of how many are new"
    );
    ensure("64 positions appended to 64 others at once", times <= 10, &otherwise)
}

fn writing_in_place_by_hand(day: &Day) -> Outcome {
    let buffer = Tensor::zeros((1, 2, 4, 1), DType::F32, &Device::Cpu)?;
    let two = Tensor::new(&[[[[1f32], [2.]], [[5.], [6.]]]], &Device::Cpu)?;
    let input = "a buffer of 4 positions, 2 heads of width 1: values 1, 2 and 5, 6 written at 0";
    bits_equal(input, (day.write_at)(&buffer, &two, 0), &two).likely(
        "the view ends with the last position written: the rest of the buffer isn't text",
    )?;
    let one = Tensor::new(&[[[[3f32]], [[7.]]]], &Device::Cpu)?;
    let want = Tensor::new(&[[[[1f32], [2.], [3.]], [[5.], [6.], [7.]]]], &Device::Cpu)?;
    let got = (day.write_at)(&buffer, &one, 2);
    bits_equal(&format!("{input}; then values 3 and 7 at 2"), got, &want)?;
    let want =
        Tensor::new(&[[[[1f32], [2.], [3.], [0.]], [[5.], [6.], [7.], [0.]]]], &Device::Cpu)?;
    bits_equal("the buffer itself after that", Ok(buffer), &want)
        .likely("slice_set writes into the buffer; a new tensor would leave the buffer unchanged")
}

fn writing_strided_positions(day: &Day) -> Outcome {
    let mut random = Random::new(103);
    for _ in 0..20 {
        let (b, at, t) = (1 + random.below(3), random.below(4), 1 + random.below(3));
        let buffer = random.tensor(&[b, 2, 8, 3])?;
        let before = buffer.force_contiguous()?;
        let new = random.tensor(&[b, t, 2, 3])?.transpose(1, 2)?;
        let got = (day.write_at)(&buffer, &new, at)?;
        let input = format!("{t} strided positions at {at} of ({b}, 2, 8, 3)");
        equal(&input, Ok(got.dims().to_vec()), &vec![b, 2, at + t, 3])?;
        bits_equal(&format!("{input}: the new ones"), buffer.narrow(2, at, t), &new).likely(
            "slice_set needs contiguous tensors, and the heads of a model aren't contiguous",
        )?;
        let (front, back) = (buffer.narrow(2, 0, at), buffer.narrow(2, at + t, 8 - at - t));
        bits_equal(&format!("{input}: before"), front, &before.narrow(2, 0, at)?)?;
        let want = before.narrow(2, at + t, 8 - at - t)?;
        bits_equal(&format!("{input}: after"), back, &want)?;
    }
    Ok(())
}

fn appending(day: &Day, kind: CacheConfig) -> Outcome {
    let mut cache = (day.new)(kind, LAYERS);
    equal(&format!("{kind:?}: len of an empty cache"), Ok(cache.len()), &0)?;
    feed(&mut *cache, &rows(&[&[1, 2]]))?;
    let all = feed(&mut *cache, &rows(&[&[3]]))?;
    let input = format!("{kind:?}: positions 1, 2 appended to both layers, then 3");
    let want = marked(&rows(&[&[1, 2, 3]]), LAYERS - 1)?;
    bits_equal(&format!("{input}: keys that append returned"), Ok(all.k), &want.0)?;
    bits_equal(&format!("{input}: values that append returned"), Ok(all.v), &want.1)?;
    holds(&input, &*cache, &rows(&[&[1, 2, 3]]))?;
    let (k, v) = marked(&rows(&[&[1]]), 0)?;
    refused("layer 2 of a cache for 2 layers", cache.append(2, &k, &v).map(|_| ()), &[])
}

fn rows_can_be_selected_after_growing(day: &Day) -> Outcome {
    let old = Tensor::arange(0f32, 12., &Device::Cpu)?.reshape((2, 2, 1, 3))?;
    let new = Tensor::arange(12f32, 36., &Device::Cpu)?.reshape((2, 2, 2, 3))?.transpose(1, 2)?;
    let got = (day.concat)(&old, &new)?;
    let rows = Tensor::new(&[1u32, 0], &Device::Cpu)?;
    let want = Tensor::cat(&[&old, &new.contiguous()?], 2)?;
    let input = "old (2, 2, 1, 3), new (2, 2, 2, 3), strided";
    bits_equal(input, got.contiguous(), &want)?;
    equal(&format!("{input}: the result is contiguous"), Ok(got.is_contiguous()), &true)
        .likely("the result must be contiguous: cat of a strided tensor is not")?;
    bits_equal(
        &format!("{input}: index_select of rows 1 and 0"),
        got.index_select(&rows, 0),
        &want.index_select(&rows, 0)?,
    )
}

fn appending_by_hand(day: &Day) -> Outcome {
    appending(day, KINDS[0])
}

fn appending_in_place(day: &Day) -> Outcome {
    appending(day, KINDS[1])
}

fn strided_keys_and_values_are_stored_contiguously(day: &Day) -> Outcome {
    // A model's heads are a transposed view. An empty cache must not store such a view.
    let mut random = Random::new(107);
    let mut cache = (day.new)(CacheConfig::Dynamic, LAYERS);
    let input = "an empty cache, and strided keys and values of shape (2, 2, 5, 3)";
    let mut given = Vec::new();
    for layer in 0..LAYERS {
        let k = random.tensor(&[2, 5, 2, 3])?.transpose(1, 2)?;
        let v = random.tensor(&[2, 5, 2, 3])?.transpose(1, 2)?;
        let all = cache.append(layer, &k, &v)?;
        bits_equal(&format!("{input}: keys that append returns"), Ok(all.k), &k)?;
        bits_equal(&format!("{input}: values that append returns"), Ok(all.v), &v)?;
        given.push((k, v));
    }
    for (layer, (k, v)) in given.iter().enumerate() {
        let Some(held) = cache.held(layer)? else {
            return ensure(input, false, &format!("layer {layer} holds nothing"));
        };
        bits_equal(&format!("{input}: keys stored in layer {layer}"), Ok(held.k.clone()), k)?;
        bits_equal(&format!("{input}: values stored in layer {layer}"), Ok(held.v.clone()), v)?;
        let contiguous = (held.k.is_contiguous(), held.v.is_contiguous());
        equal(
            &format!("{input}: are the stored (keys, values) contiguous?"),
            Ok(contiguous),
            &(true, true),
        )
        .likely("clone() of a view is the same view; make the first append contiguous, too")?;
    }
    Ok(())
}

/// Returns the address of a CPU tensor's first element.
fn address(x: &Tensor) -> Result<usize> {
    let (storage, layout) = x.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => {
            Ok(storage.as_slice::<f32>()?[layout.start_offset()..].as_ptr() as usize)
        }
        _ => bail!("the tensor is not on the CPU"),
    }
}

fn later_appends_stay_in_place(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheConfig::Static(9), LAYERS);
    feed(&mut *cache, &rows(&[&[1, 2], &[11, 12]]))?;
    let first = feed(&mut *cache, &rows(&[&[3], &[13]]))?;
    let at = [address(&first.k)?, address(&first.v)?];
    for next in [4, 5] {
        let all = feed(&mut *cache, &rows(&[&[next], &[next + 10]]))?;
        let input = format!("Static(9), 3 positions and then position {next}");
        let [one, other] = [1, 11].map(|first| (first..first + next).collect::<Vec<u32>>());
        holds(&input, &*cache, &rows(&[&one, &other]))?;
        equal(&format!("{input}: positions returned"), all.k.dim(2), &(next as usize))?;
        let stays = [address(&all.k)?, address(&all.v)?] == at;
        equal(
            &format!("{input}: are keys and values still at the same address?"),
            Ok(stays),
            &true,
        )
        .likely("a static cache writes into its buffer, so that no token needs new memory")?;
    }
    Ok(())
}

fn len_moves(day: &Day, kind: CacheConfig) -> Outcome {
    let mut cache = (day.new)(kind, 3);
    for (positions, want) in [(rows(&[&[1, 2, 3]]), [0, 0, 3]), (rows(&[&[4]]), [3, 3, 4])] {
        let mut lens = Vec::new();
        for layer in 0..3 {
            let (k, v) = marked(&positions, layer)?;
            cache.append(layer, &k, &v)?;
            lens.push(cache.len());
        }
        let input = format!("{kind:?}, 3 layers, 3 positions, then 1: len after each append");
        equal(&input, Ok(lens), &want.to_vec()).likely(
            "a step appends layer by layer, and every layer appends at the same position",
        )?;
    }
    Ok(())
}

fn len_grows_only_with_the_last_layer(day: &Day) -> Outcome {
    len_moves(day, KINDS[0])
}

fn pieces_equal_the_whole(day: &Day) -> Outcome {
    pieces(day, KINDS[0])
}

fn pieces(day: &Day, kind: CacheConfig) -> Outcome {
    let mut random = Random::new(104);
    for _ in 0..6 {
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
            bits_equal(&format!("{input}: keys returned"), Ok(all.k), &want.0)?;
            bits_equal(&format!("{input}: values returned"), Ok(all.v), &want.1)?;
        }
        holds(&input, &*cache, &whole)?;
    }
    Ok(())
}

fn a_full_static_cache_refuses_more_positions(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheConfig::Static(3), LAYERS);
    feed(&mut *cache, &rows(&[&[1, 2]]))?;
    feed(&mut *cache, &rows(&[&[3]]))?;
    holds("Static(3): positions 1, 2, then 3", &*cache, &rows(&[&[1, 2, 3]]))?;
    let got = feed(&mut *cache, &rows(&[&[4]])).map(|_| ());
    refused("Static(3), a fourth position", got, &[])?;
    let got = feed(&mut *(day.new)(CacheConfig::Static(3), LAYERS), &rows(&[&[1, 2, 3, 4]]));
    refused("Static(3), four positions at once", got.map(|_| ()), &[])?;
    let mut cache = (day.new)(CacheConfig::Static(3), 1);
    let (k, v) = marked(&rows(&[&[1, 2, 3]]), 0)?;
    cache.append(0, &k, &v)?;
    let (k, v) = marked(&rows(&[&[4]]), 0)?;
    let input = "Static(3) of one layer, a fourth position";
    refused(input, cache.append(0, &k, &v).map(|_| ()), &[])?;
    equal(&format!("{input}: len afterwards"), Ok(cache.len()), &3)
        .likely("an append that fails adds no position: len grows when everything is written")
}

/// Returns the growing cache, and the static one if its two tasks, which are optional, are written.
fn written(day: &Day) -> Vec<CacheConfig> {
    let append = |kind| feed(&mut *(day.new)(kind, 1), &rows(&[&[1]]));
    let open = |kind| Unwritten::reached_by(|| append(kind)).is_some();
    KINDS.into_iter().filter(|kind| *kind == KINDS[0] || !open(*kind)).collect()
}

fn truncate_keeps_the_first_positions(day: &Day) -> Outcome {
    for kind in written(day) {
        let mut cache = (day.new)(kind, LAYERS);
        feed(&mut *cache, &rows(&[&[1, 2, 3, 4, 5], &[11, 12, 13, 14, 15]]))?;
        cache.truncate(3)?;
        let input = format!("{kind:?}: rows 1 to 5 and 11 to 15, truncated to 3");
        holds(&input, &*cache, &rows(&[&[1, 2, 3], &[11, 12, 13]]))
            .likely("truncate drops the newest positions and keeps the oldest")?;
        feed(&mut *cache, &rows(&[&[6], &[16]]))?;
        let want = rows(&[&[1, 2, 3, 6], &[11, 12, 13, 16]]);
        holds(&format!("{input}, then 6 and 16"), &*cache, &want)?;
        cache.truncate(4)?;
        holds(&format!("{input}, then 6 and 16, truncated to 4"), &*cache, &want)?;
        let input = format!("{kind:?}, 4 positions truncated to 5");
        refused(&input, cache.truncate(5), &[])?;
        equal(&format!("{input}: len afterwards"), Ok(cache.len()), &4)
            .likely("a truncate that fails changes nothing: check before you set len")?;
    }
    Ok(())
}

fn an_emptied_cache_can_be_refilled(day: &Day) -> Outcome {
    for kind in written(day) {
        let mut cache = (day.new)(kind, LAYERS);
        feed(&mut *cache, &rows(&[&[1, 2], &[11, 12]]))?;
        cache.truncate(0)?;
        let input = format!("{kind:?}: two rows of 2 positions, truncated to 0");
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

/// Returns the logits of the last position of `ids`, fed after the positions already in the cache.
fn logits(model: &dyn Model, ids: &[u32], cache: &mut dyn Cache) -> Result<Tensor> {
    let step = Step::new(model, ids, cache.len())?.with_logits(Logits::Last(1));
    model.forward(&step, cache)?.flatten_all()
}

/// Applies one random operation to both `cache` and `plain`, and returns a description of it.
fn operate(random: &mut Random, cache: &mut dyn Held, plain: &mut Rows) -> Result<String> {
    let (b, len) = (plain.len(), plain[0].len());
    if random.below(3) == 0 && len > 0 {
        let keep = random.below(len + 1).max(1);
        plain.iter_mut().for_each(|row| row.truncate(keep));
        cache.truncate(keep)?;
        return Ok(format!("truncate({keep})"));
    }
    let positions = 1 + random.below(2);
    let new: Rows =
        (0..b).map(|_| (0..positions).map(|_| Some(random.below(900) as u32)).collect()).collect();
    plain.iter_mut().zip(&new).for_each(|(row, new)| row.extend(new));
    feed(cache, &new)?;
    Ok(format!("append {positions}"))
}

fn any_order_of_operations(day: &Day) -> Outcome {
    let kinds = written(day);
    for seed in 0..12 {
        let (mut random, kind) = (Random::new(200 + seed), kinds[seed as usize % kinds.len()]);
        let mut cache = (day.new)(kind, LAYERS);
        let mut plain = rows(&[&[1], &[2]]);
        feed(&mut *cache, &plain)?;
        let mut input = format!("{kind:?}: two rows of 1");
        for _ in 0..14 {
            input += &format!(", {}", operate(&mut random, &mut *cache, &mut plain)?);
            holds(&input, &*cache, &plain)?;
        }
    }
    Ok(())
}

/// Returns the most likely token. Ties go to the first. The reader's own version is in day 7.
fn largest(logits: &[f32]) -> Result<u32> {
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.map(|best| best as u32).ok_or(Error::Msg("there are no logits".into()))
}

/// Builds a greedy request that ends only at its token limit.
fn request<'a>(model: &dyn Model, prompt: &[u32], max: usize) -> Request<'a> {
    let mut request = Request::new(model.config(), prompt, max, largest);
    request.eos_token_ids.clear();
    request
}

fn ids(tokens: Result<Vec<Token>>) -> Result<Vec<u32>> {
    Ok(tokens?.iter().map(|token| token.id).collect())
}

/// Computes the logits after each of the last `n` tokens without a cache.
fn anew(model: &Witness, tokens: &[u32], n: usize) -> Result<Vec<Vec<f32>>> {
    let step = Step::new(model, tokens, 0)?.with_logits(Logits::Last(n));
    model.forward(&step, &mut NoCache)?.squeeze(0)?.to_vec2()
}

/// One recorded pass: the `(ids, positions)` it was fed, and the `(token, position)` pairs its last
/// token attended to.
type Asked = (Vec<u32>, Vec<u32>, Vec<(u32, u32)>);

fn passes(model: &Witness) -> Vec<Asked> {
    let passes = model.passes.take();
    passes.into_iter().map(|p| (p.ids.concat(), p.positions.concat(), p.seen.concat())).collect()
}

/// Describes a pass that feeds `tokens` starting at position `from`, with the last token attending
/// to all of them.
fn pass(tokens: &[u32], from: usize) -> Asked {
    let positions = (from as u32..tokens.len() as u32).collect();
    let seen = tokens.iter().copied().zip(0..).collect();
    (tokens[from..].to_vec(), positions, seen)
}

/// Calls `Cached::logits` repeatedly over a model that mixes everything it sees. Checks that each
/// call feeds from the position in `want`, that its logits match those computed without a cache,
/// and that `computed` counts the positions that were fed.
fn calls(day: &Day, what: &str, keep: bool, calls: &[Call], want: &[usize]) -> Outcome {
    let model = Witness::mixing(100, 64, 99);
    let cache: Box<dyn Cache> = if keep { Box::new(Keep::default()) } else { Box::new(NoCache) };
    let answers = (day.logits)(&model, cache, calls);
    let passes = passes(&model);
    let mut computed = 0;
    for (at, ((tokens, n), from)) in calls.iter().zip(want).enumerate() {
        let input = format!("{what}, call {}: logits({tokens:?}, {n})", at + 1);
        let answer = &answers[at];
        if let Err(error) = &answer.logits {
            let error = candecode::kit::error::plain(error);
            return ensure(&input, false, &format!("got    the error: {error}"));
        }
        let asked = format!("{input}: its pass (ids, positions, and what the last one attends to)");
        let got = passes.get(at).cloned().ok_or(Error::Msg("there was no pass".into()));
        equal(&asked, got, &pass(tokens, *from))?;
        let got = answer.logits.as_ref().map(Clone::clone).unwrap_or_default();
        let shown = format!("{input}: number of rows of logits");
        equal(&shown, Ok(got.len()), n)?;
        let want = anew(&Witness::mixing(100, 64, 99), tokens, *n)?;
        for (row, (got, want)) in got.iter().zip(&want).enumerate() {
            let input = format!("{input}: row {row} of the logits");
            let want = Tensor::new(want.as_slice(), &Device::Cpu)?;
            close(&input, Tensor::new(got.as_slice(), &Device::Cpu), &want, 1e-6)?;
        }
        computed += tokens.len() - from;
        equal(&format!("{input}: `computed` afterwards"), Ok(answer.computed), &computed)?;
    }
    Ok(())
}

fn only_new_tokens_are_fed(day: &Day) -> Outcome {
    let list =
        [(vec![11, 12, 13], 1), (vec![11, 12, 13, 14], 1), (vec![11, 12, 13, 14, 15, 16], 1)];
    calls(day, "a sequence that grows", true, &list, &[0, 3, 4])
        .likely("the first new token's position is the number of positions kept")
}

fn what_differs_is_forgotten(day: &Day) -> Outcome {
    let list = [
        (vec![11, 12, 13], 1),
        (vec![11, 12, 13, 14], 1),
        (vec![11, 12, 13, 14, 15], 1),
        (vec![11, 12, 13, 24], 1),         // two are dropped
        (vec![11, 12, 13, 24, 25, 26], 1), // and then extended
        (vec![31, 12, 13, 24, 25, 26], 1), // a different first token: no common prefix
        (vec![12, 13, 24, 25, 26], 1),     // the same tokens, each one position earlier
    ];
    calls(day, "tokens that change", true, &list, &[0, 3, 4, 3, 4, 0, 0])
        .likely("only the longest common prefix of the old and the new tokens can stay")
}

fn the_last_token_is_fed_even_if_it_is_cached(day: &Day) -> Outcome {
    let list = [
        (vec![11, 12, 13, 14], 1),
        (vec![11, 12, 13, 14], 1), // identical
        (vec![11, 12], 1),         // shorter
        (vec![11, 12, 13], 1),
    ];
    calls(day, "tokens that are already cached", true, &list, &[0, 3, 1, 2])
        .likely("logits come only from a pass, so at least one token must be fed")
}

fn logits_are_returned_for_the_last_n_tokens(day: &Day) -> Outcome {
    let list = [
        (vec![11, 12, 13, 14], 4),
        (vec![11, 12, 13, 14, 15, 16, 17], 3), // as in verification: three drafted tokens
        (vec![11, 12, 13, 14, 15, 26], 1),     // two of them rejected
        (vec![11, 12, 13, 14, 15, 26], 5),     // all are cached, but five must be fed again
        (vec![11, 12, 13, 14, 15, 26, 27, 28, 29], 2),
    ];
    calls(day, "several rows of logits", true, &list, &[0, 4, 5, 1, 6])
        .likely("feed at least n tokens, and ask the step for the logits of the last n")
}

fn without_a_cache_every_token_is_fed(day: &Day) -> Outcome {
    let list = [(vec![11, 12], 1), (vec![11, 12, 13], 2), (vec![11, 12, 13, 14], 1)];
    calls(day, "NoCache", false, &list, &[0, 0, 0])
        .likely("the cache may hold fewer positions than the last call had tokens: check its len")
}

fn calls_in_any_order_reuse_the_common_prefix(day: &Day) -> Outcome {
    let mut random = Random::new(110);
    for _ in 0..8 {
        let (mut list, mut want) = (Vec::new(), Vec::new());
        let (mut tokens, mut had): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            tokens.truncate(tokens.len() - random.below(4).min(tokens.len()));
            let new = usize::from(tokens.is_empty()) + random.below(4);
            // Few distinct tokens, so that dropped ones sometimes return.
            tokens.extend((0..new).map(|_| random.below(3) as u32));
            if tokens.is_empty() {
                continue;
            }
            let n = 1 + random.below(tokens.len());
            let common = had.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            want.push(common.min(tokens.len() - n));
            list.push((tokens.clone(), n));
            had.clone_from(&tokens);
        }
        calls(day, "random calls", true, &list, &want)?;
    }
    Ok(())
}

fn no_logits_of_nothing(day: &Day) -> Outcome {
    let ask = |tokens: &[u32], n: usize| -> Result<usize> {
        let model = Witness::mixing(100, 8, 9);
        let mut answers = (day.logits)(&model, Box::new(Keep::default()), &[(tokens.to_vec(), n)]);
        Ok(answers.remove(0).logits?.len())
    };
    refused("logits([], 1)", ask(&[], 1), &[])?;
    refused("logits([11, 12], 0)", ask(&[11, 12], 0), &[])?;
    refused("logits([11, 12], 3)", ask(&[11, 12], 3), &[])?;
    refused("9 tokens, a context of 8", ask(&[11; 9], 1), &["context"])?;
    refused("token 100 of a vocabulary of 100", ask(&[100], 1), &[])
}

/// A model whose second pass fails, either before the last layer appends to the cache or after.
struct Faulty {
    model: Witness,
    between_layers: bool,
    asked: Cell<usize>,
}

impl Faulty {
    fn new(between_layers: bool) -> Self {
        Self { model: Witness::mixing(100, 64, 99), between_layers, asked: Cell::new(0) }
    }
}

/// Forwards only the first layer's appends.
struct OneLayer<'a>(&'a mut dyn Cache);

impl Cache for OneLayer<'_> {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        if layer > 0 {
            bail!("a failure between the layers")
        }
        self.0.append(layer, k, v)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.0.truncate(len)
    }
}

impl Model for Faulty {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        self.asked.set(self.asked.get() + 1);
        if self.asked.get() != 2 {
            return self.model.forward(step, cache);
        }
        if self.between_layers {
            return self.model.forward(step, &mut OneLayer(cache));
        }
        self.model.forward(step, cache)?;
        bail!("a failure after the last layer")
    }
}

fn after_an_error_the_whole_text_is_recomputed(day: &Day) -> Outcome {
    for (between_layers, failing, then) in [
        (false, vec![11, 12, 27], vec![11, 12, 13, 14]),
        (true, vec![11, 12, 13, 14, 15], vec![11, 12, 13, 14, 15]),
    ] {
        let model = Faulty::new(between_layers);
        let list = [(vec![11, 12, 13], 1), (failing.clone(), 1), (then.clone(), 1)];
        let mut answers = (day.logits)(&model, Box::new(Keep::default()), &list);
        let place = if between_layers { "between its layers" } else { "after its last layer" };
        let input = format!(
            "logits of [11, 12, 13], then of {failing:?}, which fails {place}, then of {then:?}"
        );
        let last = answers.pop().ok_or(Error::Msg("no answer".into()))?;
        refused(
            &format!("{input}: the second"),
            answers.remove(1).logits.map(|_| ()),
            &["failure"],
        )?;
        if let Err(error) = &last.logits {
            let error = candecode::kit::error::plain(error);
            return ensure(&input, false, &format!("got    the error: {error}"));
        }
        let passes = passes(&model.model);
        let got = passes.last().cloned().ok_or(Error::Msg("there was no pass".into()));
        equal(&format!("{input}: the last pass"), got, &pass(&then, 0))
            .likely("after an error the cache can hold anything: discard all of it")?;
    }
    Ok(())
}

/// Day 7's loop: every step recomputes every position, up to the end of the context.
fn uncached(model: &dyn Model, prompt: &[u32], max: usize) -> Result<Vec<u32>> {
    let mut text = prompt.to_vec();
    while text.len() < prompt.len() + max && text.len() <= model.config().max_position_embeddings {
        let last = logits(model, &text, &mut NoCache)?;
        text.push(largest(&last.to_vec1()?)?);
    }
    Ok(text.split_off(prompt.len()))
}

fn equals_uncached(day: &Day, static_cache: bool) -> Outcome {
    let (tokenizer, mut random) = (tokenizer()?, Random::new(108));
    for _ in 0..6 {
        let (context, vocab) = (8 + random.below(24), 40);
        let (len, max) = (1 + random.below(context), 1 + random.below(30));
        let prompt: Vec<u32> = (0..len).map(|_| random.below(vocab) as u32).collect();
        let kind = if static_cache { CacheConfig::Static(context) } else { CacheConfig::Dynamic };
        let model = Witness::mixing(vocab, context, max);
        let cache = (day.new)(kind, model.layers());
        let got = (day.generate)(&model, &tokenizer, request(&model, &prompt, max), cache);
        let want = uncached(&Witness::mixing(vocab, context, max), &prompt, max)?;
        let input = format!(
            "a model whose token depends on everything it sees, {kind:?}, prompt {prompt:?}, \
                at most {max} new, context {context}"
        );
        equal_tokens(&input, ids(got), &want, &[])?;
    }
    Ok(())
}

fn cached_equals_uncached(day: &Day) -> Outcome {
    equals_uncached(day, false)
}

fn a_moving_window_generates_past_the_context(day: &Day) -> Outcome {
    past_the_context(day, "without a cache", |_| Box::new(NoCache))
}

/// When the window moves, nothing in the cache can stay.
fn a_moving_window_truncates_the_cache(day: &Day) -> Outcome {
    past_the_context(day, "with a cache", |layers| (day.new)(CacheConfig::Dynamic, layers))
}

/// Generates past the context of a model, with the cache that `new_cache` makes for its layers, and
/// compares what each pass saw with the window.
fn past_the_context(day: &Day, with: &str, new_cache: impl Fn(usize) -> Box<dyn Cache>) -> Outcome {
    let tokenizer = tokenizer()?;
    let (context, stride, new) = (8, 3, 14);
    let prompt: Vec<u32> = (1..6).collect();
    let model = Witness::mixing(40, context, new);
    let mut request = request(&model, &prompt, new);
    request.past_context = PastContext::Window { stride };
    let input =
        format!("a context of 8, a window that moves by 3, a prompt of 5, 14 new tokens, {with}");
    let got = match ids((day.generate)(&model, &tokenizer, request, new_cache(model.layers()))) {
        Ok(got) => got,
        Err(error) => {
            let error = candecode::kit::error::plain(&error);
            let passes = model.passes.borrow().len();
            let otherwise = format!("got    the error: {error}, after {passes} successful passes");
            return ensure(&input, false, &otherwise)
                .likely("past the context, the model sees only the window: `Sequence::visible`");
        }
    };
    equal(&format!("{input}: number of new tokens"), Ok(got.len()), &new)?;
    let text = [prompt.clone(), got].concat();
    for (pass, len) in model.passes.borrow().iter().zip(5..) {
        let first = len.max(context).saturating_sub(context).div_ceil(stride) * stride;
        let want: Vec<(u32, u32)> = text[first..len].iter().copied().zip(0..).collect();
        let input = format!("{input}: the (token, position) pairs seen when token {len} is chosen");
        equal(&input, Ok(pass.seen[0].clone()), &want)?;
    }
    Ok(())
}

fn processors_and_the_sampler_choose_the_token(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    // After token i, the model prefers i + 1, and then i + 2.
    let next = |seen: &[(u32, u32)]| -> Vec<f32> {
        let last = seen[seen.len() - 1].0;
        (0..20).map(|id| -f32::from((id + 19 - last % 20) as u8 % 20)).collect()
    };
    let run = |change: fn(&mut Request)| {
        let model = Witness::new(20, 30, 9, next);
        let mut request = request(&model, &[3], 4);
        change(&mut request);
        let cache = (day.new)(CacheConfig::Dynamic, model.layers());
        ids((day.generate)(&model, &tokenizer, request, cache))
    };
    let input = "a model that counts up from 3";
    let got = run(|request| {
        request.processors.push(named("never 5", |_, logits| {
            logits[5] = f32::NEG_INFINITY;
            Ok(())
        }));
    });
    equal_tokens(&format!("{input}, a processor that forbids 5"), got, &[4, 6, 7, 8], &[])
        .likely("`Sequence::choose` runs the request's processors")?;
    let got = run(|request| request.sampler = Box::new(|_| Ok(9)));
    equal_tokens(&format!("{input}, a sampler that draws 9"), got, &[9, 9, 9, 9], &[])
        .likely("the id that `Sequence::choose` returns is the next token")
}

fn a_10_token_prompt_and_20_new_compute_29_positions(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let model = Witness::mixing(40, 64, 20);
    let prompt: Vec<u32> = (1..11).collect();
    let cache = (day.new)(CacheConfig::Dynamic, model.layers());
    (day.generate)(&model, &tokenizer, request(&model, &prompt, 20), cache)?;
    let input = "a prompt of 10 tokens, 20 new, a context that holds them: positions computed";
    equal(input, Ok(model.positions_computed()), &29)
        .likely("10 for the prompt, then 19 times 1: the last token is never fed")
}

fn the_loop_ends(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let run = |max: usize, prompt: &[u32]| {
        let model = Witness::new(9, 8, 30, |seen| {
            let next = (seen[seen.len() - 1].0 + 8) % 9; // down to 0, which is EOS
            (0..9).map(|id| if id == next { 5.0 } else { 0.0 }).collect()
        });
        let mut request = request(&model, prompt, max);
        request.eos_token_ids = vec![0];
        let cache = (day.new)(CacheConfig::Dynamic, model.layers());
        let tokens = (day.generate)(&model, &tokenizer, request, cache)?;
        if let Some(token) = tokens.iter().find(|token| token.row != 0) {
            bail!("a token has row {}, but the request's id is 0", token.row)
        }
        Ok(tokens.iter().map(|token| (token.id, token.finish.is_some())).collect::<Vec<_>>())
    };
    let want = vec![(2, false), (1, false), (0, true)];
    equal("prompt 4, 3; the model counts down to 0, which is EOS", run(9, &[4, 3]), &want)?;
    let want = vec![(2, false), (1, true)];
    equal("prompt 4, 3; at most 2 new", run(2, &[4, 3]), &want)?;
    equal("prompt 4, 3; at most 1 new", run(1, &[4, 3]), &vec![(2, true)])?;
    equal("prompt 4, 3; at most 0 new", run(0, &[4, 3]), &vec![])?;
    let want = vec![(6, false), (5, true)];
    let input = "a prompt of 7, a context of 8, at most 9 new: the context ends the text";
    equal(input, run(9, &[7; 7]), &want)?;
    refused("an empty prompt", run(3, &[]), &["empty"])?;
    refused("a prompt of 9, a context of 8", run(3, &[1; 9]), &["context"])
}

// Tolerance: as on day 5, six layers of f32 sums in a different order, with logits near 10.
const LOGITS: f32 = 1e-4;

fn load(name: &str, dtype: DType) -> Result<Box<dyn Model>> {
    model_of(name, dtype)
}

/// A text from `oracle.json`.
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

fn goldens() -> Result<Vec<Golden>> {
    let json = golden_json("day10")?;
    let cases = json["cached"].as_array().into_iter().flatten();
    Ok(cases.map(|case| read(case, "logits_of_steps")).collect())
}

fn tokens_equal(day: &Day, golden: &Golden, kind: CacheConfig) -> Outcome {
    let (model, tokenizer) = (load(&golden.model, DType::F32)?, tokenizer()?);
    let max = golden.new_ids.len();
    let cache = (day.new)(kind, model.config().num_hidden_layers);
    let got = (day.generate)(&*model, &tokenizer, request(&*model, &golden.prompt, max), cache);
    let input = format!("{}, {kind:?}, {max} new tokens", golden.model);
    equal_tokens(&input, ids(got), &golden.new_ids, &golden.margins)
}

fn tokens_equal_transformers(day: &Day) -> Outcome {
    goldens()?.iter().try_for_each(|golden| tokens_equal(day, golden, CacheConfig::Dynamic))
}

fn tokens_from_a_static_cache_equal_transformers(day: &Day) -> Outcome {
    let golden = goldens()?.swap_remove(0);
    let context = config(&golden.model)?.max_position_embeddings;
    tokens_equal(day, &golden, CacheConfig::Static(context))
}

/// Feeds a golden text token by token after its prompt, and returns the logits from which each new
/// token was chosen.
fn forced(model: &dyn Model, golden: &Golden, cache: &mut dyn Cache) -> Result<Vec<Vec<f32>>> {
    let mut all = vec![logits(model, &golden.prompt, cache)?.to_vec1()?];
    for id in &golden.new_ids[..golden.new_ids.len() - 1] {
        all.push(logits(model, &[*id], cache)?.to_vec1()?);
    }
    Ok(all)
}

fn logits_equal_transformers(day: &Day) -> Outcome {
    for case in goldens()? {
        let model = load(&case.model, DType::F32)?;
        let layers = model.config().num_hidden_layers;
        let want = golden("day10", &format!("cached.{}", case.model))?;
        let all = forced(&*model, &case, &mut *(day.new)(CacheConfig::Dynamic, layers))?;
        for (i, step) in case.at.iter().enumerate() {
            let got = Tensor::new(all[*step].as_slice(), want.device());
            let input = format!("{}: logits of step {step}, with a cache", case.model);
            close(&input, got, &want.i(i)?, LOGITS)?;
        }
    }
    Ok(())
}

/// A cache that stores its numbers in another dtype, to show the effect of half precision.
pub struct Narrow(pub Box<dyn Held>, pub DType);

impl Cache for Narrow {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let all = self.0.append(layer, &k.to_dtype(self.1)?, &v.to_dtype(self.1)?)?;
        Ok(View::new(all.k.to_dtype(k.dtype())?, all.v.to_dtype(v.dtype())?))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.0.truncate(len)
    }
}

/// Checks that two runs over the same text differ by at most `bound`. The error names the first
/// token that would differ.
fn within(input: &str, got: &[Vec<f32>], want: &[Vec<f32>], bound: f32) -> Outcome {
    let apart = |(g, w): (&Vec<f32>, &Vec<f32>)| {
        g.iter().zip(w).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max)
    };
    let most = got.iter().zip(want).map(apart).fold(0.0, f32::max);
    let differs = |(g, w): (&Vec<f32>, &Vec<f32>)| largest(g).ok() != largest(w).ok();
    let first = match got.iter().zip(want).position(differs) {
        Some(at) => format!("the first token that differs is number {at}"),
        None => format!("none of {} tokens differs", want.len()),
    };
    println!("{input}: logits at most {most:.6} apart; {first}");
    ensure(input, most <= bound, &format!("logits are {most} apart, more than {bound}; {first}"))
}

fn half_precision_stays_near(day: &Day) -> Outcome {
    for case in goldens()?.iter().skip(1) {
        let plain = load(&case.model, DType::F32)?;
        let layers = plain.config().num_hidden_layers;
        let new = |kind| (day.new)(kind, layers);
        let f32s = forced(&*plain, case, &mut Keep::default())?;
        for (dtype, bound) in [(DType::BF16, 0.25), (DType::F16, 0.03)] {
            // Only the cache in half precision: 8 or 11 significant bits for each key and value.
            let mut cache = Narrow(new(CacheConfig::Static(100)), dtype);
            let got = forced(&*plain, case, &mut cache)?;
            within(&format!("{}, a cache of {dtype:?}", case.model), &got, &f32s, bound)?;
            let held = cache.0.held(0)?.map(|held| held.k.dtype());
            equal("the type of the stored keys", Ok(held), &Some(dtype))?;
            // Now the weights. On the CPU the activations stay f32 and the files are already bf16.
            // On an accelerator everything is in half precision.
            let model = load(&case.model, dtype)?;
            let bound = if device()?.is_cpu() { 1e-3 } else { 2.0 * bound };
            let got = forced(&*model, case, &mut *new(CacheConfig::Dynamic))?;
            within(&format!("{}, weights of {dtype:?}", case.model), &got, &f32s, bound)?;
        }
    }
    Ok(())
}

/// Checks what a sliding cache still holds after `len` positions.
fn still_holds(input: &str, cache: &dyn Held, len: usize, rows: &Rows) -> Outcome {
    equal(&format!("{input}: len"), Ok(cache.len()), &len)?;
    for layer in 0..LAYERS {
        let (k, v) = marked(rows, layer)?;
        let Some(got) = cache.held(layer)? else {
            return ensure(input, false, &format!("got    nothing, in layer {layer}"));
        };
        bits_equal(&format!("{input}: keys held in layer {layer}"), Ok(got.k), &k)?;
        bits_equal(&format!("{input}: values held in layer {layer}"), Ok(got.v), &v)?;
    }
    Ok(())
}

fn sliding_by_hand(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheConfig::Sliding(4), LAYERS);
    feed(&mut *cache, &rows(&[&[1, 2]]))?;
    feed(&mut *cache, &rows(&[&[3, 4]]))?;
    still_holds("Sliding(4), positions 1 2, then 3 4", &*cache, 4, &rows(&[&[2, 3, 4]]))
        .likely("the oldest positions are dropped")?;
    let mut cache = (day.new)(CacheConfig::Sliding(3), LAYERS);
    let mut record = Vec::new();
    for new in [rows(&[&[1, 2]]), rows(&[&[3]]), rows(&[&[4]]), rows(&[&[5]])] {
        let k = feed(&mut *cache, &new)?.k;
        record.push((k.dim(2)?, cache.len(), cache.num_evicted()));
    }
    let input = "Sliding(3), positions 1 2, then 3, 4, 5: positions returned, len and \
            num_evicted after each append";
    let want = vec![(2, 2, Some(0)), (3, 3, Some(1)), (3, 4, Some(2)), (3, 5, Some(3))];
    equal(input, Ok(record), &want)
        .likely("a token sees 3 positions, itself included: 2 are kept for the next one")?;
    still_holds("what the cache holds afterwards", &*cache, 5, &rows(&[&[4, 5]]))?;
    let evicted =
        [CacheConfig::Dynamic, CacheConfig::Static(9)].map(|kind| (day.new)(kind, 1).num_evicted());
    equal("num_evicted() of a dynamic and of a static cache", Ok(evicted), &[None, None])
}

fn a_sliding_cache_cannot_be_shortened_after_it_evicts(day: &Day) -> Outcome {
    let mut cache = (day.new)(CacheConfig::Sliding(4), LAYERS);
    feed(&mut *cache, &rows(&[&[1, 2, 3]]))?;
    cache.truncate(2)?;
    holds(
        "Sliding(4), 3 positions, truncated to 2: nothing has been evicted yet",
        &*cache,
        &rows(&[&[1, 2]]),
    )?;
    feed(&mut *cache, &rows(&[&[5, 6]]))?;
    equal("Sliding(4), 4 positions: num_evicted", Ok(cache.num_evicted()), &Some(1))?;
    refused("Sliding(4), 4 positions, one evicted, truncated to 3", cache.truncate(3), &[])?;
    refused("Sliding(4), 4 positions, one evicted, truncated to 5", cache.truncate(5), &[])?;
    let input = "Sliding(4), 4 positions, one evicted, truncated to 4";
    if let Err(error) = cache.truncate(4) {
        let error = candecode::kit::error::plain(&error);
        let want = "want   no error: truncate(len()) removes nothing";
        return ensure(input, false, &format!("got    the error: {error}\n{want}"));
    }
    still_holds(input, &*cache, 4, &rows(&[&[2, 5, 6]]))?;
    let got = feed(&mut *(day.new)(CacheConfig::Sliding(4), LAYERS), &rows(&[&[1, 2, 3, 4, 5]]));
    refused("Sliding(4), 5 positions at once", got.map(|_| ()), &[])?;
    let four = feed(&mut *(day.new)(CacheConfig::Sliding(4), LAYERS), &rows(&[&[1, 2, 3, 4]]));
    equal(
        "Sliding(4), 4 positions at once: positions returned",
        four.and_then(|all| all.k.dim(2)),
        &4,
    )
}

fn a_sliding_sequence_sees_only_its_last_tokens(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    for (window, len) in [(6, 3), (6, 6), (2, 1), (9, 8)] {
        let model = Witness::mixing(40, window, 20);
        let prompt: Vec<u32> = (1..=len).collect();
        let cache = (day.new)(CacheConfig::Sliding(window), model.layers());
        let new = ids((day.generate)(&model, &tokenizer, request(&model, &prompt, 20), cache))?;
        let text = [prompt, new].concat();
        for (pass, end) in model.passes.borrow().iter().zip(len as usize..) {
            let want: Vec<(u32, u32)> =
                (end.saturating_sub(window)..end).map(|i| (text[i], i as u32)).collect();
            let input = format!(
                "Sliding({window}), token {end} of a text: the (token, position) \
                pairs seen when it is chosen"
            );
            equal(&input, Ok(pass.seen[0].clone()), &want)
                .likely("positions keep increasing: RoPE was already applied to the cached keys")?;
        }
    }
    Ok(())
}

fn a_cache_that_has_evicted_can_only_be_extended(day: &Day) -> Outcome {
    let run = |then: &[u32], n: usize| -> Result<Vec<(u32, u32)>> {
        let model = Witness::mixing(40, 4, 9);
        let cache = (day.new)(CacheConfig::Sliding(4), model.layers());
        let first = vec![11, 12, 13, 14];
        let list = [(first[..3].to_vec(), 1), (first, 1), (then.to_vec(), n)];
        let mut answers = (day.logits)(&model, cache, &list);
        answers.remove(2).logits?;
        Ok(passes(&model).pop().map(|(_, _, seen)| seen).unwrap_or_default())
    };
    let input = "Sliding(4), fed 11 12 13, then 14: one position is evicted. Then logits of";
    let want = vec![(12, 1), (13, 2), (14, 3), (15, 4)];
    equal(
        &format!("{input} 11 12 13 14 15: what the last token sees"),
        run(&[11, 12, 13, 14, 15], 1),
        &want,
    )?;
    let refuse = |what: &str, then: &[u32], n| {
        refused(&format!("{input} {what}"), run(then, n).map(|_| ()), &[])
            .likely("positions can't be recomputed: the keys and values they attend to are evicted")
    };
    refuse("11 12 13 24", &[11, 12, 13, 24], 1)?;
    refuse("11 12 13", &[11, 12, 13], 1)?;
    refuse("21 12 13 14 15", &[21, 12, 13, 14, 15], 1)?;
    refuse("the last two of 11 12 13 14 15", &[11, 12, 13, 14, 15], 2)
}

fn sliding_golden() -> Result<Golden> {
    Ok(read(&golden_json("day10")?["sliding"], "logits_of_positions"))
}

/// Feeds the golden sliding text token by token through a sliding cache of 64. Returns the logits
/// of every position, starting at the end of the prompt.
fn slid(day: &Day, model: &dyn Model, golden: &Golden) -> Result<Vec<Vec<f32>>> {
    let mut cache = (day.new)(CacheConfig::Sliding(64), model.config().num_hidden_layers);
    let text = [golden.prompt.clone(), golden.new_ids.clone()].concat();
    let (mut held, mut all) = (0, Vec::new());
    for end in golden.prompt.len()..text.len() {
        let step = Step::sliding(model, &text[held..end], held)?.with_logits(Logits::Last(1));
        all.push(model.forward(&step, &mut *cache)?.flatten_all()?.to_vec1()?);
        held = end;
    }
    Ok(all)
}

fn sliding_equals_a_banded_mask(day: &Day) -> Outcome {
    let (case, want) = (sliding_golden()?, golden("day10", "sliding")?);
    let model = load(&case.model, DType::F32)?;
    let all = slid(day, &*model, &case)?;
    for (i, at) in case.at.iter().enumerate().filter(|(_, at)| **at + 1 >= case.prompt.len()) {
        let got = Tensor::new(all[at + 1 - case.prompt.len()].as_slice(), want.device());
        let input = format!(
            "story-230k, Sliding(64), logits of position {at}, against \
            transformers in one pass with a banded mask"
        );
        close(&input, got, &want.i(i)?, LOGITS)?;
    }
    Ok(())
}

fn sliding_tokens_equal_transformers(day: &Day) -> Outcome {
    let (case, tokenizer) = (sliding_golden()?, tokenizer()?);
    let model = load(&case.model, DType::F32)?;
    let cache = (day.new)(CacheConfig::Sliding(64), model.config().num_hidden_layers);
    let most = case.new_ids.len();
    let got = (day.generate)(&*model, &tokenizer, request(&*model, &case.prompt, most), cache);
    let input = format!(
        "story-230k, Sliding(64), {most} new tokens, against transformers with sliding_window 64"
    );
    equal_tokens(&input, ids(got), &case.new_ids, &case.margins)
}

fn gpt2_does_not_slide(day: &Day) -> Outcome {
    let (model, tokenizer) = (load("story-gpt2-1m", DType::F32)?, tokenizer()?);
    let cache = (day.new)(CacheConfig::Sliding(256), model.config().num_hidden_layers);
    let got = (day.generate)(&*model, &tokenizer, request(&*model, &[5, 6], 3), cache);
    refused("story-gpt2-1m with a sliding cache", ids(got), &["RoPE"])?;
    // A RoPE model can use a sliding cache.
    let model = load("story-230k", DType::F32)?;
    let cache = (day.new)(CacheConfig::Sliding(8), model.config().num_hidden_layers);
    let got = (day.generate)(&*model, &tokenizer, request(&*model, &[5, 6, 7], 12), cache);
    equal(
        "story-230k, Sliding(8), 12 new tokens: number of new tokens",
        ids(got).map(|ids| ids.len()),
        &12,
    )
}

fn picking_a_cache_by_hand(day: &Day) -> Outcome {
    let pick = |caches: &[&[u32]], tokens: &[u32], want: Option<usize>, why: &str| {
        let input = format!("pick_cache({caches:?}, {tokens:?})");
        equal(&input, Ok((day.pick_cache)(caches, tokens)), &want).likely(why)
    };
    pick(&[], &[1, 2], None, "there is nothing to pick")?;
    pick(&[&[]], &[1, 2], Some(0), "an empty cache can serve any prompt")?;
    pick(&[&[1, 2], &[1, 2, 3], &[1]], &[1, 2, 3, 4], Some(1), "the longest common prefix")?;
    pick(
        &[&[9, 2, 3, 4], &[1, 9, 3, 4]],
        &[1, 2, 3, 4, 5],
        Some(1),
        "a prefix ends at the first difference",
    )?;
    pick(
        &[&[1, 2, 3, 9], &[1]],
        &[1, 2, 3, 4],
        Some(0),
        "the first saves three positions and forgets one; saving more matters most",
    )?;
    pick(
        &[&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6], &[1, 2, 3, 9]],
        &[1, 2, 3, 7],
        Some(2),
        "all save three positions, and they forget two, three and one",
    )?;
    pick(
        &[&[1, 2, 3, 4, 5], &[1, 2]],
        &[1, 2, 3],
        Some(1),
        "the last token is fed anyway, so both save two positions, and the second forgets none",
    )?;
    pick(
        &[&[1, 2, 3], &[1, 2]],
        &[1, 2, 3],
        Some(1),
        "both save two positions; the first forgets its third, although it's the same token",
    )?;
    pick(
        &[&[7, 8], &[], &[9]],
        &[1],
        Some(1),
        "no cache helps, and using the empty one loses nothing",
    )?;
    pick(&[&[1, 5], &[1, 6]], &[1, 2], Some(0), "ties go to the first")
}

fn pick_cache_minimizes_computed_positions(day: &Day) -> Outcome {
    let mut random = Random::new(111);
    let text = |random: &mut Random, least: usize| -> Vec<u32> {
        // Few distinct tokens, so that texts begin alike.
        (0..least + random.below(6)).map(|_| random.below(2) as u32).collect()
    };
    for _ in 0..60 {
        let caches: Vec<Vec<u32>> =
            (0..1 + random.below(4)).map(|_| text(&mut random, 0)).collect();
        let tokens = text(&mut random, 1);
        // The positions that `Cached::logits` would compute and forget with each cache.
        let mut costs = Vec::new();
        for held in &caches {
            let same = held.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            let fed = (tokens.len() - same).max(1);
            costs.push((fed, held.len() + fed - tokens.len()));
        }
        let want = (0..costs.len()).min_by_key(|i| costs[*i]);
        let slices: Vec<&[u32]> = caches.iter().map(Vec::as_slice).collect();
        let input = format!("pick_cache({caches:?}, {tokens:?})");
        equal(&input, Ok((day.pick_cache)(&slices, &tokens)), &want)
            .likely(&format!("positions (computed, forgotten) with each cache: {costs:?}"))?;
    }
    Ok(())
}
