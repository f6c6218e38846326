"""Python client of Wonder, the platform server for AI agents.

`Client` is the entry point for asyncio, `wonder_sdk.sync.Client` for programs without it. ``v1`` contains the
contract's messages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wonder_sdk._proto.wonder import v1 as v1
    from wonder_sdk.client import Client as Client
    from wonder_sdk.conversation.chat import Chat as Chat
    from wonder_sdk.conversation.event_cursor import Item as Item
    from wonder_sdk.conversation.event_cursor import MessageRestarted as MessageRestarted
    from wonder_sdk.conversation.event_cursor import ReasoningDelta as ReasoningDelta
    from wonder_sdk.conversation.event_cursor import TextDelta as TextDelta
    from wonder_sdk.conversation.event_cursor import ToolArgumentsDelta as ToolArgumentsDelta
    from wonder_sdk.conversation.reply import Events as Events
    from wonder_sdk.conversation.reply import Reply as Reply
    from wonder_sdk.conversation.transcripts import Transcript as Transcript
    from wonder_sdk.conversation.transcripts import read_transcripts as read_transcripts
    from wonder_sdk.conversation.turn_stream import TurnStream as TurnStream
    from wonder_sdk.errors import AbortedError as AbortedError
    from wonder_sdk.errors import AlreadyExistsError as AlreadyExistsError
    from wonder_sdk.errors import CallCancelledError as CallCancelledError
    from wonder_sdk.errors import DeadlineExceededError as DeadlineExceededError
    from wonder_sdk.errors import FailedPreconditionError as FailedPreconditionError
    from wonder_sdk.errors import InternalError as InternalError
    from wonder_sdk.errors import InvalidArgumentError as InvalidArgumentError
    from wonder_sdk.errors import NotFoundError as NotFoundError
    from wonder_sdk.errors import OutOfRangeError as OutOfRangeError
    from wonder_sdk.errors import PermissionDeniedError as PermissionDeniedError
    from wonder_sdk.errors import RequestError as RequestError
    from wonder_sdk.errors import ResourceExhaustedError as ResourceExhaustedError
    from wonder_sdk.errors import TurnCancelledError as TurnCancelledError
    from wonder_sdk.errors import TurnFailedError as TurnFailedError
    from wonder_sdk.errors import UnauthenticatedError as UnauthenticatedError
    from wonder_sdk.errors import UnavailableError as UnavailableError
    from wonder_sdk.errors import UnimplementedError as UnimplementedError
    from wonder_sdk.errors import Violation as Violation
    from wonder_sdk.errors import WonderError as WonderError
    from wonder_sdk.methods.runs import Run as Run
    from wonder_sdk.transport.reconnect import ReconnectPolicy as ReconnectPolicy
    from wonder_sdk.worker.worker import ActionError as ActionError
    from wonder_sdk.worker.worker import Worker as Worker
    from wonder_sdk.worker.worker import WorkerContext as WorkerContext

__version__ = "0.1.0"

_HOMES = {
    "wonder_sdk._proto.wonder": ("v1",),
    "wonder_sdk.client": ("Client",),
    "wonder_sdk.conversation.chat": ("Chat",),
    "wonder_sdk.conversation.transcripts": ("Transcript", "read_transcripts"),
    "wonder_sdk.conversation.turn_stream": ("TurnStream",),
    "wonder_sdk.errors": (
        "AbortedError", "AlreadyExistsError", "CallCancelledError", "DeadlineExceededError",
        "FailedPreconditionError", "InternalError", "InvalidArgumentError", "NotFoundError",
        "OutOfRangeError", "PermissionDeniedError", "RequestError", "ResourceExhaustedError",
        "TurnCancelledError", "TurnFailedError", "UnauthenticatedError", "UnavailableError",
        "UnimplementedError", "Violation", "WonderError",
    ),
    "wonder_sdk.conversation.event_cursor": (
        "Item", "MessageRestarted", "ReasoningDelta", "TextDelta", "ToolArgumentsDelta",
    ),
    "wonder_sdk.conversation.reply": ("Events", "Reply"),
    "wonder_sdk.transport.reconnect": ("ReconnectPolicy",),
    "wonder_sdk.methods.runs": ("Run",),
    "wonder_sdk.worker.worker": ("ActionError", "Worker", "WorkerContext"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Import an exported name on first use.

    The `wonder` command, which also starts servers, imports this package. Importing the messages would cost
    it 17 MB and 0.1 s.
    """
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(f"{home}.v1" if name == "v1" else home)
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
