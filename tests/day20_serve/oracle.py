"""Day 20: answers as the types of OpenAI's own Python client write them, and as that client reads them off a stream."""
import json

import httpx
from openai import OpenAI
from openai.types import Completion, CompletionChoice, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk

HEAD = {"id": "cmpl-1", "created": 1_750_000_000, "model": "story-3m"}
WORDS = {"eos": "stop", "stop": "stop", "length": "length"}


def token(text, logprob):
    return [text, list(text.encode()), logprob]


def half(byte, logprob):
    return ["\ufffd", [byte], logprob]


def piece(index, text, finish=None, chosen=None, top=()):
    return {"index": index, "text": text, "finish": finish, "logprobs": None if chosen is None else [chosen, list(top)]}


# " a cafe" with an accent in two tokens, then EOS; two choices of a chat, in turns; a stop string; two prompts.
CAFE = [
    piece(0, " a", None, token(" a", -0.5), [token(" a", -0.5), token(" the", -1.25)]),
    piece(0, " caf", None, token(" caf", -2.5), [token(" dog", -0.25), token(" cat", -1.75)]),
    piece(0, "", None, half(0xC3, -0.125), [half(0xC3, -0.125), half(0xC2, -3.5)]),
    piece(0, "é", None, half(0xA9, -0.0625), [half(0xA9, -0.0625), token("\n", -4.5)]),
    piece(0, "", "eos", token("<|im_end|>", -0.75), [token("<|im_end|>", -0.75), token(".", -1.0)]),
]
TURNS = [piece(1, "Hi"), piece(0, "Hello"), piece(1, " you"), piece(0, "", "stop"), piece(1, "!", "length")]
CASES = [(chat, pieces, n, prompts) for chat in (False, True) for pieces, n, prompts in ((CAFE, 1, [4]), (TURNS, 2, [7]))]
CASES.append((False, TURNS, 1, [3, 5]))


def logprobs(chat, pieces, offset):
    pairs = [p["logprobs"] for p in pieces if p["logprobs"]]
    if not pairs:
        return None
    if chat:
        one = lambda t: {"token": t[0], "bytes": t[1], "logprob": t[2]}
        return {"content": [{**one(chosen), "top_logprobs": [one(t) for t in top]} for chosen, top in pairs], "refusal": None}
    offsets = [offset + sum(len(c[0]) for c, _ in pairs[:i]) for i in range(len(pairs))]
    return {
        "tokens": [c[0] for c, _ in pairs],
        "token_logprobs": [c[2] for c, _ in pairs],
        "top_logprobs": [{t[0]: t[2] for t in [*top, c]} for c, top in pairs],
        "text_offset": offsets,
    }


def written(kind, body):
    """The body as this type of the client's writes it: every field is known to it, and has the type that it says."""
    made = kind.model_validate(body)
    back = made.model_dump(mode="json", exclude_unset=True)
    assert back == body, (back, body)
    return back


def answer(chat, pieces, n, prompts):
    choices = n * len(prompts)
    of = lambda i: [p for p in pieces if p["index"] == i]
    usage = written(CompletionUsage, {"prompt_tokens": sum(prompts), "completion_tokens": len(pieces),
                                      "total_tokens": sum(prompts) + len(pieces)})
    events, begun, waiting, told = [], set(), {i: [] for i in range(choices)}, {i: 0 for i in range(choices)}

    def event(choice):
        body = {**HEAD, "object": "chat.completion.chunk" if chat else "text_completion", "choices": [choice], "usage": None}
        if chat:
            written(ChatCompletionChunk, body)
        elif choice["finish_reason"]:
            written(Completion, body)
        else:  # the client's type has no null here, though every event of a stream but the last has it
            assert choice.keys() <= CompletionChoice.model_fields.keys()
        events.append(body)

    for p in pieces:
        i, finish = p["index"], WORDS.get(p["finish"])
        waiting[i].append(p)
        if chat and i not in begun:
            begun.add(i)
            event({"index": i, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None})
        if not p["text"] and not finish:
            continue
        choice = {"index": i, "logprobs": logprobs(chat, waiting[i], told[i]), "finish_reason": None}
        told[i] += sum(len(q["logprobs"][0][0]) for q in waiting[i] if q["logprobs"])
        waiting[i] = []
        if p["text"]:
            event({**choice, "delta": {"content": p["text"]}} if chat else {**choice, "text": p["text"]})
            choice["logprobs"] = None
        if finish:  # an event of its own, as OpenAI's
            event({**choice, "finish_reason": finish, **({"delta": {}} if chat else {"text": ""})})
    last = {**HEAD, "object": "chat.completion.chunk" if chat else "text_completion", "choices": [], "usage": usage}
    events.append(written(ChatCompletionChunk if chat else Completion, last))

    whole = []
    for i in range(choices):
        text, finish = "".join(p["text"] for p in of(i)), WORDS[of(i)[-1]["finish"]]
        choice = {"index": i, "logprobs": logprobs(chat, of(i), 0), "finish_reason": finish}
        whole.append({**choice, "message": {"role": "assistant", "content": text, "refusal": None}} if chat else {**choice, "text": text})
    body = {**HEAD, "object": "chat.completion" if chat else "text_completion", "choices": whole, "usage": usage}
    return events, written(ChatCompletion if chat else Completion, body)


def read_back(chat, events, whole):
    """The client itself, on a stream of these events: it gives every choice's text and end, and the usage."""
    stream = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
    respond = lambda request: httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream.encode())
    client = OpenAI(base_url="http://there.is.none/v1", api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(respond)))
    if chat:
        chunks = client.chat.completions.create(model="story-3m", messages=[{"role": "user", "content": "Hi"}], stream=True)
    else:
        chunks = client.completions.create(model="story-3m", prompt="Hi", stream=True)
    texts, ends, usage = {}, {}, None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text = choice.delta.content if chat else choice.text
            texts[choice.index] = texts.get(choice.index, "") + (text or "")
            ends[choice.index] = choice.finish_reason or ends.get(choice.index)
    for choice in whole["choices"]:
        assert texts[choice["index"]] == (choice["message"]["content"] if chat else choice["text"])
        assert ends[choice["index"]] == choice["finish_reason"]
    assert usage.model_dump(mode="json", exclude_unset=True) == whole["usage"]


def generate(oracle):
    answers = []
    for chat, pieces, n, prompts in CASES:
        events, whole = answer(chat, pieces, n, prompts)
        read_back(chat, events, whole)
        answers.append({"chat": chat, "n": n, "prompt_tokens": prompts, "logprobs": pieces[0]["logprobs"] is not None,
                        "pieces": pieces, "events": events, "whole": whole})
    oracle.data["client"] = "openai 3.54.0"
    oracle.data["answers"] = answers
