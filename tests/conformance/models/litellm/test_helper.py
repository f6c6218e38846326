"""The start and end of the LiteLLM helper process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conformance.models.conftest import litellm_model
from tests.conformance.models.subjects import KEY, ask, collect
from tests.fakes.provider import Provider
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.models.litellm.model import LiteLLMModel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = ModelProfile(provider="openai", model="text")
STALLED = ModelProfile(provider="openai", model="stall-chunks")
HELLO = ask("openai_chat", "Hi")


async def test_litellm_is_never_imported_in_the_servers_process(
    litellm: LiteLLMModel, provider: Provider
) -> None:
    await collect(litellm, TEXT, HELLO)

    assert "litellm" not in sys.modules


async def test_the_key_is_neither_on_the_command_line_nor_in_the_environment(
    litellm: LiteLLMModel, provider: Provider
) -> None:
    await collect(litellm, TEXT, HELLO)

    for what in ("cmdline", "environ"):
        assert KEY.encode() not in shown(helper_pid(litellm), what)


async def test_a_helper_that_dies_fails_its_calls_and_the_next_call_starts_another(
    provider: Provider,
    egress: Egress,
) -> None:
    model = litellm_model(provider, egress)
    in_flight = asyncio.create_task(collect(model, STALLED, HELLO))
    await provider.wait_until(lambda: len(provider.requests) == 1)
    first = helper_pid(model)

    os.kill(first, signal.SIGKILL)

    with pytest.raises(WonderError) as raised:
        await in_flight
    assert (raised.value.fault.reason, raised.value.fault.transient) == (Reason.MODEL_UNAVAILABLE, True)
    _, result = await collect(model, TEXT, HELLO)
    assert result.text == "Hello there, this is a scripted answer."
    assert helper_pid(model) != first
    await model.close()


async def test_closing_ends_the_helper_and_the_calls_in_flight(provider: Provider, egress: Egress) -> None:
    model = litellm_model(provider, egress)
    in_flight = asyncio.create_task(collect(model, STALLED, HELLO))
    await provider.wait_until(lambda: len(provider.requests) == 1)
    pid = helper_pid(model)

    await model.close()

    with pytest.raises(WonderError):
        await in_flight
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(WonderError, match="stopping"):
        await collect(model, TEXT, HELLO)


async def test_closing_while_the_helper_starts_leaves_nothing_behind(
    provider: Provider, egress: Egress
) -> None:
    model = litellm_model(provider, egress)
    call = asyncio.create_task(collect(model, TEXT, HELLO))
    await asyncio.sleep(0)  # The call begins to start the helper.

    await model.close()

    with pytest.raises((WonderError, asyncio.CancelledError)):
        await call


async def test_a_cancelled_call_does_not_stop_the_start_of_the_helper(
    provider: Provider, egress: Egress
) -> None:
    model = litellm_model(provider, egress)
    impatient = asyncio.create_task(collect(model, TEXT, HELLO))
    patient = asyncio.create_task(collect(model, TEXT, HELLO))
    await asyncio.sleep(0)

    impatient.cancel()

    _, result = await patient
    assert result.text
    assert impatient.cancelled()
    await model.close()


async def test_the_helper_ends_with_its_server() -> None:
    """Kill a server, which closes nothing, and wait for the helper to exit."""
    server = textwrap.dedent(
        """
        import asyncio
        from wonder_server.adapters.egress.proxy import Egress
        from wonder_server.adapters.models.litellm.model import LiteLLMModel

        async def main():
            helper = await LiteLLMModel({}, Egress(), allow_remote=False)._helper()
            print(helper.process_id, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", server, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    helper = os.pidfd_open(int(await process.stdout.readline()))
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(helper, gone.set)

    process.kill()

    try:
        async with asyncio.timeout(60):
            await gone.wait()
    finally:
        asyncio.get_running_loop().remove_reader(helper)
        os.close(helper)
        await process.wait()


def shown(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


def helper_pid(model: LiteLLMModel) -> int:
    starting = model._starting
    assert starting is not None
    return starting.result().process_id
