"""Earlier wordings of the platform's texts, which journals hold."""

from __future__ import annotations

from typing import Final

EARLIER_WORDINGS: Final = {
    "You are told when it ends, whether it works or fails; until then": (
        "A notice reports its end, success or failure; until then"
    ),
    ". Tools at hand: ": ". Available tools: ",
    "agents may not call each other in a circle.": "agents may not call each other in a cycle.",
    "What the agent is told or asked.": "The task or question for the agent.",
    "The turn's time is nearly over; it was not waited for any longer.": (
        "The turn's time is nearly over, so the turn stopped waiting."
    ),
}
"""Texts of the platform in requests to models and in results of tools, as earlier versions worded them, and
today's wording. Add the former text when you change one: journals hold it."""
