"""The agent of `agent.py` with a model that chooses its tools: Qwen 3, with 0.6 billion parameters (1.5 GB).

    cargo xtask serve --model Qwen/Qwen3-0.6B
    python examples/agent/qwen3.py http://127.0.0.1:8000

Nothing is enforced here: the model sees the tools in its prompt, calls them or doesn't, and answers in its own words.
"""

from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits

from agent import give, look, model

QUESTION = "Lily has a fish. Look into the garden and at the pond, and give the fish to an animal that you found there. What happened?"

if __name__ == "__main__":
    settings = {"temperature": 0.6, "top_p": 0.95, "seed": 1, "max_tokens": 2000}
    agent = Agent(model(), tools=[look, give], model_settings=settings)
    print(agent.run_sync(QUESTION, usage_limits=UsageLimits(request_limit=8)).output)
