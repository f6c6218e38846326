"""The words of results that the model reads: whom a notice names, and the answer of a called agent."""

from __future__ import annotations

import json
import re

import pytest

from tests.core.conversation.planning.test_assembly import LIST, Talk
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonValue


def test_the_notice_of_a_result_names_who_asked_of_several_people() -> None:
    talk = Talk()
    talk.say("ben", "Hello.", assemble=False)
    asked = talk.say("mia (user ben)\nuser ben", "Research!")
    talk.answers(asked, "", "slow")
    talk.answers(asked, "I am at it.")
    talk.complete("slow", "late")
    talk.assemble(asked)
    notice = talk.last(asked)
    # The name is a label: it cannot end the sentence or stand for another person.
    assert re.search(r"and tell user mia user ben user ben~\w{8}, who asked, what matters of this", notice)
    talk.answers(asked, "Done.")
    assert [each.notice for each in talk.state.exchanges[asked] if each.notice] == [notice]


@pytest.mark.parametrize("users", [("",), ("mia",), ("mia", "")])
def test_the_notice_of_a_result_names_no_only_user_and_none_without_a_name(
    users: tuple[str, ...],
) -> None:
    talk = Talk()
    for user in users[:-1]:
        talk.say(user, "Hello.", assemble=False)
    asked = talk.say(users[-1], "Research!")
    talk.answers(asked, "", "slow")
    talk.answers(asked, "I am at it.")
    talk.complete("slow", "late")
    talk.assemble(asked)
    assert talk.last(asked).endswith("and tell the user what matters of this, failures too.")


def test_turns_of_earlier_rules_keep_their_words() -> None:
    talk = Talk()
    talk.say("ben", "Hello.", assemble=False)
    asked = talk.say("mia", "Research!")
    work = talk.state.turn_work[asked]
    talk.state.turn_work[asked] = replace(work, rules=5)
    talk.answers(asked, "", "slow")
    talk.answers(asked, "I am at it.")
    talk.complete("slow", "late")
    talk.assemble(asked)
    assert talk.last(asked).endswith("and tell the user what matters of this, failures too.")


@pytest.mark.parametrize("request_format", LIST)
@pytest.mark.parametrize(("rules", "has_ids"), [(5, True), (6, False)])
def test_the_answer_of_a_delegate_comes_without_ids(request_format: str, rules: int, has_ids: bool) -> None:
    talk = Talk(request_format)
    asked = talk.say("mia", "Which day?")
    talk.state.turn_work[asked] = replace(talk.state.turn_work[asked], rules=rules)
    talk.answers(asked, "", "peer")
    output: JsonValue = {"text": "Monday.", "agent_id": "agt_2", "turn_id": "turn_9"}
    talk.done(asked, OperationKind.AGENT, output)
    sent = json.dumps(talk.messages(asked)).replace("\\", "")
    assert "Monday." in sent and ("turn_9" in sent, "agt_2" in sent) == (has_ids, has_ids)
    # The record has them.
    result = talk.state.moves[asked][0].invocations[0].result
    assert result is not None and result.result == output
    talk.answers(asked, "Monday it is.")
    later = json.dumps(talk.state.exchanges[asked][0].results).replace("\\", "")
    assert "Monday." in later and ("turn_9" in later) == has_ids
