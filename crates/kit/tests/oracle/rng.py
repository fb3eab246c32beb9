"""The kit: torch's CPU generator, as raw words and as draws from Exp(1)."""
import torch

SEEDS = [0, 1, 42, 2**31, 2**32 - 1, 2**32, 2**32 + 42, 2**63 - 1, 2**64 - 1]
SIZES = [8, 1000, 50_257]  # below and above what torch does in one go; the last is GPT-2's vocabulary
WORDS = 2000  # the state of 624 words is renewed three times


def words(seed):
    """The first 32-bit words after `manual_seed`: a 64-bit draw is two of them, the first one high."""
    torch.manual_seed(seed)
    pairs = torch.empty(WORDS // 2, dtype=torch.int64).random_(-(2**63), None).tolist()
    return [half for pair in pairs for half in ((pair % 2**64) >> 32, pair % 2**32)]


def bits(t):
    return t.view(torch.int32).tolist()


def generate(oracle):
    runs = []
    for seed in SEEDS:
        stream = words(seed)
        runs.append({"seed": seed, "first": stream[:4], "at 622": stream[622:626], "sum": sum(stream)})
    oracle.data["words"] = runs

    draws = []
    for seed in SEEDS:
        for size in SIZES:
            torch.manual_seed(seed)
            q = torch.empty(size).exponential_(1)
            after = torch.empty(1).exponential_(1)  # how far the stream has moved
            numbers = bits(q)
            # The numbers as the integers that their bits are, so that a sum of them is exact.
            draws.append({"seed": seed, "size": size, "sum of bits": sum(numbers), "first": numbers[:3], "last": numbers[-2:],
                          "largest": bits(q.max().view(1))[0], "after": bits(after)[0]})
    oracle.data["exponentials"] = draws

    # Two rows in one call are drawn row by row.
    torch.manual_seed(7)
    oracle.data["rows"] = [bits(row) for row in torch.empty(2, 5).exponential_(1)]
