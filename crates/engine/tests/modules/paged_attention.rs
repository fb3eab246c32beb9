//! Attention over a paged cache: the same bits as over one buffer per sequence, without
//! copying anything out of the blocks, and with every bad block table refused.

use crate::common::{device, RandomTensor as _};
use candecode::kit::{Ops, PagedSequence, Pages, SharedOps, View};
use candecode_engine::kernels::{self, bytes_gathered, paged_attention, write_slots};
use candecode_engine::operations::{choose, Kernels};
use candecode_testing::Random;
use candle_core::{DType, Result, Tensor};
use std::sync::Arc;

/// Some sequences in a pool of blocks, and the same keys and values in a buffer for each.
struct Cached {
    k: Tensor,
    v: Tensor,
    pages: Pages,
    buffers: Vec<(Tensor, Tensor)>,
}

/// Returns sequences with these numbers of positions and of new tokens. Their blocks are all over
/// the pool, and the free slots hold NaN, which would reach any result that reads one.
fn cached(
    random: &mut Random,
    block_size: usize,
    width: usize,
    sizes: &[(usize, usize)],
) -> Cached {
    let kv_heads = 1 + random.below(3);
    let needed: Vec<usize> = sizes.iter().map(|(len, _)| len.div_ceil(block_size)).collect();
    let blocks = needed.iter().sum::<usize>() + 3;
    let mut free: Vec<u32> = (0..blocks as u32).collect();
    let pool = || {
        let shape = [blocks, kv_heads, block_size, width];
        Tensor::full(f32::NAN, &shape, &device().unwrap()).unwrap().force_contiguous().unwrap()
    };
    let (k, v) = (pool(), pool());
    let (mut sequences, mut buffers) = (vec![], vec![]);
    for ((len, new), needed) in sizes.iter().copied().zip(needed) {
        let mut table: Vec<u32> = vec![];
        for _ in 0..needed {
            table.push(free.swap_remove(random.below(free.len())));
        }
        let slot = |p: usize| table[p / block_size] * block_size as u32 + (p % block_size) as u32;
        let slots: Vec<u32> = (0..len).map(slot).collect();
        let own = [(); 2].map(|()| random.tensor(&[1, kv_heads, len, width]).unwrap());
        let [own_k, own_v] = own;
        write_slots(&k, &own_k, &slots).unwrap();
        write_slots(&v, &own_v, &slots).unwrap();
        buffers.push((own_k, own_v));
        sequences.push(PagedSequence { block_table: table, len, new });
    }
    Cached { k, v, pages: Pages { block_size, sequences }, buffers }
}

/// Returns queries for all new tokens, `(1, H, N, D)`.
fn queries(random: &mut Random, of: &Cached) -> Tensor {
    let heads = of.k.dim(1).unwrap() * (1 + random.below(3));
    random.tensor(&[1, heads, of.pages.num_new(), of.k.dim(3).unwrap()]).unwrap()
}

/// Returns the attention over the buffers, sequence by sequence.
fn from_buffers(of: &Cached, q: &Tensor) -> Tensor {
    let mut first = 0;
    let mut parts = vec![];
    for (sequence, (k, v)) in of.pages.sequences.iter().zip(&of.buffers) {
        let q = q.narrow(2, first, sequence.new).unwrap();
        parts.push(kernels::attention(&q, k, v, None).unwrap());
        first += sequence.new;
    }
    Tensor::cat(&parts, 2).unwrap()
}

fn bits(of: &Tensor) -> Vec<u32> {
    let numbers = of.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

fn view(of: &Cached) -> View {
    let pages = Some(Arc::new(of.pages.clone()));
    View { k: of.k.clone(), v: of.v.clone(), pages }
}

#[test]
fn blocks_and_buffers_give_bit_identical_attention() {
    let mut random = Random::new(31);
    for round in 0..60 {
        let block_size = [1, 2, 5, 8, 16, 64, 300][round % 7];
        let width = [32, 64, 33, 20, 80][round % 5];
        let sizes: Vec<(usize, usize)> = (0..1 + random.below(5))
            .map(|_| {
                let new = [1, 1, 1, 2, 7, 40][random.below(6)];
                (new + random.below(150), new)
            })
            .collect();
        let of = cached(&mut random, block_size, width, &sizes);
        let q = queries(&mut random, &of);
        let paged = paged_attention(&q, &of.k, &of.v, &of.pages).unwrap();
        assert_eq!(
            bits(&paged),
            bits(&from_buffers(&of, &q)),
            "round {round}: {sizes:?}, blocks of {block_size}, width {width}"
        );
    }
}

#[test]
fn every_implementation_attends_over_blocks() {
    let mut random = Random::new(32);
    let of = cached(&mut random, 16, 32, &[(20, 1), (45, 12), (16, 16), (1, 1)]);
    let q = queries(&mut random, &of);
    let wanted = from_buffers(&of, &q);
    for kernels in [Kernels::Plain, Kernels::Candle, Kernels::Fast, Kernels::Mine] {
        let ops = choose(Some(kernels), &device().unwrap());
        let got = ops.attend(&q, &view(&of), None).unwrap();
        assert_eq!(got.dims(), q.dims());
        let apart = (got - &wanted).unwrap().abs().unwrap().flatten_all().unwrap();
        assert!(apart.max(0).unwrap().to_scalar::<f32>().unwrap() < 1e-5, "{kernels}");
    }
}

#[test]
fn batched_and_packed_queries_give_the_same_attention() {
    let mut random = Random::new(33);
    let of = cached(&mut random, 4, 16, &[(9, 3), (3, 3)]);
    let line = queries(&mut random, &of); // (1, H, 2 * 3, D)
    let heads = line.dim(1).unwrap();
    let rows = line.reshape((heads, 2, 3, 16)).unwrap().transpose(0, 1).unwrap();
    let ops = choose(Some(Kernels::Fast), &device().unwrap());
    let by_row = ops.attend(&rows.contiguous().unwrap(), &view(&of), None).unwrap();
    let in_line = ops.attend(&line, &view(&of), None).unwrap();
    let in_line = in_line.reshape((heads, 2, 3, 16)).unwrap().transpose(0, 1).unwrap();
    assert_eq!(bits(&by_row), bits(&in_line));
    let mask = Tensor::ones((2, 1, 3, 9), DType::U8, &device().unwrap()).unwrap();
    let error = ops.attend(&rows, &view(&of), Some(&mask)).unwrap_err().to_string();
    assert!(error.contains("takes no mask"), "{error}");
}

/// Returns operations that gather each sequence's blocks before they attend.
fn gathering() -> SharedOps {
    choose(Some(Kernels::Candle), &device().unwrap())
}

/// Returns the bytes that a decoding step of three sequences copies out of their blocks.
fn gathered_by(ops: &dyn Ops) -> u64 {
    let mut random = Random::new(34);
    let of = cached(&mut random, 16, 32, &[(100, 1), (30, 1), (64, 1)]);
    let q = queries(&mut random, &of);
    let before = bytes_gathered();
    ops.attend(&q, &view(&of), None).unwrap();
    bytes_gathered() - before
}

#[test]
fn decoding_copies_no_cached_bytes() {
    assert_eq!(gathered_by(&*choose(Some(Kernels::Fast), &device().unwrap())), 0);
}

/// The kernels, but with each sequence's blocks gathered into a buffer first.
#[derive(Debug)]
struct Gathering(SharedOps);

impl Ops for Gathering {
    fn rest(&self) -> &dyn Ops {
        &*self.0
    }

    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        gathering().attend(q, kv, mask)
    }

    fn describe(&self, cpu: bool) -> String {
        self.0.describe(cpu)
    }
}

#[test]
fn a_gather_is_counted() {
    let fast = choose(Some(Kernels::Fast), &device().unwrap());
    let mut random = Random::new(34);
    let of = cached(&mut random, 16, 32, &[(100, 1), (30, 1), (64, 1)]);
    // Whole blocks: 7, 2 and 4 of them, of keys and of values.
    let block = of.k.dim(1).unwrap() * 16 * 32 * size_of::<f32>();
    assert_eq!(gathered_by(&Gathering(fast)), 2 * (7 + 2 + 4) * block as u64);
}

/// Returns the message of a refused call.
fn refused(of: &Cached, change: impl FnOnce(&mut Pages)) -> String {
    let q = Random::new(35).tensor(&[1, of.k.dim(1).unwrap(), of.pages.num_new(), 8]).unwrap();
    let mut pages = of.pages.clone();
    change(&mut pages);
    let view = View { pages: Some(Arc::new(pages.clone())), ..view(of) };
    let by_kernel = paged_attention(&q, &of.k, &of.v, &pages).unwrap_err().to_string();
    let by_gather = gathering().attend(&q, &view, None).unwrap_err().to_string();
    let first_line = |text: &str| text.lines().next().map(str::to_string); // no backtrace
    assert_eq!(first_line(&by_kernel), first_line(&by_gather));
    by_kernel
}

#[test]
fn invalid_block_tables_are_refused() {
    let of = cached(&mut Random::new(36), 4, 8, &[(9, 1), (6, 2)]);
    let text = refused(&of, |pages| pages.sequences[1].block_table[0] = 8);
    assert!(text.contains("block 8 of sequence 1 is past the pool of 8"), "{text}");
    let text = refused(&of, |pages| pages.sequences[0].block_table[2] = u32::MAX);
    assert!(text.contains("of sequence 0 is past the pool"), "{text}");
    let text = refused(&of, |pages| pages.sequences[0].block_table.truncate(2));
    assert!(text.contains("need 3 blocks of 4; its block table has 2"), "{text}");
    let text = refused(&of, |pages| pages.sequences[0].len = usize::MAX);
    assert!(text.contains("its block table has 3"), "{text}");
    let text = refused(&of, |pages| pages.sequences[1].new = usize::MAX);
    assert!(text.contains("new tokens of 6"), "{text}");
    let text = refused(&of, |pages| pages.sequences[1].new = 3);
    assert!(text.contains("for 4 new tokens"), "{text}");
    let text = refused(&of, |pages| pages.block_size = 0);
    assert!(text.contains("in blocks of 0"), "{text}");
    let text = refused(&of, |pages| pages.block_size = 5);
    assert!(text.contains("in blocks of 5"), "{text}");
    // More of a table than is needed may hold anything.
    let mut pages = of.pages.clone();
    pages.sequences[0].block_table.push(u32::MAX);
    let q = Tensor::ones((1, of.k.dim(1).unwrap(), 3, 8), DType::F32, &device().unwrap()).unwrap();
    paged_attention(&q, &of.k, &of.v, &pages).unwrap();
    // No blocks, and no tokens.
    let none = Pages { block_size: 4, sequences: vec![] };
    let pool = Tensor::zeros((0, 1, 4, 8), DType::F32, &device().unwrap()).unwrap();
    let q = Tensor::zeros((1, 2, 0, 8), DType::F32, &device().unwrap()).unwrap();
    assert_eq!(paged_attention(&q, &pool, &pool, &none).unwrap().dims(), [1, 2, 0, 8]);
}

#[test]
fn tokens_are_written_to_their_slots() {
    for dtype in [DType::F32, DType::BF16] {
        let mut random = Random::new(37);
        let cpu = device().unwrap();
        let pool = Tensor::zeros((3, 2, 4, 5), dtype, &cpu).unwrap().force_contiguous().unwrap();
        let new = random.tensor(&[1, 4, 2, 5]).unwrap().to_dtype(dtype).unwrap();
        let new = new.transpose(1, 2).unwrap(); // (1, 2, 4, 5), not contiguous
        write_slots(&pool, &new, &[11, 0, 6, 5]).unwrap();
        let at = |of: &Tensor, i: usize, j: usize, k: usize| -> Vec<f32> {
            let row = of.narrow(0, i, 1).unwrap().narrow(1, j, 1).unwrap().narrow(2, k, 1).unwrap();
            row.flatten_all().unwrap().to_dtype(DType::F32).unwrap().to_vec1().unwrap()
        };
        for head in 0..2 {
            for (token, (block, slot)) in [(2, 3), (0, 0), (1, 2), (1, 1)].into_iter().enumerate() {
                assert_eq!(at(&pool, block, head, slot), at(&new, 0, head, token), "{dtype:?}");
            }
            assert_eq!(at(&pool, 0, head, 1), [0.0; 5]);
        }
        for (slots, says) in [
            (&[0, 1, 2, 12][..], "slot 12 is past the pool of 3 blocks of 4"),
            (&[0, 1, 2], "for 3 slots"),
        ] {
            let before = pool.to_dtype(DType::F32).unwrap();
            let error = write_slots(&pool, &new, slots).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(bits(&pool.to_dtype(DType::F32).unwrap()), bits(&before));
        }
        write_slots(&pool, &new.narrow(2, 0, 0).unwrap(), &[]).unwrap();
    }
}
