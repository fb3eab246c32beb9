"""An agent on your own engine: a model that writes stories calls two tools, and tells what came of it.

    pip install -r examples/agent/requirements.txt
    cargo xtask serve --mine
    python examples/agent/agent.py http://127.0.0.1:8000

The model never chooses: its answer has to match the schema of the tools, and where the schema leaves a choice, the sampler
draws one. `qwen3.py` is the same for a model that knows what a tool is.
"""

import os
import sys
import urllib.request
import json
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

ADDRESS = (sys.argv[1:] or ["http://127.0.0.1:8000"])[0].rstrip("/")
KEY = os.environ.get("CANDECODE_API_KEY", "none")
QUESTION = "Once upon a time, there was a little girl named Lily. She had a cat."
THERE = {"garden": "a big dog", "pond": "a sad frog", "kitchen": "a red ball"}


def look(where: Literal["garden", "pond", "kitchen"]) -> str:
    """Looks around at a place, and says what is there."""
    return f"In the {where}, there was {THERE[where]}."


def give(who: Literal["cat", "dog", "frog"], what: Literal["fish", "ball", "hug"]) -> str:
    """Gives something to an animal."""
    return f"Lily gave the {who} a {what}."


class Ending(BaseModel):
    """Ends the story."""

    text: Annotated[str, Field(max_length=120)]


def model():
    """The model of the server, whatever its name."""
    asked = urllib.request.Request(f"{ADDRESS}/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    name = json.load(urllib.request.urlopen(asked))["data"][0]["id"]
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{ADDRESS}/v1", api_key=KEY))


def show(result):
    """Prints what the model called, and what it got."""
    for message in result.all_messages():
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                print(f"model  {part.tool_name} {part.args_as_json_str()}")
            elif isinstance(part, ToolReturnPart) and isinstance(message, ModelRequest) and part.tool_name in ("look", "give"):
                print(f"tool   {part.content}")


if __name__ == "__main__":
    for seed in range(3):
        agent = Agent(model(), tools=[look, give], output_type=Ending, retries=0, model_settings={
            "temperature": 1, "seed": seed, "max_tokens": 150, "parallel_tool_calls": False})
        print(f"seed {seed}\nuser   {QUESTION}")
        show(agent.run_sync(QUESTION, usage_limits=UsageLimits(request_limit=12)))
        print()
