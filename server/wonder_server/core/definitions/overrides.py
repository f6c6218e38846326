"""Settings of one message for its turn."""

from __future__ import annotations

from wonder_server.core.frozen import Value


class TurnOverrides(Value, frozen=True, kw_only=True):
    """Settings of one message for its turn. ``model_profile_id`` of a turn is pinned,
    ``library/name@revision``; ``tool_choice`` is ``auto``, ``none``, ``required`` or the name of a tool.
    """

    model_profile_id: str = ""
    tool_choice: str = ""
    instructions: tuple[str, ...] = ()
