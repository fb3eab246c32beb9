"""An agent on your own engine: a model that writes stories calls two tools, and ends the story.

    pip install -r examples/agent/requirements.txt
    cargo xtask serve
    python examples/agent/agent.py http://127.0.0.1:8000

The model doesn't know what a tool is. Its answer has to match the schema of the tools, and where the schema leaves a choice,
the sampler draws one. `qwen3.py` is the same for a model that knows.
"""

import json
import os
import sys
import urllib.request
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

ADDRESS = (sys.argv[1:] or ["http://127.0.0.1:8000"])[0].rstrip("/")
KEY = os.environ.get("CANDECODE_API_KEY", "none")
BEGINNING = "Once upon a time, there was a little girl named Lily. She had a cat."
THERE = {"garden": "a big dog", "pond": "a sad frog", "kitchen": "a red ball"}


def happened(call, what):
    print(f"  {call}: {what}")
    return what


# ANCHOR: tools
def look(where: Literal["garden", "pond", "kitchen"]) -> str:
    """Looks around at a place, and says what is there."""
    return happened(f"look {where}", f"In the {where}, there was {THERE[where]}.")


def give(who: Literal["cat", "dog", "frog"], what: Literal["fish", "ball", "hug"]) -> str:
    """Gives something to an animal."""
    return happened(f"give {who} {what}", f"Lily gave the {who} a {what}.")


class Ending(BaseModel):
    """Ends the story."""

    text: Annotated[str, Field(max_length=120)]
# ANCHOR_END: tools


def model():
    """The model of the server, whatever its name is."""
    asked = urllib.request.Request(f"{ADDRESS}/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    name = json.load(urllib.request.urlopen(asked))["data"][0]["id"]
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{ADDRESS}/v1", api_key=KEY))


def tell(seed):
    # ANCHOR: agent
    settings = {"temperature": 1, "max_tokens": 200, "parallel_tool_calls": False}
    agent = Agent(model(), tools=[look, give], output_type=Ending,
                  model_settings=lambda run: {**settings, "seed": 100 * seed + run.run_step})
    result = agent.run_sync(BEGINNING, usage_limits=UsageLimits(request_limit=8))
    # ANCHOR_END: agent
    print(f"  end: {result.output.text}")


if __name__ == "__main__":
    print(BEGINNING)
    for seed in [6, 24, 43, 34]:
        print(f"seed {seed}")
        try:
            tell(seed)
        except UsageLimitExceeded:
            print("  …and so on: this story didn't end within eight requests")
