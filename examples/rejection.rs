//! Compares rejection sampling with speculative sampling:
//! `cargo run --features ref --example rejection`.

use candecode::day08_sampling::sample;
use candecode::day13_speculative::{rejection_sample, verify};
use candecode::kit::draft::Draft;
use candecode::kit::rng::RequestRng;

const P: [f32; 3] = [0.5, 0.3, 0.2];
const Q: [f32; 3] = [0.2, 0.6, 0.2];
const DRAWS: usize = 10_000;

fn main() -> anyhow::Result<()> {
    let mut rng = RequestRng::new(13, 0);
    let mut classical = [0; 3];
    let mut proposals = 0;
    for _ in 0..DRAWS {
        let (id, count) = rejection_sample(&P, &Q, 2.5, &mut || rng.uniform())?;
        classical[id as usize] += 1;
        proposals += count;
    }
    let mut speculative = [0; 3];
    let mut accepted = 0;
    for _ in 0..DRAWS {
        let token = sample(&Q, rng.uniform())?;
        let draft = Draft { tokens: vec![token], probs: vec![Q.to_vec()] };
        let numbers = [rng.uniform(), rng.uniform()];
        let verdict = verify(&draft, &[P.to_vec(), P.to_vec()], &numbers)?;
        accepted += verdict.accepted;
        let id = if verdict.accepted == 1 { token } else { verdict.next };
        speculative[id as usize] += 1;
    }
    let share = 100.0 * DRAWS as f64 / proposals as f64;
    print("rejection sampling", &classical, proposals, share);
    let share = 100.0 * accepted as f64 / DRAWS as f64;
    print("speculative sampling", &speculative, DRAWS, share);
    Ok(())
}

/// Prints one bar per token, with a # for every 2%.
fn print(rule: &str, seen: &[usize; 3], proposals: usize, accepted: f64) {
    println!("{rule}: {proposals} proposals for {DRAWS} tokens, {accepted:.0} % accepted");
    for ((name, p), count) in ["A", "B", "C"].iter().zip(P).zip(seen) {
        let share = 100.0 * *count as f64 / DRAWS as f64;
        let bar = "#".repeat((share / 2.0).round() as usize);
        println!("  {name}  wanted {:2.0} %, drawn {share:4.1} %  {bar}", 100.0 * p);
    }
}
