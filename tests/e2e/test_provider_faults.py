"""Turns whose providers misbehave in every way, in mixture, on one server: 248, and 1,000 in a deep run.

Each turn ends with the status that the table in `provider_faults` says; the record holds
each message, move and event once; a provider is asked exactly as often as its profile allows; whatever is not
waited for any more is hung up on, and afterwards nothing is left.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.conformance.models.subjects import KEY
from tests.depth import by_depth
from tests.e2e.client import TURN_ENDS, Client, View
from tests.e2e.journals import assert_replays
from tests.e2e.process import Server, serving
from tests.e2e.provider_faults import CALL_MS, CASES, COMPLETED, HALF, PATIENCE_MS, Case
from tests.e2e.scripted import Scripted
from tests.fakes.provider import BY_WORD, Provider, Script, running_provider
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1.conversation_pb2 import AgentParticipant, Participant

pytestmark = pytest.mark.asyncio(loop_scope="session")

TURNS, TURNS_EACH = by_depth(248, 1_000), 8
"""Number of turns in total and in one conversation; the second divides the first. Turns are sequential in
every fifth conversation, else concurrent."""
CONCURRENT_CONVERSATIONS = 40
FORMATS = ("openai", "responses", "anthropic", "gemini")
LITELLM_EVERY = 12
"""Every so manyth conversation goes through LiteLLM, which costs ten times as much."""
PATIENCE_S = 300
"""Time after which a turn is taken to hang."""
PUNCTUAL_S = 0.45
"""By so much two requests may seem nearer to each other than the pause between them was."""


@dataclass
class Play:
    """A turn: its case, and the word by which its scripts, its tool calls and its messages are known."""

    case: Case
    word: str
    agent: str = ""
    turn_id: str = ""


class Agents(NamedTuple):
    """The same twice, by name: with the platform's patience, and with little."""

    patient: str
    hasty: str


@dataclass
class FaultyConversation:
    """A conversation: the format of its agent's model, and its turns, concurrent or one by one."""

    speaks: str
    plays: list[Play]
    side_by_side: bool
    id: str = ""


@pytest_asyncio.fixture(loop_scope="session")
async def bad_provider() -> AsyncIterator[Provider]:
    async with running_provider() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def patient(bad_provider: Provider, tmp_path: Path) -> AsyncIterator[Server]:
    """A server of this test's own, whose requests all go to `bad_provider`."""
    url = bad_provider.url
    environment = {
        "WONDER_DEFAULT_MODEL": "offline",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "WONDER_OPENAI_BASE_URL": f"{url}/v1",
        "WONDER_ANTHROPIC_BASE_URL": url,
        "WONDER_GEMINI_BASE_URL": url,
    }
    async with serving(tmp_path / "data", environment=environment) as running:
        yield running


async def test_turns_with_every_fault(patient: Server, bad_provider: Provider, tmp_path: Path) -> None:
    # A seed with which both numbers of turns draw each of the cases.
    dice = random.Random(20_261_121)
    convs = mixture(dice)
    async with patient.client() as client:
        agents = {speaks: await pair(client, bad_provider, speaks) for speaks in (*FORMATS, "litellm")}
        bad_provider.script("first", Script(text="There."))
        # Its helper imports for seconds, which are not the provider's.
        while not bad_provider.of("first"):
            await client.turn(await client.open(agents["litellm"].patient), "first")

        at_once = asyncio.Semaphore(CONCURRENT_CONVERSATIONS)

        async def one(conv: FaultyConversation) -> View:
            async with at_once:
                return await played(client, bad_provider, agents[conv.speaks], conv)

        views = await asyncio.gather(*map(one, convs))
        problems = []
        for conv, view in zip(convs, views, strict=True):
            problems += await wrong_in_conversation(client, conv, view)
            for play in conv.plays:
                problems += await wrong_in_turn(client, bad_provider, conv, play, view)
        for name in [each.patient for each in agents.values()]:
            written = Counter(await client.memories(name))
            wanted = Counter(
                p.word for conv in convs for p in conv.plays if p.agent == name and p.case.written
            )
            problems += [f"{name}: wrote {written - wanted}, not {wanted - written}"] * (written != wanted)
        assert not problems, "\n".join([f"{len(problems)} problems", *problems[:20]])

        # Nothing is left, at the provider or in the server, and it serves on.
        async with asyncio.timeout(60):
            await bad_provider.wait_until(lambda: not bad_provider.open)
        bad_provider.script("last", Script(text="All is well."))
        for name in [name for each in agents.values() for name in each]:
            _, view = await client.turn(await client.open(name), "last")
            assert view.text() == "All is well."
    assert await patient.stop() == 0
    assert not [line for line in patient.log if line.get("level") == "error"]
    assert KEY not in str(patient.log)
    for shard in (tmp_path / "data" / "shards").glob("*.db"):
        with closing(sqlite3.connect(shard)) as database:
            assert database.execute("SELECT count(*) FROM operations").fetchone() == (0,)
    assert await assert_replays(tmp_path / "data") >= len(convs)


def mixture(dice: random.Random) -> list[FaultyConversation]:
    """Conversations in every way of speaking, with cases by their weight; those that take longest first."""
    count = TURNS // TURNS_EACH
    convs = []
    for number in range(count):
        speaks = "litellm" if number % LITELLM_EVERY == 5 else FORMATS[number % len(FORMATS)]
        cases = [case for case in CASES if case.litellm or speaks != "litellm"]
        drawn = dice.choices(cases, [case.weight for case in cases], k=TURNS_EACH)
        plays = [Play(case, f"turn{number:03}x{index}") for index, case in enumerate(drawn)]
        convs.append(FaultyConversation(speaks, plays, side_by_side=bool(number % 5)))
    played = Counter(play.case.name for conv in convs for play in conv.plays)
    assert len(played) == len(CASES) and sum(played.values()) == TURNS
    return sorted(convs, key=lambda conv: conv.side_by_side)


async def pair(client: Client, provider: Provider, speaks: str) -> Agents:
    scripted, tools = Scripted(client, provider, speaks), ("wonder/std/remember",)
    hasty = await scripted.agent(
        model=BY_WORD,
        tools=tools,
        timeout_ms=CALL_MS,
        first_token_timeout_ms=PATIENCE_MS,
        chunk_timeout_ms=PATIENCE_MS,
    )
    return Agents(patient=await scripted.agent(model=BY_WORD, tools=tools), hasty=hasty)


async def played(client: Client, provider: Provider, agents: Agents, conv: FaultyConversation) -> View:
    """Play all these turns; return the view of a client that attached at the start."""
    participants = [Participant(agent=AgentParticipant(agent_id=name)) for name in agents]
    opened = pb.CreateConversationRequest(conversation=conversation.Conversation(participants=participants))
    conv.id = (await client.conversations.CreateConversation(opened)).conversation.id
    async with client.listening(conv.id) as listener:
        if conv.side_by_side:
            await asyncio.gather(*(begun(client, provider, agents, conv, play) for play in conv.plays))
        else:
            for play in conv.plays:
                await begun(client, provider, agents, conv, play)
                await listener.until(partial(settled, [play]), PATIENCE_S)
        return await listener.until(partial(settled, conv.plays), PATIENCE_S)


def settled(plays: list[Play], view: View) -> bool:
    return all(view.settled(play.turn_id) for play in plays)


async def begun(
    client: Client, provider: Provider, agents: Agents, conv: FaultyConversation, play: Play
) -> None:
    play.agent = agents.hasty if play.case.hasty else agents.patient
    provider.script(play.word, *(filled(script, play.word) for script in play.case.scripts))
    send = pb.ConverseSend(content=f"{play.word} please.", agent_id=play.agent)
    request = pb.SendMessageRequest(conversation_id=conv.id, send=send)
    play.turn_id = (await client.conversations.SendMessage(request)).turn.id
    if play.case.cancel:
        async with asyncio.timeout(60):
            await provider.wait_until(lambda: len(provider.of(play.word)) >= play.case.requests)
        cancel = pb.CancelTurnRequest(conversation_id=conv.id, turn_id=play.turn_id)
        await client.conversations.CancelTurn(cancel)


def filled(script: Script, word: str) -> Script:
    calls = tuple(replace(call, arguments=call.arguments.replace("{word}", word)) for call in script.calls)
    return replace(script, calls=calls)


# --- what there should be ---------------------------------------------------------------------------


async def wrong_in_conversation(client: Client, played: FaultyConversation, view: View) -> list[str]:
    """Return the errors in the record and the stream of a conversation."""
    conv, problems = played.id, []
    events = await client.events(conv)
    if events != view.events:
        problems.append(f"{conv}: the stream differs from the record")
    if [event.sequence for event in events] != list(range(1, len(events) + 1)):
        problems.append(f"{conv}: events out of sequence")
    messages = await client.messages(conv)
    if len({message.id for message in messages}) != len(messages):
        problems.append(f"{conv}: a message twice")
    if {message.id: message for message in messages} != view.messages:
        problems.append(f"{conv}: the messages of the stream differ from the record")
    if any(view.texts.values()):
        problems.append(f"{conv}: text without an end: {view.texts}")
    got = await client.conversations.GetConversation(pb.GetConversationRequest(conversation_id=conv))
    if (
        got.conversation.status != conversation.CONVERSATION_STATUS_ACTIVE
        or got.conversation.turn_count != len(played.plays)
    ):
        problems.append(f"{conv}: {got.conversation}")
    return problems


async def wrong_in_turn(
    client: Client, provider: Provider, conv: FaultyConversation, play: Play, view: View
) -> list[str]:
    case = play.case
    turn = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=play.turn_id))).turn
    moves = await client.moves(turn.id, conv.id)
    names = view.of_turn(turn.id)
    said = [
        m
        for m in view.messages.values()
        if m.turn_id == turn.id and m.role == conversation.MESSAGE_ROLE_AGENT
    ]
    asked = provider.of(play.word)
    pauses = [after.at - before.at for before, after in itertools.pairwise(asked)]
    results = [((move.id, r.tool_call_id), r.success) for move in moves for r in move.tool_results]
    found: dict[str, Any] = {
        # A lost connection is the one kind that depends on where exactly it was cut.
        "status": (
            turn.status,
            turn.error.reason,
            turn.error.metadata.get("kind", "").replace("unreachable", ""),
        ),
        "requests": len(asked),
        "model calls": turn.usage.model_calls,
        "ends": [name for name in names if name in TURN_ENDS],
        "operations": len(turn.operations),
        "moves": [move.sequence for move in moves],
        "dispatched": names.count("tool.dispatched"),
        "results": sorted(success for _, success in results),
        "results of one call": max(Counter(call for call, _ in results).values(), default=0),
        "failures": turn.issues.tool_failures,
        "said": tuple(m.content for m in said if not m.partial),
        "user": sum(m.turn_id == turn.id for m in view.messages.values()) - len(said),
    }
    answers = case.written + case.failures + len(case.said)
    wanted = {
        "status": (case.status, case.reason, case.kind),
        "requests": case.requests,
        "model calls": case.requests,
        "ends": [
            {"COMPLETED": "turn.completed", "FAILED": "turn.failed", "CANCELLED": "turn.cancelled"}[
                conversation.TurnStatus.Name(case.status).removeprefix("TURN_STATUS_")
            ]
        ],
        "operations": 0,
        "moves": list(range(1, answers + 1)),
        "dispatched": case.written,
        "results": sorted([True] * case.written + [False] * case.failures),
        "results of one call": 1 if case.written + case.failures else 0,
        "failures": case.failures,
        "said": case.said,
        "user": 1,
    }
    if case.hasty and case.status == COMPLETED and len(asked) == 3:
        # A busy machine was too slow once more, for one who is in a hurry.
        wanted |= {"requests": 3, "model calls": 3}
    problems = [f"{key}: {found[key]}, not {wanted[key]}" for key in wanted if found[key] != wanted[key]]
    half = [m.content for m in said if m.partial]
    whole = case.scripts[-1].text if case.name.startswith("endless") else HALF
    if len(half) > int(case.half) or any(not whole.startswith(text) for text in half):
        problems.append(f"partial: {half}")
    # What goes through a helper may come late.
    if conv.speaks != "litellm" and any(
        pause < wait - PUNCTUAL_S for pause, wait in zip(pauses, case.waits_s, strict=False)
    ):
        problems.append(f"pauses: {pauses}")
    if KEY in str(turn):
        problems.append("the key")
    return [f"{play.word} {case.name} {play.agent}: {problem}" for problem in problems]
