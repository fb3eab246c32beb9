#!/usr/bin/env bash
# Prints day 13's table of drafters: lookup, a table of n-grams, and a small model. The corpus is written by story-3m itself,
# in some minutes, unless a file is given:
#   bash models/drafters.sh [stories.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --features ref
engine() { target/debug/candecode "$@"; }
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
corpus=${1:-$work/stories.jsonl}
if [ $# -eq 0 ]; then
  engine --prompt-ids 0 --temperature 1 --seed 1 --num-return-sequences 1024 \
    --max-new-tokens 400 --loop day15 --max-batch-tokens 16000 --format json >"$corpus"
fi
engine --count-ngrams "$corpus" --draft-table "$work/table"
for prompt in "Lily and her dog" "Once upon a time" "One day, Tom found a big"; do
  engine -p "$prompt" --max-new-tokens 64 >"$work/plain" 2>"$work/said"
  for k in 1 4; do
    row="| $prompt | $k |"
    for drafter in "--draft-ngram 2" "--draft-table $work/table" "--draft-model story-230k"; do
      # shellcheck disable=SC2086
      engine -p "$prompt" --max-new-tokens 64 --stats --num-draft-tokens "$k" $drafter \
        >"$work/text" 2>"$work/said"
      cmp "$work/plain" "$work/text" # greedy text is the target's own
      row+=$(sed -nE 's/^drafts .*accepted (\([0-9]+ %\)), ([0-9.]+) tokens.*/ \2 \1 |/p' "$work/said")
    done
    echo "$row"
  done
done
