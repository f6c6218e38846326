"""English words that say little about a text's subject.

Full text and the built-in embedder give them a lower weight. The list is short and general: words that are
common in one agent's memories are recognised by the number of memories that contain them.
"""

from __future__ import annotations

from typing import Final

STOP_WORDS: Final = frozenset(
    """
    a about above actually after again against ain all almost also although always am an and any anything are
    aren around as ask asked at away back be because been before being below between both but by came can
    cannot come could couldn d did didn do does doesn doing don done down during each either else enough
    even ever every everything few first for from further gave get gets getting give given go goes going
    gonna got had hadn has hasn have haven having he her here hers herself hi him himself his how however i
    if in into is isn it its itself just keep know known last least less let like ll look m made make makes
    many may maybe me mean might mine more most much must my myself need never no nor not nothing now of off
    oh ok okay on once one only onto or other others our ours out over own perhaps please put quite re
    really right s said same saw say saying says see seem seemed seems seen she should shouldn since so some
    something still such sure t take taken tell than that the their theirs them themselves then there these
    they thing things think this those though thought through time to together told too took toward two uh
    um under until up upon us use used uses using ve very want wanted was wasn way we well went were weren
    what whatever when where whether which while who whole whom whose why will with within without won would
    wouldn yeah yes yet you your yours yourself
    """.split()
)
