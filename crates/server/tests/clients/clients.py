"""Runs popular clients against our server: `python clients.py http://127.0.0.1:8000 [CHECK…]`.

Tests the official `openai` package, `curl`, `langchain-openai`, `litellm` and `pydantic-ai`: streaming, n, stop, seed, logprobs,
usage, rules for tokens, cancellation, errors, concurrency, structured output and tools. `.ci/run clients` starts the server and
runs this script, its checks `instructor` and `lm_evaluation_harness` with packages of their own, and then `clients.mjs`, the
JavaScript clients.
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from typing import Annotated, Literal

import openai
from openai import OpenAI
from pydantic import BaseModel, Field

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # don't fetch prices over the network
ADDRESS = sys.argv[1].rstrip("/")
KEY = "sesame"
ORIGIN = "http://app.example:3000"  # a page that the server allows
PROMPT = "Once upon a time"
LINE = [{"role": "user", "content": "One day, a cat"}]

client = OpenAI(base_url=f"{ADDRESS}/v1", api_key=KEY, max_retries=0, timeout=60)
MODEL = client.models.list().data[0].id


def completion(**more):
    asked = {"model": MODEL, "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    return client.completions.create(**{**asked, **more})


def chat(**more):
    asked = {"model": MODEL, "messages": LINE, "max_tokens": 16, "temperature": 0}
    return client.chat.completions.create(**{**asked, **more})


def metric(name):
    text = urllib.request.urlopen(f"{ADDRESS}/metrics").read().decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"candecode_{name} "))


def wait_for(name, value):
    began = time.time()
    while metric(name) != value:
        assert time.time() - began < 60, f"{name} stays {metric(name)}, not {value}"
        time.sleep(0.02)


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


def openai_models():
    assert client.models.retrieve(MODEL).id == MODEL
    refused(openai.NotFoundError, lambda: client.models.retrieve("another"))


def openai_whole():
    answer = completion()
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.usage.completion_tokens == 24 and answer.choices[0].finish_reason == "length"
    assert completion().choices[0].text == answer.choices[0].text


def openai_stream():
    whole = completion().choices[0].text
    pieces = [event.choices[0].text for event in completion(stream=True)]
    assert "".join(pieces) == whole and len(pieces) > 5
    events = list(completion(stream=True, stream_options={"include_usage": True}))
    assert events[-1].usage.completion_tokens == 24 and not events[-1].choices


def openai_chat():
    answer = chat()
    message = answer.choices[0].message
    assert message.role == "assistant" and message.content and answer.id.startswith("chatcmpl-")
    events = list(chat(stream=True))
    assert events[0].choices[0].delta.role == "assistant"
    said = "".join(event.choices[0].delta.content or "" for event in events)
    assert said == message.content
    assert events[-1].choices[0].finish_reason == answer.choices[0].finish_reason
    parts = [{"role": "user", "content": [{"type": "text", "text": LINE[0]["content"]}]}]
    assert chat(messages=parts).choices[0].message.content == message.content


def openai_chat_stream_helper():
    # The helper raises an exception if the length limit ends an answer, so use a stop string.
    asked = {"model": MODEL, "messages": LINE, "max_tokens": 16, "temperature": 0}
    asked["stop"] = chat().choices[0].message.content.split()[5]
    with client.chat.completions.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds and final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.content == chat(stop=asked["stop"]).choices[0].message.content


def openai_n_and_seed():
    asked = {"n": 3, "temperature": 1, "seed": 11}
    one, again = completion(**asked), completion(**asked)
    texts = [choice.text for choice in one.choices]
    assert len(set(texts)) == 3 and texts == [choice.text for choice in again.choices]
    assert [choice.index for choice in one.choices] == [0, 1, 2]
    streamed = ["", "", ""]
    for event in completion(stream=True, **asked):
        streamed[event.choices[0].index] += event.choices[0].text
    assert streamed == texts


def openai_several_prompts():
    answer = completion(prompt=[PROMPT, "Lily and her dog"])
    assert answer.choices[0].text == completion().choices[0].text
    assert answer.choices[1].text == completion(prompt="Lily and her dog").choices[0].text


def openai_stop():
    whole = completion().choices[0].text
    word = whole.split()[4]
    cut = completion(stop=[word, "nowhere"])
    assert cut.choices[0].finish_reason == "stop" and whole.startswith(cut.choices[0].text)
    assert word not in cut.choices[0].text
    assert "".join(event.choices[0].text for event in completion(stop=word, stream=True)) == cut.choices[0].text


def openai_logprobs():
    found = completion(logprobs=3).choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) == 24
    assert all(logprob <= 0 for logprob in found.token_logprobs)
    assert all(max(top, key=top.get) == token for token, top in zip(found.tokens, found.top_logprobs))
    content = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert all(len(token.top_logprobs) == 2 and token.top_logprobs[0].token == token.token for token in content)
    streamed = [entry for event in chat(logprobs=True, stream=True) if event.choices[0].logprobs
                for entry in event.choices[0].logprobs.content]
    assert [entry.token for entry in streamed] == [entry.token for entry in content]


def openai_extra_fields():
    extra = {"structured_outputs": {"choice": [" red", " blue"]}, "top_k": 5, "repetition_penalty": 1.1}
    assert completion(extra_body=extra).choices[0].text in (" red", " blue")


def openai_seed_of_minus_one():
    texts = {completion(seed=-1, temperature=1).choices[0].text for _ in range(4)}
    assert len(texts) > 1, texts


def openai_rules_for_tokens():
    text = lambda **more: completion(**more).choices[0].text
    one = text(logit_bias={"300": 100}, max_tokens=1)
    assert text(extra_body={"allowed_token_ids": [300]}, max_tokens=1) == one
    ended = completion(logit_bias={"300": 100}, extra_body={"stop_token_ids": [300], "min_tokens": 3})
    assert ended.usage.completion_tokens == 4 and ended.choices[0].finish_reason == "stop"
    word = max(text().split(), key=len)
    assert word not in text(extra_body={"bad_words": [word]})
    assert text(extra_body={"guided_choice": [" red", " blue"]}) in (" red", " blue")
    assert text(extra_body={"guided_regex": " [0-9]{2}"}).strip().isdigit()
    assert word not in text(stop=[word])
    refused(openai.BadRequestError, lambda: text(stop=[word], extra_body={"include_stop_str_in_output": True}))
    refused(openai.BadRequestError, lambda: text(extra_body={"repeat_penalty": 1.3}))


def openai_echo():
    assert completion(echo=True).choices[0].text == PROMPT + completion().choices[0].text
    events = list(completion(echo=True, stream=True))
    assert "".join(event.choices[0].text for event in events) == PROMPT + completion().choices[0].text
    assert events[-1].choices[0].text == "" and events[-1].choices[0].finish_reason == "length"


def openai_best_of():
    assert len(completion(n=2, best_of=2, temperature=1).choices) == 2
    refused(openai.BadRequestError, lambda: completion(n=2, best_of=3, temperature=1))


class Pet(BaseModel, extra="forbid"):
    """A pet without other fields, and with these short enough for a model that writes anything."""

    kind: Literal["cat", "dog", "frog"]
    name: Annotated[str, Field(max_length=12)]
    age: Annotated[int, Field(ge=0, le=20)]


def tool(name, properties):
    parameters = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": f"Calls {name}", "parameters": parameters}}


TOOLS = [tool("weather", {"city": {"enum": ["Oslo", "Rome"]}}), tool("feed", {"pet": {"enum": ["cat", "dog"]}, "snacks": {"enum": [1, 2, 3]}})]
NAMED = {"type": "function", "function": {"name": "feed"}}


def valid(call):
    arguments = json.loads(call.function.arguments)
    want = next(tool for tool in TOOLS if tool["function"]["name"] == call.function.name)["function"]["parameters"]
    assert arguments.keys() == want["properties"].keys(), arguments
    assert all(value in want["properties"][key]["enum"] for key, value in arguments.items()), arguments
    assert call.type == "function" and call.id
    return call.function.name, arguments


def openai_tools():
    assert chat(tools=TOOLS, tool_choice="none").choices[0].message.content == chat().choices[0].message.content
    # The story models' template has no place for tools, so the model can't choose one.
    assert refused(openai.BadRequestError, lambda: chat(tools=TOOLS)).param == "tools"
    assert refused(openai.BadRequestError, lambda: chat(tool_choice="required")).param == "tool_choice"
    assert refused(openai.BadRequestError, lambda: chat(tools=TOOLS[:1], tool_choice=NAMED)).param == "tool_choice"
    forced = {"tools": TOOLS, "max_tokens": 460, "temperature": 1, "seed": 5}
    one = chat(**forced, tool_choice="required", parallel_tool_calls=False).choices[0]
    assert one.finish_reason == "tool_calls" and one.message.content is None and len(one.message.tool_calls) == 1
    name, _ = valid(one.message.tool_calls[0])
    named = chat(**forced, tool_choice=NAMED).choices[0]
    assert named.finish_reason == "stop" and valid(named.message.tool_calls[0])[0] == "feed"
    # The result goes back, and the model writes on.
    call = one.message.tool_calls[0]
    history = [*LINE, one.message, {"role": "tool", "tool_call_id": call.id, "content": " found it."}]
    assert chat(messages=history).choices[0].message.content
    several = {tuple(valid(call)[0] for call in choice.message.tool_calls)
               for choice in chat(**forced, n=8, tool_choice="required").choices}
    assert {name for names in several for name in names} == {"weather", "feed"}, several


def openai_tools_streamed():
    forced = {"tools": TOOLS, "max_tokens": 460, "temperature": 1, "seed": 5}
    for choice in ["required", NAMED]:
        whole = chat(**forced, tool_choice=choice).choices[0]
        calls, last = {}, None
        for event in chat(**forced, tool_choice=choice, stream=True):
            last = event.choices[0]
            for delta in last.delta.tool_calls or []:
                if delta.id:
                    assert delta.index not in calls and delta.function.name and delta.type == "function"
                    calls[delta.index] = [delta.function.name, ""]
                calls[delta.index][1] += delta.function.arguments or ""
        want = [[call.function.name, call.function.arguments] for call in whole.message.tool_calls]
        assert list(calls.values()) == want and last.finish_reason == whole.finish_reason
    with client.chat.completions.stream(model=MODEL, messages=LINE, **forced, tool_choice=NAMED) as stream:
        kinds = {event.type for event in stream}
        assert "tool_calls.function.arguments.done" in kinds, kinds


def openai_parse():
    for seed in range(3):
        parsed = client.chat.completions.parse(model=MODEL, messages=LINE, response_format=Pet, max_tokens=400, temperature=1, seed=seed)
        assert isinstance(parsed.choices[0].message.parsed, Pet)
    parsed = client.chat.completions.parse(model=MODEL, messages=LINE, tools=[openai.pydantic_function_tool(Pet)], tool_choice="required",
                                           parallel_tool_calls=False, max_tokens=200, temperature=1, seed=1)
    assert isinstance(parsed.choices[0].message.tool_calls[0].function.parsed_arguments, Pet)


def openai_refusal_and_logprobs():
    answer = chat(logprobs=True, top_logprobs=1).choices[0]
    assert "refusal" in answer.message.model_fields_set and "refusal" in answer.logprobs.model_fields_set
    for token in answer.logprobs.content:
        assert token.top_logprobs[0].logprob == token.logprob, token
    assert chat(logprobs=False, top_logprobs=0).choices[0].logprobs is None


def openai_stream_ends_with_its_own_event():
    *events, last = chat(stream=True)
    assert last.choices[0].finish_reason and not last.choices[0].delta.model_fields_set
    assert all(event.choices[0].finish_reason is None for event in events)


def openai_continued_message():
    messages = [*LINE, {"role": "assistant", "content": " sat on"}]
    extra = {"continue_final_message": True, "add_generation_prompt": False}
    assert chat(messages=messages, extra_body=extra).choices[0].message.content
    assert chat(messages=messages).choices[0].finish_reason


def openai_request_id():
    assert completion()._request_id.startswith("req_")
    assert completion(extra_headers={"X-Request-Id": "mine"})._request_id == "mine"


def openai_errors():
    error = refused(openai.BadRequestError, lambda: completion(temperature=-1))
    assert error.param == "temperature" and "temperature" in error.message
    error = refused(openai.BadRequestError, lambda: completion(prompt="once upon a time " * 400))
    assert error.code == "context_length_exceeded" and "maximum context length is" in error.message
    refused(openai.NotFoundError, lambda: completion(model="gpt-4"))
    refused(openai.BadRequestError, lambda: chat(response_format={"type": "xml"}))
    stranger = OpenAI(base_url=f"{ADDRESS}/v1", api_key="wrong", max_retries=0)
    refused(openai.AuthenticationError, lambda: stranger.models.list())


def openai_cancellation():
    wait_for("num_rows_running", 0)
    before = metric("requests_cancelled_total")
    # So many texts that they are still being written when the client leaves.
    stream = completion(stream=True, max_tokens=400, n=64, temperature=1, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    wait_for("num_rows_running", 0)
    assert metric("requests_cancelled_total") == before + 1


def openai_concurrency():
    alone = [completion(prompt=f"{PROMPT} {i}", max_tokens=8 + i).choices[0].text for i in range(16)]
    got = [None] * 16

    def one(i):
        got[i] = completion(prompt=f"{PROMPT} {i}", max_tokens=8 + i).choices[0].text

    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert got == alone


def curl(*args):
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--noproxy", "*",
               "-H", f"Authorization: Bearer {KEY}", *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def curl_posts():
    body = json.dumps({"prompt": PROMPT, "max_tokens": 24, "temperature": 0})
    json_type = ["-H", "Content-Type: application/json"]
    answer = json.loads(curl(f"{ADDRESS}/v1/completions", *json_type, "-d", body))
    assert answer["choices"][0]["text"] == completion().choices[0].text
    streamed = curl("--no-buffer", f"{ADDRESS}/v1/completions", *json_type, "-d", body[:-1] + ', "stream": true}')
    assert streamed.endswith("data: [DONE]\n\n") and streamed.startswith("data: {")
    assert curl("-o", "/dev/null", "-w", "%{http_code}", f"{ADDRESS}/v1/nothing") == "404"
    assert curl("-o", "/dev/null", "-w", "%{http_code}", f"{ADDRESS}/v1/completions", "-d", body) == "415"


def curl_asks_as_a_browser_does():
    question = ["-X", "OPTIONS", "-i", "-H", "Access-Control-Request-Method: POST",
                "-H", "Access-Control-Request-Headers: authorization,content-type"]
    head = curl(*question, "-H", f"Origin: {ORIGIN}", f"{ADDRESS}/v1/completions").lower()
    assert " 200" in head and f"access-control-allow-origin: {ORIGIN}" in head
    assert "access-control-allow-headers: authorization,content-type" in head
    assert "access-control-allow-origin" not in curl(*question, "-H", "Origin: http://evil.example", f"{ADDRESS}/v1/completions").lower()


def litellm():
    import litellm as lite

    lite.suppress_debug_info = True
    told = {"api_base": f"{ADDRESS}/v1", "api_key": KEY, "messages": LINE, "max_tokens": 16, "temperature": 0, "num_retries": 0}
    want = chat().choices[0].message.content
    for provider in ["openai", "hosted_vllm"]:
        name = f"{provider}/{MODEL}"
        assert lite.completion(model=name, **told).choices[0].message.content == want
        pieces = lite.completion(model=name, stream=True, **told)
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == want
        long = [{"role": "user", "content": "once upon a time " * 400}]
        refused(lite.ContextWindowExceededError, lambda: lite.completion(model=name, **{**told, "messages": long}))
        refused(lite.BadRequestError, lambda: lite.completion(model=name, **{**told, "max_tokens": -5}))


def langchain():
    from langchain_openai import ChatOpenAI, OpenAI as Completions

    told = {"base_url": f"{ADDRESS}/v1", "api_key": KEY, "model": MODEL, "temperature": 0, "max_retries": 0}
    talk = ChatOpenAI(max_tokens=16, **told)
    want = chat().choices[0].message.content
    assert talk.invoke(LINE[0]["content"]).content == want
    assert "".join(piece.text for piece in talk.stream(LINE[0]["content"])) == want
    answers = talk.batch([LINE[0]["content"]] * 4)
    assert [answer.content for answer in answers] == [want] * 4
    assert talk.invoke(LINE[0]["content"]).usage_metadata["output_tokens"] > 0
    assert Completions(max_tokens=24, **told).invoke(PROMPT) == completion().choices[0].text
    assert talk.bind_tools(TOOLS, tool_choice="none").invoke(LINE[0]["content"]).content == want
    warm = ChatOpenAI(max_tokens=400, seed=3, **{**told, "temperature": 1})
    for method in ["json_schema", "function_calling"]:
        assert isinstance(warm.with_structured_output(Pet, method=method).invoke(LINE[0]["content"]), Pet), method
    called = warm.bind_tools(TOOLS, tool_choice="any").invoke(LINE[0]["content"]).tool_calls
    assert called and all(call["name"] in ("weather", "feed") for call in called)
    two = Completions(max_tokens=8, **{**told, "temperature": 1, "n": 2, "best_of": 2}).generate([PROMPT])
    assert len(two.generations[0]) == 2


def openai_prompt_logprobs():
    # vLLM's own tests: test_prompt_logprobs_completion, test_prompt_logprobs_chat and test_echo_logprob_completion.
    both = {"prompt": ["A robot may not injure another robot", "My name is"], "max_tokens": 2}
    for asked in [0, 1]:
        extra = {"prompt_logprobs": asked}
        assert all(len(choice.prompt_logprobs) > 0 for choice in completion(extra_body=extra, **both).choices)
        assert len(chat(extra_body=extra).prompt_logprobs) > 0
    assert completion(**both).choices[0].prompt_logprobs is None and chat().prompt_logprobs is None
    for ask in [completion, chat]:
        refused(openai.BadRequestError, lambda: ask(extra_body={"prompt_logprobs": -1}))
    for prompt in ["Hello, my name is", [0, 0, 0, 0, 0]]:
        for asked in [0, 1]:
            found = completion(prompt=prompt, max_tokens=5, echo=True, logprobs=asked).choices[0].logprobs
            assert len(found.text_offset) == len(found.tokens) > 5
            assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
            assert all(max(asked, 1) <= len(top) <= asked + 1 for top in found.top_logprobs[1:])
    extra = {"prompt_logprobs": 2}
    scores = completion(max_tokens=1, extra_body=extra).choices[0].prompt_logprobs
    assert scores[0] is None and all(min(score["rank"] for score in at.values()) == 1 for at in scores[1:])
    echoed = completion(echo=True, logprobs=2, max_tokens=0).choices[0]
    assert echoed.text == PROMPT and "".join(echoed.logprobs.tokens) == PROMPT
    for at, logprob in zip(scores[1:], echoed.logprobs.token_logprobs[1:]):
        assert any(score["logprob"] == logprob for score in at.values())
    refused(openai.BadRequestError, lambda: completion(stream=True, extra_body=extra))


def openai_cached_tokens():
    text = "A prompt that nobody else here sends, long enough to fill at least one block of sixteen tokens."
    cached = [completion(prompt=text).usage.prompt_tokens_details.cached_tokens for _ in range(2)]
    assert cached[0] == 0 and cached[1] >= 16, cached
    assert completion().system_fingerprint == chat().system_fingerprint


def lm_evaluation_harness():
    from evaluation import RECORDED, ROOT, score

    os.environ["OPENAI_API_KEY"] = KEY
    want = json.loads(RECORDED.read_text())["story-230k"]
    told = {"model": MODEL, "base_url": f"{ADDRESS}/v1/completions", "tokenizer": str(ROOT / "models/story-230k")}
    for sends_ids in [True, False]:
        got = score("local-completions", tokenized_requests=sends_ids, max_length=512, **told)
        assert (got["acc"], got["acc_norm"]) == (want["acc"], want["acc_norm"]), got
        pairs = [pair for both in zip(got["logprobs"], want["logprobs"]) for pair in zip(*both)]
        assert len(pairs) == 120 and max(abs(a - b) for a, b in pairs) < 1e-3


def pydantic_ai():
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.exceptions import UsageLimitExceeded
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{ADDRESS}/v1", api_key=KEY))
    settings = {"temperature": 1, "max_tokens": 300, "parallel_tool_calls": False}
    called = set()
    for seed in range(20):
        agent = Agent(model, output_type=Pet, model_settings={**settings, "seed": seed})

        @agent.tool_plain
        def weather(city: Literal["Oslo", "Rome"]) -> str:
            called.add("weather")
            return " It rained."

        @agent.tool_plain
        def feed(pet: Literal["cat", "dog"], snacks: Literal[1, 2, 3]) -> str:
            called.add("feed")
            return f" The {pet} ate."

        try:
            assert isinstance(agent.run_sync(LINE[0]["content"], usage_limits=UsageLimits(request_limit=6)).output, Pet)
        except UsageLimitExceeded:
            continue  # the model called tools, again and again
        if called == {"weather", "feed"}:
            break
    assert called == {"weather", "feed"}, called
    native = Agent(model, output_type=NativeOutput(Pet), model_settings={**settings, "seed": 1})
    assert isinstance(native.run_sync(LINE[0]["content"]).output, Pet)


def instructor():
    import instructor as library

    for mode in [library.Mode.TOOLS, library.Mode.JSON_SCHEMA, library.Mode.TOOLS_STRICT]:
        patched = library.from_openai(client, mode=mode)
        asked = {"model": MODEL, "messages": LINE, "max_tokens": 400, "temperature": 1, "seed": 2, "max_retries": 0}
        assert isinstance(patched.chat.completions.create(response_model=Pet, **asked), Pet), mode


CHECKS = [openai_models, openai_whole, openai_stream, openai_chat, openai_chat_stream_helper, openai_n_and_seed,
          openai_several_prompts, openai_stop, openai_logprobs, openai_extra_fields, openai_seed_of_minus_one,
          openai_rules_for_tokens, openai_echo, openai_best_of, openai_tools, openai_tools_streamed, openai_parse, openai_refusal_and_logprobs,
          openai_stream_ends_with_its_own_event, openai_continued_message, openai_request_id, openai_errors,
          openai_cancellation, openai_concurrency, openai_prompt_logprobs, openai_cached_tokens, curl_posts,
          curl_asks_as_a_browser_does, litellm, langchain, pydantic_ai]

if __name__ == "__main__":
    failed = 0
    # These need packages of their own, so their checks are only run by name.
    checks = [check for check in [*CHECKS, instructor, lm_evaluation_harness] if check.__name__ in sys.argv[2:]] or CHECKS
    for check in checks:
        try:
            check()
            print(f"ok      {check.__name__}", flush=True)
        except Exception as error:  # report every check, whatever it fails with
            failed += 1
            print(f"FAILED  {check.__name__}: {type(error).__name__}: {error}", flush=True)
    print(f"test result: {len(checks) - failed} passed; {failed} failed;")
    sys.exit(1 if failed else 0)
