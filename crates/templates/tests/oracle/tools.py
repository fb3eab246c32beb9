"""Tools, calls, results and thoughts: transformers' `apply_chat_template` on the templates of `tool_templates/`."""
import pathlib

import common
import jinja2
from transformers import PreTrainedTokenizerFast

TEMPLATES = pathlib.Path(__file__).parent / "tool_templates"

user = lambda text: {"role": "user", "content": text}
assistant = lambda text, **more: {"role": "assistant", "content": text, **more}
result = lambda text, **more: {"role": "tool", "content": text, **more}


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def call(name, id="a", **arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = tool("weather", "Says how the weather is: \"rain\" & sun, in °C", city={"type": "string", "description": "a <city>"},
               unit={"enum": ["celsius", None, 1.5, True]})
FEED = tool("feed", "Feeds a pet 🐈", snacks={"type": "integer", "minimum": 1}, pet={"anyOf": [{"type": "string"}, {"type": "null"}]})
BARE = {"type": "function", "function": {"name": "bare"}}
HISTORIES = {
    "a question": [user("What is the weather?")],
    "a call": [user("Weather?"), assistant("", tool_calls=[call("weather", city="Zürich", unit=None)]), result("rain", tool_call_id="a")],
    "a call after words and thoughts": [user("Weather?"), assistant("Let me see.", reasoning_content="Look it up.", tool_calls=[call("weather", city="a\n\"b\"")]),
                                        result("{\"t\": 4}", tool_call_id="a", name="weather"), assistant("4 degrees."), user("Thanks")],
    "two calls": [user("Both"), assistant("", tool_calls=[call("weather", "x"), call("feed", "y", snacks=3, pet=[1, {"z": 2, "a": 1.0}])]),
                  result("rain", tool_call_id="x"), result("fed", tool_call_id="y"), user("And?")],
    "a call that was cut short": [user("Weather?"), assistant("", tool_calls=[{"type": "function", "function": {"name": "weather", "arguments": "{\"ci"}}]), user("Well?")],
}


def generate(oracle):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(common.MODELS / "story-3m")
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    oracle.data["histories"] = HISTORIES
    oracle.data["tools"] = {"none": [], "one": [WEATHER], "three": [FEED, WEATHER, BARE]}
    oracle.data["cases"] = []
    for path in sorted(TEMPLATES.glob("*.jinja")):
        for name, messages in HISTORIES.items():
            for count, tools in oracle.data["tools"].items():
                case = {"template": path.stem, "history": name, "tools": count}
                try:
                    case["text"] = tokenizer.apply_chat_template(messages, tools=tools or None, chat_template=path.read_text(),
                                                                 add_generation_prompt=True, tokenize=False)
                except jinja2.exceptions.TemplateError as refused:
                    case["refused"] = str(refused)
                oracle.data["cases"].append(case)
