//! Tests of `list --score`.

#[test]
fn every_scored_loop_matches_transformers_at_the_expected_cost() {
    let oracle = std::fs::read_to_string("../../tests/oracle/day15.json").unwrap();
    let oracle: serde_json::Value = serde_json::from_str(&oracle).unwrap();
    let cost = |day| {
        let cost = candecode_cli::score::score(day).unwrap();
        assert_eq!(cost["texts"], oracle["trace"]["texts"], "day {day}");
        ["passes", "positions", "wasted"].map(|count| cost[count].as_u64().unwrap())
    };
    // 524 new tokens after 156 of prompts; the last token of each of the 24 texts isn't computed.
    assert_eq!(cost(10), [524, 156 + 524 - 24, 0]);
    assert_eq!(cost(12), [181, 656 + 60, 60]); // three batches, with padding in their prefills
    assert_eq!(cost(15), [107, 656, 0]); // 24 prefills, and 83 passes over a full batch
    assert_eq!(cost(21), [87, 656, 0]); // prompts and new tokens in the same passes
    assert_eq!(cost(23), [87, 656, 0]);
}
