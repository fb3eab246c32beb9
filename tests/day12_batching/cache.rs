//! Day 12's checks of the cache: rows are selected, joined and trimmed.

use super::frame::{bits_equal, equal, feed, marked, refused, rows, Likely, Outcome, Random, Rows};
use super::frame::{Witness, LAYERS};
use super::Day;
use candecode::kit::{Batch, Cache, Model, Step};
use candle_core::{Device, Result, Tensor};

/// The capacities to test: none, and one with room for everything these checks append.
const CAPACITIES: [Option<usize>; 2] = [None, Some(40)];

/// Checks that every layer of the cache holds exactly these positions.
fn holds(input: &str, cache: &dyn Batch, rows: &Rows) -> Outcome {
    super::frame::holds(input, cache.len(), |layer| cache.layer(layer), rows)
}

/// Describes a cache of this capacity in a check's input.
fn named(capacity: Option<usize>) -> String {
    match capacity {
        None => "a cache that grows".into(),
        Some(capacity) => format!("a cache of {capacity} positions"),
    }
}

pub fn selecting_by_hand(day: &Day) -> Outcome {
    for capacity in CAPACITIES {
        let mut cache = (day.cache)(LAYERS, capacity);
        feed(&mut *cache, &rows(&[&[1, 2], &[11, 12], &[21, 22]]))?;
        cache.select(&[2, 0, 0])?;
        let input = format!("{}: rows 1 2, 11 12, 21 22; select [2, 0, 0]", named(capacity));
        holds(&input, &*cache, &rows(&[&[21, 22], &[1, 2], &[1, 2]])).likely(
            "new row i is old row rows[i]: rows are the first dimension, of keys and of values",
        )?;
        feed(&mut *cache, &rows(&[&[5], &[6], &[7]]))?;
        let want = rows(&[&[21, 22, 5], &[1, 2, 6], &[1, 2, 7]]);
        holds(&format!("{input}, then 5, 6, 7"), &*cache, &want)?;
        cache.select(&[1])?;
        holds(&format!("{input}, then 5, 6, 7, then select [1]"), &*cache, &rows(&[&[1, 2, 6]]))?;
    }
    let mut cache = (day.cache)(LAYERS, None);
    feed(&mut *cache, &rows(&[&[1], &[2]]))?;
    refused("row 2 of 2 rows", cache.select(&[0, 2]), &[])
}

pub fn beams_that_fork(day: &Day) -> Outcome {
    for capacity in CAPACITIES {
        let mut model = Witness::mixing(50, 30, 99);
        let mut cache = (day.cache)(model.layers(), capacity);
        let mut beams = vec![vec![7, 8, 9]];
        let step = |beams: &[Vec<u32>], held: usize| {
            let new: Vec<Vec<u32>> = beams.iter().map(|beam| beam[held..].to_vec()).collect();
            let positions: Vec<u32> = (held as u32..beams[0].len() as u32).collect();
            Step::batch(&model, &new, &vec![positions; beams.len()], None)
        };
        model.forward(&step(&beams, 0)?, &mut *cache)?;
        let mut input = format!("{}, beams that fork:", named(capacity));
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

/// Applies one random operation to both `cache` and `plain`, and returns a description of it.
fn operate(
    random: &mut Random,
    cache: &mut dyn Batch,
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
        let (mut random, capacity) = (Random::new(200 + seed), CAPACITIES[seed as usize % 2]);
        let mut cache = (day.cache)(LAYERS, capacity);
        let mut plain = rows(&[&[1], &[2]]);
        feed(&mut *cache, &plain)?;
        let mut input = format!("{}: two rows of 1", named(capacity));
        for _ in 0..14 {
            input += &format!(", {}", operate(&mut random, &mut *cache, &mut plain, 5)?);
            holds(&input, &*cache, &plain)?;
        }
    }
    Ok(())
}

/// Builds a cache with this capacity and these rows.
fn filled(day: &Day, capacity: Option<usize>, rows: &Rows) -> Result<Box<dyn Batch>> {
    let mut cache = (day.cache)(LAYERS, capacity);
    feed(&mut *cache, rows)?;
    Ok(cache)
}

pub fn joining_by_hand(day: &Day) -> Outcome {
    let (long, short) = (rows(&[&[1, 2, 3]]), rows(&[&[7], &[8]]));
    for (mine, theirs) in [(None, Some(40)), (Some(40), None)] {
        let mut cache = filled(day, mine, &long)?;
        cache.join(&*filled(day, theirs, &short)?)?;
        let input =
            format!("{}, holding 1 2 3, joined by rows 7 and 8 of {}", named(mine), named(theirs));
        let want = vec![long[0].clone(), vec![None, None, Some(7)], vec![None, None, Some(8)]];
        holds(&input, &*cache, &want)?;
        feed(&mut *cache, &rows(&[&[4], &[5], &[6]]))?;
        let mut want = want;
        want.iter_mut().zip(4..).for_each(|(row, n)| row.push(Some(n)));
        holds(&format!("{input}, then 4, 5, 6"), &*cache, &want)?;

        let mut cache = filled(day, mine, &short)?;
        cache.join(&*filled(day, theirs, &long)?)?;
        let input =
            format!("{}, holding rows 7 and 8, joined by 1 2 3 of {}", named(mine), named(theirs));
        let want = vec![vec![None, None, Some(7)], vec![None, None, Some(8)], long[0].clone()];
        holds(&input, &*cache, &want)?;
    }
    let mut cache = filled(day, None, &long)?;
    let mut guest = (day.cache)(LAYERS - 1, None);
    let (k, v) = marked(&short, 0)?;
    guest.append(0, &k, &v)?;
    let input = "a cache of 2 layers that holds 1 2 3, joined by 7 and 8 of a cache of one layer";
    refused(input, cache.join(&*guest), &[])?;
    holds(&format!("{input}, after the error"), &*cache, &long)
        .likely("if a layer fails, this cache is as it was: change it when all layers are done")
}

pub fn rows_can_join_an_empty_cache(day: &Day) -> Outcome {
    for capacity in CAPACITIES {
        let mut cache = (day.cache)(LAYERS, capacity);
        cache.join(&*filled(day, capacity, &rows(&[&[1, 2], &[3, 4]]))?)?;
        let input = format!("{}, empty, joined by rows 1 2 and 3 4", named(capacity));
        holds(&input, &*cache, &rows(&[&[1, 2], &[3, 4]]))?;
        cache.truncate(0)?;
        cache.join(&*filled(day, capacity, &rows(&[&[5]]))?)?;
        let input = format!("{input}, emptied, joined by a row 5");
        holds(&input, &*cache, &rows(&[&[5]]))?;
    }
    Ok(())
}

pub fn joined_caches_share_no_memory(day: &Day) -> Outcome {
    // At full width nothing is padded, and returning a view would be fine if nothing happened
    // afterwards.
    for capacity in [None, Some(3), Some(9)] {
        for mine in [None, Some(rows(&[&[7, 8, 9]]))] {
            let mut cache = (day.cache)(LAYERS, capacity);
            let mut want = Vec::new();
            if let Some(mine) = &mine {
                feed(&mut *cache, mine)?;
                want.extend(mine.clone());
            }
            let mut guest = filled(day, Some(3), &rows(&[&[1, 2, 3]]))?;
            cache.join(&*guest)?;
            want.extend(rows(&[&[1, 2, 3]]));
            guest.truncate(1)?;
            feed(&mut *guest, &rows(&[&[50, 60]]))?;
            let input = format!(
                "{}, holding {mine:?}, joined by 1 2 3 of a cache of 3 positions, which \
                is then truncated and refilled",
                named(capacity)
            );
            holds(&input, &*cache, &want)?;
        }
    }
    Ok(())
}

pub fn trimming_by_hand(day: &Day) -> Outcome {
    for capacity in CAPACITIES {
        let mut cache = filled(day, capacity, &rows(&[&[1, 2, 3, 4], &[11, 12, 13, 14]]))?;
        cache.trim(2)?;
        let input = format!("{}: rows 1 to 4 and 11 to 14, 2 positions trimmed", named(capacity));
        holds(&input, &*cache, &rows(&[&[3, 4], &[13, 14]]))
            .likely("the first positions are dropped, and all others move up")?;
        cache.trim(0)?;
        feed(&mut *cache, &rows(&[&[5], &[15]]))?;
        let want = rows(&[&[3, 4, 5], &[13, 14, 15]]);
        holds(&format!("{input}, then 0 more, then 5 and 15 appended"), &*cache, &want)?;
        refused(&format!("{}, 3 positions, 4 trimmed", named(capacity)), cache.trim(4), &[])?;
        cache.trim(3)?;
        equal(&format!("{}, 3 positions, all trimmed: len", named(capacity)), Ok(cache.len()), &0)?;
        feed(&mut *cache, &rows(&[&[6, 7]]))?;
        holds(&format!("{}, all trimmed, then 6 7", named(capacity)), &*cache, &rows(&[&[6, 7]]))?;
    }
    Ok(())
}

pub fn a_trimmed_cache_keeps_its_capacity(day: &Day) -> Outcome {
    let mut cache = filled(day, Some(4), &rows(&[&[1, 2, 3, 4]]))?;
    cache.trim(2)?;
    feed(&mut *cache, &rows(&[&[5, 6]]))?;
    let input = "a cache of 4 positions, full, 2 trimmed, 2 appended";
    holds(input, &*cache, &rows(&[&[3, 4, 5, 6]]))
        .likely("the buffer must keep its length, with the free room at the end")
}

pub fn a_joined_cache_keeps_its_capacity(day: &Day) -> Outcome {
    let mut cache = filled(day, Some(4), &rows(&[&[1, 2]]))?;
    cache.join(&*filled(day, None, &rows(&[&[3]]))?)?;
    feed(&mut *cache, &rows(&[&[4, 5], &[6, 7]]))?;
    let want = vec![rows(&[&[1, 2, 4, 5]])[0].clone(), vec![None, Some(3), Some(6), Some(7)]];
    holds(
        "a cache of 4 positions, holding 1 2, joined by 3, then 2 positions appended",
        &*cache,
        &want,
    )?;
    let input = "a cache of 4 positions that holds 4, then one more is appended";
    refused(input, feed(&mut *cache, &rows(&[&[8], &[9]])), &[])?;
    let mut cache = filled(day, Some(4), &rows(&[&[1, 2]]))?;
    let guest = filled(day, None, &rows(&[&[3, 4, 5, 6, 7, 8]]))?;
    refused("a cache of 4 positions, joined by 6", cache.join(&*guest), &[])
}

pub fn joins_and_trims_work_in_any_order(day: &Day) -> Outcome {
    for seed in 0..12 {
        let (mut random, capacity) = (Random::new(300 + seed), CAPACITIES[seed as usize % 2]);
        let mut plain = rows(&[&[1, 2], &[3, 4]]);
        let mut cache = filled(day, capacity, &plain)?;
        let mut input = format!("{}: rows 1 2 and 3 4", named(capacity));
        for _ in 0..12 {
            let len = plain[0].len();
            match random.below(5) {
                0 if plain.len() < 5 && len > 0 => {
                    let positions = 1 + random.below(7);
                    let new: Rows =
                        vec![(0..positions).map(|_| Some(random.below(900) as u32)).collect()];
                    cache.join(&*filled(day, CAPACITIES[random.below(2)], &new)?)?;
                    plain.extend(new);
                    let all = len.max(positions);
                    plain.iter_mut().for_each(|row| {
                        let padding = vec![None; all - row.len()];
                        row.splice(0..0, padding);
                    });
                    input += &format!(", join({positions} positions)");
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

pub fn stacked_rows_are_padded_on_the_left(day: &Day) -> Outcome {
    let a = Tensor::new(&[[[[1f32], [2.], [3.]]]], &Device::Cpu)?;
    let b = Tensor::new(&[[[[7f32]]], [[[8.]]]], &Device::Cpu)?;
    let want = Tensor::new(
        &[[[[1f32], [2.], [3.]]], [[[0.], [0.], [7.]]], [[[0.], [0.], [8.]]]],
        &Device::Cpu,
    )?;
    bits_equal("a row 1 2 3 and two rows 7, 8 of one position", (day.stack_rows)(&a, &b), &want)
        .likely("the newest position of every row must be the last: pad on the left")?;
    let want = Tensor::new(
        &[[[[0f32], [0.], [7.]]], [[[0.], [0.], [8.]]], [[[1.], [2.], [3.]]]],
        &Device::Cpu,
    )?;
    bits_equal("two rows 7, 8 of one position and a row 1 2 3", (day.stack_rows)(&b, &a), &want)?;
    let want = Tensor::new(&[[[[1f32], [2.], [3.]]], [[[1.], [2.], [3.]]]], &Device::Cpu)?;
    bits_equal("a row 1 2 3 and itself", (day.stack_rows)(&a, &a), &want)
}
