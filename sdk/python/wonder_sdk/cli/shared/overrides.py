"""Options of commands for the settings of one turn: its model, tool choice and instructions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wonder_sdk import v1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--model``, ``--tool-choice`` and ``--instruction``."""
    parser.add_argument(
        "--model",
        default="",
        metavar="PROFILE",
        help="Use this saved model profile, library/name (not provider/model), in place of the persona's.",
    )
    parser.add_argument(
        "--tool-choice",
        default="",
        metavar="CHOICE",
        help="Choose among the tools: auto, none, required, or the name of a tool to call first.",
    )
    parser.add_argument(
        "--instruction",
        action="append",
        default=[],
        metavar="TEXT",
        help="Add this instruction to those of the persona. Repeat it for more.",
    )


def overrides_of(arguments: argparse.Namespace) -> v1.TurnOverrides | None:
    """Return the settings that the options name; None without one."""
    from wonder_sdk import v1

    if not (arguments.model or arguments.tool_choice or arguments.instruction):
        return None
    return v1.TurnOverrides(
        model_profile_id=arguments.model,
        tool_choice=arguments.tool_choice,
        instructions=arguments.instruction,
    )
