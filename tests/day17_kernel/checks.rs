//! Day 17's checks: a kernel.
//!
//! None of them measures time. From the results, the order of the work, and the thread and the
//! functions that did it, they detect whether each row is read once, whether there are several
//! running sums and several threads, and whether they are compiled for this CPU.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day17_kernel;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day17_kernel.rs"]
mod day17_kernel;

use candle_core::{DType, Device, Error, Result, Tensor};
use frame::{
    close, device, ensure, equal, refused, refused_calmly, Failure, Kind, Likely, Outcome, Random,
};
use half::bf16;
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The weights that a kernel widened, in order.
pub type Watched = Vec<u32>;

/// The day 17 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub widen: fn(bf16) -> f32,
    pub dot: fn(&[f32], &[f32]) -> f32,
    pub dot_bf16: fn(&[bf16], &[f32]) -> f32,
    pub dot_pair: fn(&[f32], &[f32], &[f32]) -> [f32; 2],
    pub dot_pair_bf16: fn(&[bf16], &[f32], &[f32]) -> [f32; 2],
    pub dot_pair_watched: fn(&[Watching], &[f32], &[f32]) -> [f32; 2],
    pub block_products: fn(&[f32], &[f32], usize, &mut [f32]),
    pub block_products_watched: fn(&[Watching], &[f32], usize, &mut [f32]),
    pub block_rows: fn(usize, usize, usize, usize) -> usize,
    pub serial: usize,
    pub multiply: fn(&[f32], &[f32], usize) -> Vec<f32>,
    pub multiply_bf16: fn(&[bf16], &[f32], usize) -> Vec<f32>,
    pub multiply_met: fn(&[Meeting], &[f32], usize) -> Vec<f32>,
    pub multiply_traced: fn(&[Traced], &[f32], usize) -> Vec<f32>,
    pub vectorized_traced: fn(&[Traced], &[f32], usize, &mut [f32]),
    pub linear: fn(&Tensor, &Tensor) -> Result<Tensor>,
    pub largest: fn(&[f32], &[f32], usize) -> usize,
    pub largest_met: fn(&[Meeting], &[f32], usize) -> usize,
    pub metal_source: fn() -> &'static str,
}

/// A weight that records when it is widened.
#[derive(Clone, Copy)]
pub struct Watching(pub u32);

static WATCHED: Mutex<Watched> = Mutex::new(Vec::new());
/// Held by a check that uses `Watching` weights.
static WATCH: Mutex<()> = Mutex::new(());

impl Watching {
    pub fn noted(self) -> f32 {
        if let Ok(mut watched) = WATCHED.lock() {
            watched.push(self.0);
        }
        1.0
    }
}

/// Returns the weights that `call` widens, in order.
fn watched(call: impl FnOnce()) -> Watched {
    let _held = WATCH.lock();
    let take = || WATCHED.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
    take();
    call();
    take()
}

/// A weight that notes, when it is the first to be widened, the functions in which that happens.
#[derive(Clone, Copy)]
pub struct Traced;

static TRACE: Mutex<Option<String>> = Mutex::new(None);
/// Held by a check that uses `Traced` weights.
static TRACING: Mutex<()> = Mutex::new(());

impl Traced {
    pub fn traced(self) -> f32 {
        if let Ok(mut trace) = TRACE.lock() {
            trace.get_or_insert_with(|| Backtrace::force_capture().to_string());
        }
        1.0
    }
}

/// Returns whether a function of pulp's widens the first weight in `call`, as far as the program
/// still has the names of its functions.
fn goes_through_pulp(call: impl FnOnce()) -> bool {
    let _held = TRACING.lock();
    let take = || TRACE.lock().ok().and_then(|mut trace| trace.take());
    take();
    call();
    take().is_some_and(|trace| trace.contains("pulp::"))
}

/// A weight that waits, when widened, until a second thread arrives or `PATIENCE` has passed.
#[derive(Clone, Copy)]
pub struct Meeting;

/// The threads that arrived, and whether one of them waited without another arriving.
static MET: Mutex<(Vec<ThreadId>, bool)> = Mutex::new((Vec::new(), false));
static COME: Condvar = Condvar::new();
/// Held by a check that uses `Meeting` weights.
static MEET: Mutex<()> = Mutex::new(());
/// How long a thread waits for another. A busy machine may take a while to start one, and
/// single-threaded code waits this long once.
const PATIENCE: Duration = Duration::from_secs(10);

impl Meeting {
    pub fn met(self) -> f32 {
        let Ok(mut met) = MET.lock() else { return 1.0 };
        let me = std::thread::current().id();
        if !met.0.contains(&me) {
            met.0.push(me);
            COME.notify_all();
        }
        let end = Instant::now() + PATIENCE;
        while met.0.len() < 2 && !met.1 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                met.1 = true;
                COME.notify_all();
            }
            match COME.wait_timeout(met, left) {
                Ok((back, _)) => met = back,
                Err(_) => return 1.0,
            }
        }
        1.0
    }
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        #[derive(Clone, Copy)]
        struct Watching(crate::Watching);
        impl code::Stored for Watching {
            fn widen(self) -> f32 {
                self.0.noted()
            }
        }
        #[derive(Clone, Copy)]
        struct Meeting(crate::Meeting);
        impl code::Stored for Meeting {
            fn widen(self) -> f32 {
                self.0.met()
            }
        }
        #[derive(Clone, Copy)]
        struct Traced(crate::Traced);
        impl code::Stored for Traced {
            fn widen(self) -> f32 {
                self.0.traced()
            }
        }
        fn traced(w: &[crate::Traced]) -> Vec<Traced> {
            w.iter().map(|w| Traced(*w)).collect()
        }
        fn watching(row: &[crate::Watching]) -> Vec<Watching> {
            row.iter().map(|w| Watching(*w)).collect()
        }
        crate::Day {
            widen: code::Stored::widen,
            dot: code::dot,
            dot_bf16: code::dot,
            dot_pair: code::dot_pair,
            dot_pair_bf16: code::dot_pair,
            dot_pair_watched: |row, a, b| code::dot_pair(&watching(row), a, b),
            block_products: code::block_products,
            block_products_watched: |rows, x, inner, y| {
                code::block_products(&watching(rows), x, inner, y)
            },
            block_rows: code::block_rows,
            serial: code::SERIAL,
            multiply: code::multiply,
            multiply_bf16: code::multiply,
            multiply_met: |w, x, inner| {
                let w: Vec<Meeting> = w.iter().map(|w| Meeting(*w)).collect();
                code::multiply(&w, x, inner)
            },
            multiply_traced: |w, x, inner| code::multiply(&traced(w), x, inner),
            vectorized_traced: |w, x, inner, y| code::vectorized(&traced(w), x, inner, y),
            linear: code::linear,
            largest: code::largest_product,
            largest_met: |w, x, inner| {
                let w: Vec<Meeting> = w.iter().map(|w| Meeting(*w)).collect();
                code::largest_product(&w, x, inner)
            },
            metal_source: code::metal_source,
        }
    }};
}

frame::checks! {
    day17_kernel:
    17.1: dot_adds_all_products, dot_is_right_at_every_length, dot_has_32_running_sums;
    17.2: widening_moves_the_bits_up, every_bf16_is_widened_exactly, dot_takes_bf16_weights;
    17.3: dot_pair_returns_both_products, dot_pair_equals_two_dot_products,
        each_weight_is_widened_once;
    17.4: products_are_stored_row_by_row, products_are_right_for_any_number_of_vectors,
        each_row_is_finished_before_the_next;
    17.5: blocks_have_the_right_size, blocks_hold_all_rows;
    17.6: products_are_returned_vector_by_vector,
        products_are_right_for_any_number_of_rows_and_vectors, several_threads_share_the_blocks,
        blocks_go_through_vectorized,
        results_are_bit_identical_for_any_thread_count, linear_multiplies_tensors,
        linear_takes_any_shape_stride_and_type, mismatched_operands_are_rejected,
        linear_equals_matmul;
    17.7: the_largest_product_is_found, ties_go_to_the_first_row, several_threads_search;
    17.8: the_shader_equals_a_loop;
}

/// Returns small integers, whose products and sums are exact in f32 in any order.
fn whole(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.below(17) as f32 - 8.0).collect()
}

fn narrow(numbers: &[f32]) -> Vec<bf16> {
    numbers.iter().map(|x| bf16::from_f32(*x)).collect()
}

/// Computes the dot product with a plain loop.
fn loop_dot(row: &[f32], x: &[f32]) -> f32 {
    row.iter().zip(x).map(|(w, x)| w * x).sum()
}

/// Computes the product `(vectors, rows)` with plain loops.
fn loop_product(w: &[f32], x: &[f32], inner: usize) -> Vec<f32> {
    let rows = || w.chunks_exact(inner);
    x.chunks_exact(inner).flat_map(|x| rows().map(|row| loop_dot(row, x))).collect()
}

fn widening_moves_the_bits_up(day: &Day) -> Outcome {
    for (bits, want) in [
        (0x3f80u16, 1.0f32), // sign 0, exponent 127, fraction 0
        (0x4040, 3.0),       // exponent 128, fraction 1.1 in binary
        (0xbf00, -0.5),      // sign 1, exponent 126
        (0x42c8, 100.0),     // exponent 133, fraction 1.1001
        (0x0000, 0.0),
    ] {
        let input = format!("the bf16 with bits {bits:#06x}");
        equal(&input, Ok((day.widen)(bf16::from_bits(bits))), &want)?;
    }
    Ok(())
}

fn every_bf16_is_widened_exactly(day: &Day) -> Outcome {
    // The reference is half's own conversion. Bits are compared, so that -0 differs from 0.
    for bits in 0..=u16::MAX {
        let x = bf16::from_bits(bits);
        if x.is_nan() {
            let input = format!("the NaN with bits {bits:#06x}");
            ensure(&input, (day.widen)(x).is_nan(), "a NaN became a number")?;
            continue;
        }
        let got = Ok(format!("{:#010x}", (day.widen)(x).to_bits()));
        let want = format!("{:#010x}", x.to_f32().to_bits());
        equal(&format!("the bits of the f32 of the bf16 {bits:#06x}"), got, &want)?;
    }
    Ok(())
}

fn dot_adds_all_products(day: &Day) -> Outcome {
    equal("[1, 2, 3] · [4, 5, 6]", Ok((day.dot)(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0])), &32.0)?;
    equal("[] · []", Ok((day.dot)(&[], &[])), &0.0)?;
    // 1 + 2 + … + 100, in three chunks of 32 and four left over.
    let count: Vec<f32> = (1..=100).map(|i| i as f32).collect();
    let ones = vec![1.0; 100];
    equal("[1, 2, …, 100] · [1, 1, …, 1]", Ok((day.dot)(&count, &ones)), &5050.0)
}

fn dot_is_right_at_every_length(day: &Day) -> Outcome {
    let mut random = Random::new(17);
    for len in (0..=130).chain([576, 1536]) {
        let (w, x) = (whole(&mut random, len), whole(&mut random, len));
        let input = format!("{len} whole numbers from -8 to 8");
        equal(&input, Ok((day.dot)(&w, &x)), &loop_dot(&w, &x))?;
    }
    Ok(())
}

fn dot_takes_bf16_weights(day: &Day) -> Outcome {
    let mut random = Random::new(25);
    for len in [0, 1, 31, 32, 100, 576] {
        let (w, x) = (whole(&mut random, len), whole(&mut random, len));
        let input = format!("{len} whole numbers from -8 to 8, in bf16");
        equal(&input, Ok((day.dot_bf16)(&narrow(&w), &x)), &loop_dot(&w, &x))
            .likely("if a check of task 17.1 fails, fix that first")?;
    }
    Ok(())
}

fn dot_has_32_running_sums(day: &Day) -> Outcome {
    // 2^24, then ones. An f32 has 24 bits, so adding 1 to a sum of 2^24 changes nothing: a single
    // running sum would lose all of the ones. With n running sums only one in n is lost, and the
    // rest add up to even numbers, which are exact in any order.
    let mut x = vec![1.0f32; 3200];
    x[0] = 16_777_216.0;
    let ones = vec![1.0; 3200];
    let got = (day.dot)(&ones, &x) - 16_777_216.0;
    let input =
        "2^24 and 3199 ones, times one, minus 2^24: with 32 running sums, 31 of 32 ones count";
    equal(input, Ok(got), &3100.0)
}

fn dot_pair_returns_both_products(day: &Day) -> Outcome {
    let got = (day.dot_pair)(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], &[1.0, 0.0, -1.0]);
    equal("[1, 2, 3] · [4, 5, 6] and · [1, 0, -1]", Ok(got), &[32.0, -2.0])?;
    // Two chunks of 16 and three left over: 1 + … + 35, and 35 - 34 + 33 - … + 1.
    let count: Vec<f32> = (1..=35).map(|i| i as f32).collect();
    let signs: Vec<f32> = (1..=35).map(|i| if i % 2 == 1 { 1.0 } else { -1.0 }).collect();
    let got = (day.dot_pair)(&count, &[1.0; 35], &signs);
    equal("[1, …, 35] · [1, …, 1] and · [1, -1, …, 1]", Ok(got), &[630.0, 18.0])
}

fn dot_pair_equals_two_dot_products(day: &Day) -> Outcome {
    let mut random = Random::new(18);
    for len in (0..=70).chain([576, 1000]) {
        let w = whole(&mut random, len);
        let (a, b) = (whole(&mut random, len), whole(&mut random, len));
        let want = [loop_dot(&w, &a), loop_dot(&w, &b)];
        let input = format!("{len} whole numbers from -8 to 8, and two such vectors");
        equal(&input, Ok((day.dot_pair)(&w, &a, &b)), &want)?;
        let input = format!("{len} such numbers in bf16, and two vectors");
        equal(&input, Ok((day.dot_pair_bf16)(&narrow(&w), &a, &b)), &want)?;
    }
    // Running sums, as in the check of `dot`, with 16 per vector.
    let mut x = vec![1.0f32; 3200];
    x[0] = 16_777_216.0;
    let ones = vec![1.0; 3200];
    let got = (day.dot_pair)(&ones, &x, &x).map(|sum| sum - 16_777_216.0);
    let input =
        "2^24 and 3199 ones, times one, minus 2^24: with 16 running sums, 15 of 16 ones count";
    equal(input, Ok(got), &[3000.0, 3000.0])
}

fn each_weight_is_widened_once(day: &Day) -> Outcome {
    for len in [7, 16, 50] {
        let row: Vec<Watching> = (0..len as u32).map(Watching).collect();
        let seen = watched(|| {
            (day.dot_pair_watched)(&row, &vec![1.0; len], &vec![2.0; len]);
        });
        let times: Vec<usize> =
            (0..len as u32).map(|i| seen.iter().filter(|seen| **seen == i).count()).collect();
        let input = format!("how often each of {len} weights is widened for two vectors");
        equal(&input, Ok(times), &vec![1; len])?;
    }
    Ok(())
}

fn products_are_stored_row_by_row(day: &Day) -> Outcome {
    // Two rows, and three vectors of two numbers.
    let rows = [1.0, 2.0, 3.0, 4.0];
    let x = [1.0, 0.0, 0.0, 1.0, 10.0, 1.0];
    let mut y = [f32::NAN; 6];
    (day.block_products)(&rows, &x, 2, &mut y);
    let input = "rows [1, 2] and [3, 4], vectors [1, 0], [0, 1] and [10, 1]: row by row";
    equal(input, Ok(y), &[1.0, 2.0, 12.0, 3.0, 4.0, 34.0])
}

fn products_are_right_for_any_number_of_vectors(day: &Day) -> Outcome {
    let mut random = Random::new(19);
    for vectors in 1..=9 {
        for rows in [1, 2, 5] {
            let inner = 1 + random.below(50);
            let (w, x) = (whole(&mut random, rows * inner), whole(&mut random, vectors * inner));
            let mut y = vec![f32::NAN; rows * vectors];
            (day.block_products)(&w, &x, inner, &mut y);
            let products = w
                .chunks_exact(inner)
                .flat_map(|row| x.chunks_exact(inner).map(move |x| loop_dot(row, x)));
            let want: Vec<f32> = products.collect();
            let input = format!("{rows} rows of {inner}, {vectors} vectors");
            equal(&input, Ok(y), &want)?;
        }
    }
    Ok(())
}

fn each_row_is_finished_before_the_next(day: &Day) -> Outcome {
    // Weight i is at index i, in 3 rows of 4.
    let rows: Vec<Watching> = (0..12).map(Watching).collect();
    let mut y = vec![0.0; 3 * 5];
    let seen = watched(|| (day.block_products_watched)(&rows, &[1.0; 20], 4, &mut y));
    let mut order: Vec<u32> = seen.iter().map(|place| place / 4).collect();
    order.dedup();
    let input = "5 vectors: the order in which rows are read";
    equal(input, Ok(order), &vec![0, 1, 2])?;
    let often = seen.iter().filter(|place| **place == 0).count();
    // Handling more than two at a time is also correct.
    equal("5 vectors, two at a time: is a weight widened at most 3 times?", Ok(often <= 3), &true)
}

fn blocks_have_the_right_size(day: &Day) -> Outcome {
    for (rows, inner, vectors, threads, want, why) in [
        (49152, 576, 1, 2, 6144, "8 blocks for 2 threads"),
        (49152, 576, 1, 1, 49152, "one thread needs one block"),
        (1000, 576, 1, 3, 84, "12 blocks: 11 of 84 rows, and one of 76"),
        (30, 20, 4, 8, 30, "2400 multiply-adds are too few to share"),
        (64, 1024, 1, 4, 4, "65536 multiply-adds are enough"),
        (63, 1024, 1, 4, 63, "64512 are not"),
        (16, 256, 16, 2, 2, "vectors count, too: 65536 multiply-adds"),
        (3, 100_000, 1, 4, 1, "fewer rows than blocks: one each"),
        (0, 576, 1, 2, 1, "no rows, but a block never has 0"),
        (0, 576, 1, 1, 1, "no rows and one thread, and still not 0"),
    ] {
        let input = format!("{rows} rows of {inner}, {vectors} vectors, {threads} threads ({why})");
        equal(&input, Ok((day.block_rows)(rows, inner, vectors, threads)), &want)?;
    }
    Ok(())
}

fn blocks_hold_all_rows(day: &Day) -> Outcome {
    let mut random = Random::new(20);
    for _ in 0..300 {
        let (rows, inner) = (1 + random.below(5000), 1 + random.below(2000));
        let (vectors, threads) = (1 + random.below(9), 1 + random.below(16));
        let size = (day.block_rows)(rows, inner, vectors, threads);
        let input = format!("{rows} rows of {inner}, {vectors} vectors, {threads} threads: {size}");
        ensure(&input, size > 0, "a block has no rows")?;
        let blocks = rows.div_ceil(size);
        ensure(&input, blocks <= 4 * threads, "there are more than four blocks per thread")?;
        let shared = threads > 1 && rows >= threads && rows * inner * vectors >= day.serial;
        ensure(&input, !shared || blocks >= threads, "some threads get no block")?;
    }
    Ok(())
}

fn products_are_returned_vector_by_vector(day: &Day) -> Outcome {
    let w = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // three rows of two
    let input = "rows [1, 2], [3, 4] and [5, 6], the vector [1, 10]";
    equal(input, Ok((day.multiply)(&w, &[1.0, 10.0], 2)), &vec![21.0, 43.0, 65.0])?;
    let input = "rows [1, 2], [3, 4] and [5, 6], vectors [1, 10] and [1, 0]: vector by vector";
    let want = vec![21.0, 43.0, 65.0, 1.0, 3.0, 5.0];
    equal(input, Ok((day.multiply)(&w, &[1.0, 10.0, 1.0, 0.0], 2)), &want)?;
    equal("no rows, one vector of two", Ok((day.multiply)(&[], &[1.0, 2.0], 2)), &vec![])?;
    equal("three rows of two, no vector", Ok((day.multiply)(&w, &[], 2)), &vec![])
}

fn products_are_right_for_any_number_of_rows_and_vectors(day: &Day) -> Outcome {
    let mut random = Random::new(21);
    for (rows, inner, vectors) in [
        (1, 1, 1),
        (7, 33, 3),
        (1000, 70, 1),
        (1000, 70, 2),
        (301, 97, 5),
        (130, 576, 8),
        (3, 30_000, 1),
    ] {
        let (w, x) = (whole(&mut random, rows * inner), whole(&mut random, vectors * inner));
        let want = loop_product(&w, &x, inner);
        let input = format!("{rows} rows of {inner}, {vectors} vectors");
        let got = (day.multiply)(&w, &x, inner);
        same(&input, &got, &want, rows)?;
        let got = (day.multiply_bf16)(&narrow(&w), &x, inner);
        same(&format!("{input}, in bf16"), &got, &want, rows)?;
    }
    Ok(())
}

/// Compares two products, and reports only the first number that differs.
fn same(input: &str, got: &[f32], want: &[f32], rows: usize) -> Outcome {
    equal(&format!("{input}: number of products"), Ok(got.len()), &want.len())?;
    let differs = |at: &usize| got[*at] != want[*at];
    match (0..want.len()).find(differs) {
        None => Ok(()),
        Some(at) => {
            let (vector, row) = (at / rows, at % rows);
            let right = (0..want.len()).filter(|at| !differs(at)).count();
            let input = format!("{input}: vector {vector}, row {row}; {right} products are right");
            equal(&input, Ok(got[at]), &want[at])
        }
    }
}

/// Runs `call` in a pool with this many threads.
fn with_threads<T: Send>(threads: usize, call: impl FnOnce() -> T + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| Error::Msg(format!("no threads: {e}")))?;
    Ok(pool.install(call))
}

fn several_threads_share_the_blocks(day: &Day) -> Outcome {
    let _held = MEET.lock();
    if let Ok(mut met) = MET.lock() {
        *met = (vec![], false);
    }
    // Large enough to be shared under any rule. Each thread waits at its first weight for a second
    // thread.
    let w = vec![Meeting; 70_000 * 16];
    let multiply = day.multiply_met;
    with_threads(3, || multiply(&w, &[1.0; 32], 16))?;
    let (came, in_vain) = MET.lock().map(|met| (met.0.len(), met.1)).unwrap_or((0, true));
    let input = "70000 rows of 16, two vectors, in a pool of 3 threads: did a second thread help?";
    equal(input, Ok(came >= 2), &true)?;
    // Each thread waited inside its first product for another thread to be inside one, too.
    let input = "70000 rows of 16, two vectors, in a pool of 3 threads: did two compute at once?";
    equal(input, Ok(!in_vain), &true).likely(
        "several threads took part, but one at a time: is there a lock around the products?",
    )
}

fn blocks_go_through_vectorized(day: &Day) -> Outcome {
    let (w, x) = ([Traced; 3], [1.0; 3]);
    let dispatched = goes_through_pulp(|| drop((day.multiply_traced)(&w, &x, 3)));
    // Where the given function shows no trace of pulp, the reader's doesn't, either.
    let shows = goes_through_pulp(|| (day.vectorized_traced)(&w, &x, 3, &mut [0.0]));
    let input = "one row of 3, one vector: is block_products called through vectorized?";
    equal(input, Ok(dispatched || !shows), &true)
        .likely("without it, the loops are compiled for the oldest CPU that the program supports")
}

fn results_are_bit_identical_for_any_thread_count(day: &Day) -> Outcome {
    let mut random = Random::new(22);
    // Several vectors, one vector as in decoding, fewer rows than threads, one long row, and a
    // small product.
    for (rows, inner, vectors) in
        [(333, 130, 3), (1100, 70, 1), (2, 40_001, 1), (1, 70_000, 2), (9, 33, 5)]
    {
        let w = random.tensor(&[rows * inner])?.to_vec1::<f32>()?;
        let x = random.tensor(&[vectors * inner])?.to_vec1::<f32>()?;
        let half = narrow(&w);
        let (multiply, multiply_bf16) = (day.multiply, day.multiply_bf16);
        let one = with_threads(1, || multiply(&w, &x, inner))?;
        let half_one = with_threads(1, || multiply_bf16(&half, &x, inner))?;
        for threads in [2, 3, 7] {
            let input = format!(
                "{rows} rows of {inner}, {vectors} vectors, {threads} threads against one, bit for \
                    bit"
            );
            let likely = "the order of a row's additions must not depend on the threads: give \
                each thread whole rows";
            let many = with_threads(threads, || multiply(&w, &x, inner))?;
            same(&input, &many, &one, rows).likely(likely)?;
            let many = with_threads(threads, || multiply_bf16(&half, &x, inner))?;
            same(&format!("{input}, in bf16"), &many, &half_one, rows).likely(likely)?;
        }
    }
    Ok(())
}

/// Returns a tensor of this shape with 0, 1, 2, …
fn counting(shape: &[usize]) -> Result<Tensor> {
    let len: usize = shape.iter().product();
    Tensor::arange(0f32, len as f32, &Device::Cpu)?.reshape(shape)
}

fn linear_multiplies_tensors(day: &Day) -> Outcome {
    let w = Tensor::new(&[[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::Cpu)?;
    let x = Tensor::new(&[[1f32, 10.0]], &Device::Cpu)?;
    let want = Tensor::new(&[[21f32, 43.0, 65.0]], &Device::Cpu)?;
    close("x (1, 2) is [1, 10], w (3, 2) is 1 to 6", (day.linear)(&x, &w), &want, 0.0)?;
    let x = x.flatten_all()?;
    let want = want.flatten_all()?;
    close("x (2) is [1, 10]", (day.linear)(&x, &w), &want, 0.0)?;
    let x = counting(&[2, 2, 2])?;
    let want = Tensor::new(
        &[[[2f32, 4.0, 6.0], [8.0, 18.0, 28.0]], [[14.0, 32.0, 50.0], [20.0, 46.0, 72.0]]],
        &Device::Cpu,
    )?;
    close("x (2, 2, 2) is 0 to 7", (day.linear)(&x, &w), &want, 0.0)?;
    let (x, w) = (counting(&[2, 1])?, Tensor::new(&[[1f32], [10.0], [100.0]], &Device::Cpu)?);
    let want = Tensor::new(&[[0f32, 0.0, 0.0], [1.0, 10.0, 100.0]], &Device::Cpu)?;
    close("x (2, 1) is 0 and 1, w (3, 1) is 1, 10 and 100", (day.linear)(&x, &w), &want, 0.0)
}

fn linear_takes_any_shape_stride_and_type(day: &Day) -> Outcome {
    let mut random = Random::new(23);
    let inner = 40;
    let long = Tensor::from_vec(whole(&mut random, 6 * 3 * inner), (6, 3, inner), &Device::Cpu)?;
    let wide = Tensor::from_vec(whole(&mut random, 30 * inner), (30, inner), &Device::Cpu)?;
    let xs = [
        ("(6, 3, 40)", long.clone()),
        ("(2, 3, 40), the last two of six", long.narrow(0, 4, 2)?),
        ("(6, 1, 40), the middle one of three", long.narrow(1, 1, 1)?),
        ("(3, 6, 40), transposed", long.transpose(0, 1)?),
        ("(18, 40), transposed from (40, 18)", long.reshape((inner, 18))?.t()?),
        (
            "(4, 40), one row broadcast",
            long.narrow(0, 5, 1)?.narrow(1, 2, 1)?.reshape((1, inner))?.broadcast_as((4, inner))?,
        ),
    ];
    let ws = [
        ("(30, 40)", wide.clone()),
        ("(7, 40), rows 20 to 26 of thirty", wide.narrow(0, 20, 7)?),
        ("(30, 40), transposed from (40, 30)", wide.reshape((inner, 30))?.t()?),
    ];
    for (x_name, x) in &xs {
        for (w_name, w) in &ws {
            for dtype in [DType::F32, DType::BF16] {
                let plain = x.contiguous()?.reshape(((), inner))?;
                let want = plain.matmul(&w.contiguous()?.t()?)?;
                let mut shape = x.dims().to_vec();
                shape.pop();
                shape.push(w.dim(0)?);
                // Integers, so the result is exact.
                let input = format!("x {x_name}, w {w_name} of {dtype:?}");
                let got = (day.linear)(x, &as_type(w, dtype)?);
                close(&input, got, &want.reshape(shape)?, 0.0)
                    .likely("if another check of task 17.6 fails, fix that first")?;
            }
        }
    }
    Ok(())
}

/// Converts to another type, keeping the numbers, start offset and strides.
fn as_type(w: &Tensor, dtype: DType) -> Result<Tensor> {
    if dtype == DType::F32 {
        return Ok(w.clone());
    }
    // Conversion makes a tensor contiguous, so restore its offset and its transposition.
    if w.is_contiguous() {
        let (rows, inner) = w.dims2()?;
        let before = Tensor::ones((1, inner), dtype, &Device::Cpu)?;
        return Tensor::cat(&[&before, &w.to_dtype(dtype)?], 0)?.narrow(0, 1, rows);
    }
    w.t()?.contiguous()?.to_dtype(dtype)?.t()
}

fn mismatched_operands_are_rejected(day: &Day) -> Outcome {
    let w = counting(&[5, 4])?;
    let x = counting(&[2, 4])?;
    (day.linear)(&x, &w)?; // this fits
    refused("x (2, 3), w (5, 4)", (day.linear)(&counting(&[2, 3])?, &w), &[])?;
    refused("x (4, 2), w (5, 4)", (day.linear)(&counting(&[4, 2])?, &w), &[])?;
    refused_calmly("x (8), w (5, 4)", || (day.linear)(&counting(&[8])?, &w))?;
    refused_calmly("x without dimensions, w (5, 4)", || {
        (day.linear)(&Tensor::new(1f32, &Device::Cpu)?, &w)
    })?;
    refused_calmly("x (2, 4), w (4)", || (day.linear)(&x, &counting(&[4])?))?;
    refused_calmly("x (2, 4), w (1, 5, 4)", || (day.linear)(&x, &counting(&[1, 5, 4])?))?;
    refused_calmly("x (2, 0), w (5, 0)", || {
        let empty = |rows: usize| Tensor::zeros((rows, 0), DType::F32, &Device::Cpu);
        (day.linear)(&empty(2)?, &empty(5)?)
    })?;
    refused_calmly("x (2, 4) of f64, w (5, 4)", || (day.linear)(&x.to_dtype(DType::F64)?, &w))?;
    refused_calmly("x (2, 4), w (5, 4) of f16", || (day.linear)(&x, &w.to_dtype(DType::F16)?))
}

fn linear_equals_matmul(day: &Day) -> Outcome {
    let mut random = Random::new(24);
    let _ = device(); // this kernel runs on the CPU, on any device the other checks use
    for (rows, inner, vectors) in [(576, 576, 1), (300, 1536, 3), (960, 64, 17)] {
        let x = random.tensor(&[vectors, inner])?.to_device(&Device::Cpu)?;
        let w = random.tensor(&[rows, inner])?.to_device(&Device::Cpu)?;
        let input = format!("random x ({vectors}, {inner}) and w ({rows}, {inner})");
        // Sums of up to 1536 products of numbers below 1, in a different order. The given kernels
        // are held to the same bound.
        close(&input, (day.linear)(&x, &w), &x.matmul(&w.t()?)?, 1e-4)?;
        let narrow = w.to_dtype(DType::BF16)?;
        let want = x.matmul(&narrow.to_dtype(DType::F32)?.t()?)?;
        close(&format!("{input} in bf16"), (day.linear)(&x, &narrow), &want, 1e-4)?;
    }
    Ok(())
}

/// Returns the row with the largest product (the first in a tie), with plain loops.
fn loop_largest(w: &[f32], x: &[f32], inner: usize) -> usize {
    let products = loop_product(w, x, inner);
    let mut best = 0;
    for row in 1..products.len() {
        if products[row] > products[best] {
            best = row;
        }
    }
    best
}

fn the_largest_product_is_found(day: &Day) -> Outcome {
    let w = [1.0, 2.0, 3.0, 4.0, -5.0, 6.0]; // three rows of two
    for (x, want) in [([1.0, 0.0], 1), ([0.0, 1.0], 2), ([-1.0, -1.0], 2), ([1.0, -10.0], 0)] {
        let input = format!("rows [1, 2], [3, 4] and [-5, 6], vector {x:?}");
        equal(&input, Ok((day.largest)(&w, &x, 2)), &want)?;
    }
    let input = "rows [1, 2] and [3, 1], vector [-1, -1]: both products are negative";
    equal(input, Ok((day.largest)(&[1.0, 2.0, 3.0, 1.0], &[-1.0, -1.0], 2)), &0)?;
    let mut random = Random::new(26);
    // Shared among threads or not, with the largest product in any block.
    for (rows, inner) in [(1, 1), (5, 40), (1000, 70), (5000, 33), (900, 130), (3, 40_000)] {
        let w = whole(&mut random, rows * inner);
        let x = whole(&mut random, inner);
        let want = loop_largest(&w, &x, inner);
        equal(&format!("{rows} rows of {inner}"), Ok((day.largest)(&w, &x, inner)), &want)?;
    }
    Ok(())
}

fn ties_go_to_the_first_row(day: &Day) -> Outcome {
    let input = "rows [1], [3], [3], [2], vector [2]";
    equal(input, Ok((day.largest)(&[1.0, 3.0, 3.0, 2.0], &[2.0], 1)), &1)?;
    // Row 700 is the first with the largest product. There are more in its block and in others.
    let inner = 80;
    let mut w = vec![1.0; 3000 * inner];
    for row in [700, 701, 1500, 2999] {
        w[row * inner] = 2.0;
    }
    let largest = day.largest;
    for threads in [1, 2, 3, 7] {
        let got = with_threads(threads, || largest(&w, &vec![1.0; inner], inner))?;
        let input = format!(
            "3000 rows of 80; rows 700, 701, 1500 and 2999 have the largest product, \
             {threads} threads"
        );
        equal(&input, Ok(got), &700)?;
    }
    Ok(())
}

fn several_threads_search(day: &Day) -> Outcome {
    let _held = MEET.lock();
    if let Ok(mut met) = MET.lock() {
        *met = (vec![], false);
    }
    let w = vec![Meeting; 70_000 * 16];
    let largest = day.largest_met;
    let got = with_threads(3, || largest(&w, &[1.0; 16], 16))?;
    let came = MET.lock().map(|met| met.0.len()).unwrap_or(0);
    let input = "70000 equal rows of 16, in a pool of 3 threads";
    equal(input, Ok(got), &0)?;
    equal(&format!("{input}: threads that took part, counted up to 2"), Ok(came.min(2)), &2)
}

/// A program compiled from a shader, or the compiler's error message.
type Compiled = std::result::Result<PathBuf, String>;

/// The compiled shaders. Mistakes in other tasks share the reference's shader.
static PROGRAMS: Mutex<Option<HashMap<String, Compiled>>> = Mutex::new(None);

/// Compiles a shader for this machine: Metal's language is C++, and a header supplies the keywords
/// C++ lacks. Returns None if there is no C++ compiler.
fn program(shader: &str) -> Option<Compiled> {
    let mut programs = PROGRAMS.lock().ok()?;
    let programs = programs.get_or_insert_with(HashMap::new);
    if let Some(made) = programs.get(shader) {
        return Some(made.clone());
    }
    let compiler = std::env::var("CXX").unwrap_or("c++".into());
    let words = Path::new(env!("CARGO_MANIFEST_DIR")).join("day17_kernel/metal");
    let name = format!("day17_{}_{}", std::process::id(), programs.len());
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = made.with_extension("metal");
    std::fs::write(&source, shader).ok()?;
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-w", "-O1", "-pthread", "-I"]).arg(&words);
    command.arg(format!("-DSHADER=\"{}\"", source.display()));
    let output = command.arg(words.join("run_products.cpp")).arg("-o").arg(&made).output();
    let made = match output {
        Err(_) => return None,
        Ok(output) if output.status.success() => Ok(made),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    };
    programs.insert(shader.to_string(), made.clone());
    Some(made)
}

/// Returns the output of a shader's program for these sizes and numbers.
fn run_shader(program: &Path, w: &[f32], x: &[f32], inner: usize) -> Result<String> {
    let mut input = format!("{inner} {} {}\n", w.len() / inner, x.len() / inner);
    for number in w.iter().chain(x) {
        input += &format!("{number} ");
    }
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    Ok(String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned())
}

fn the_shader_equals_a_loop(day: &Day) -> Outcome {
    let shader = (day.metal_source)();
    let program = match program(shader) {
        None => {
            let words =
                "SKIPPED task 17.8: no C++ compiler to run it with (c++, or the one CXX names)\n";
            let _ = std::io::stderr().write_all(words.as_bytes());
            return Ok(());
        }
        Some(Err(words)) => {
            let mut lines = vec!["the shader doesn't compile as C++ with Metal's keywords:".into()];
            lines.extend(words.lines().take(8).map(String::from));
            return Err(Failure::new(Kind::Error, lines));
        }
        Some(Ok(program)) => program,
    };
    let mut random = Random::new(25);
    for (rows, inner, vectors) in
        [(3, 2, 2), (1, 1, 1), (2, 31, 1), (2, 32, 3), (5, 70, 2), (2, 576, 1)]
    {
        let (w, x) = (whole(&mut random, rows * inner), whole(&mut random, vectors * inner));
        let said = run_shader(&program, &w, &x, inner)?;
        let input =
            format!("{rows} rows of {inner}, {vectors} vectors, on threads in place of lanes");
        let in_vain = "some lanes wait for others that have returned, or never reach simd_sum";
        ensure(&input, said.trim() != "deadlock", in_vain)?;
        let got: Vec<f32> = said.lines().filter_map(|line| line.parse().ok()).collect();
        same(&input, &got, &loop_product(&w, &x, inner), rows)?;
    }
    Ok(())
}
