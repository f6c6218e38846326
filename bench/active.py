"""Memory of turns in progress: 500 of them, each in the middle of its answer.

The model is a provider on loopback that sends one word a second, so each turn holds an HTTP connection and
the text read from it. All conversations and their streams are open before the measurement. Some have had
turns, so that memory allocated once does not count.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from client import Client
from measure import Effort, Number
from servers import provider, wonder

WARM, TURNS = 100, 500
AT_ONCE = 50
SETTLE_S = 1.0
MOST_KB = 100
KB = 1 << 10
MODEL = "100000@1000"


async def measure(_effort: Effort) -> list[Number]:
    with provider() as speaker:
        own = await _per_turn(
            {
                "WONDER_OPENAI_BASE_URL": f"{speaker.address}/v1",
                "OPENAI_API_KEY": "none",
            },
            {"provider": "openai", "model": MODEL, "format": "MODEL_FORMAT_OPENAI_CHAT"},
        )
    within = await _per_turn({}, {"provider": "offline", "parameters": {"token_delay_ms": 1000}})
    return [
        Number(name="memory per active turn", value=own / KB, unit="KB", aim=MOST_KB),
        Number(name="memory per active turn, no provider", value=within / KB, unit="KB", aim=MOST_KB),
    ]


async def _per_turn(environ: dict[str, str], profile: dict[str, object]) -> float:
    """Return the bytes for each of `TURNS` turns in progress, beyond the first `WARM` turns."""
    with wonder(environ=environ) as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            agent = await client.agent("speaker", profile=profile)
            conversations = await asyncio.gather(*(client.conversation(agent) for _ in range(WARM + TURNS)))
            chats = [
                await open_chats.enter_async_context(client.chat(conversation, index))
                for index, conversation in enumerate(conversations)
            ]
            await asyncio.gather(*(chat.first_token("say 300 words") for chat in chats[:WARM]))
            await asyncio.sleep(SETTLE_S)
            before = server.rss
            for start in range(WARM, WARM + TURNS, AT_ONCE):
                some = chats[start : start + AT_ONCE]
                await asyncio.gather(*(chat.first_token("say 300 words") for chat in some))
            await asyncio.sleep(SETTLE_S)
            return (server.rss - before) / TURNS
