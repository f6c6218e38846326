"""Agents whose model is the scripted provider, in each format that the server speaks itself."""

from __future__ import annotations

import itertools
import json

from tests.e2e.client import Client
from tests.fakes.provider import Provider, Script

PROVIDERS = {
    "openai": ("openai", "openai_chat"),
    "responses": ("openai", "openai_responses"),
    "anthropic": ("anthropic", "anthropic_messages"),
    "gemini": ("gemini", "gemini"),
    "litellm": ("anthropic", "openai_chat"),
}
"""Provider and format of each model. LiteLLM reaches Anthropic in OpenAI's format."""
_numbers = itertools.count(1)


class Scripted:
    """Makes agents; each has a model name of its own, and with it scripts and requests of its own."""

    def __init__(self, client: Client, provider: Provider, speaks: str) -> None:
        self.client = client
        self.provider = provider
        self.speaks = speaks
        """One of `PROVIDERS`."""
        self.model = ""

    async def agent(
        self,
        *scripts: Script,
        tools: tuple[str, ...] = ("wonder/std/remember", "wonder/std/recall"),
        moves: int = 20,
        assembly: str = "",
        extraction: str = "none",
        model: str = "",
        window: dict[str, object] | None = None,
        limits: dict[str, int] | None = None,
        show_reasoning: bool = False,
        persona: dict[str, object] | None = None,
        **profile: object,
    ) -> str:
        """An agent whose model plays ``scripts``; ``profile`` are the model profile's times and parameters,
        ``window`` and ``limits`` what its persona says of them, ``persona`` its further fields. ``model``: a
        name that the price table has. Its name."""
        number = next(_numbers)
        provider, format_name = PROVIDERS[self.speaks]
        self.model = model or f"scripted-{number}"
        self.provider.script(self.model, *scripts)
        name = f"{self.speaks}_{number}"
        document = {
            "name": f"profile_{number}",
            "model_profile": {
                "provider": provider,
                "model": self.model,
                "format": format_name,
                **profile,
            },
        }
        declared = {
            "name": name,
            "persona": {
                "system_prompt": "You are played by a script.",
                "model_profile_id": f"profile_{number}",
                **({"memory_extraction_workflow_id": extraction} if extraction else {}),
                **({"context_assembly_workflow_id": assembly} if assembly else {}),
                "tool_ids": list(tools),
                "constraints": {"max_moves_per_turn": moves, **(limits or {})},
                **({"context_window": window} if window else {}),
                "show_reasoning": show_reasoning,
                **(persona or {}),
            },
        }
        await self.client.apply("e2e/scripted", f"{json.dumps(document)}\n---\n{json.dumps(declared)}")
        await self.client.agent(name, f"e2e/scripted/{name}")
        return name

    @property
    def requests(self) -> list[dict[str, object]]:
        """Return the bodies of the requests to the newest agent's model."""
        return [seen.body for seen in self.provider.requests if seen.model == self.model]

    async def until_closed_early(self) -> None:
        """Wait until the server has closed its connection to the newest agent's model."""
        await self.provider.wait_until(
            lambda: any(seen.closed_early for seen in self.provider.requests if seen.model == self.model)
        )
