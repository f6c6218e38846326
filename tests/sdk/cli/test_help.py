"""Help texts of all commands of ``wonder``, those of the server included."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from wonder_sdk import cli


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


def texts(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the help texts of a parser's commands and flags with their names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield f"{parser.prog} {choice.dest}", choice.help or ""
        elif action.dest != "help" and action.help != argparse.SUPPRESS:
            yield f"{parser.prog} {action.dest}", action.help or ""


EVERY = list(parsers(cli.build_parser()))


def test_every_command_and_flag_has_a_help_text_that_is_a_sentence() -> None:
    wrong = {
        name: text
        for parser in EVERY
        if parser.prog != "wonder serve"  # Its flags are settings: noun phrases.
        for name, text in texts(parser)
        if not text[:1].isupper() or not re.search(r"[.)]( \[WONDER_\w+\]\.?)?$", text)
    }
    assert wrong == {}


@pytest.mark.parametrize("parser", EVERY, ids=lambda parser: parser.prog)
def test_descriptions_are_wrapped(parser: argparse.ArgumentParser) -> None:
    assert max(map(len, (parser.description or "").splitlines()), default=0) <= 100


def test_every_deletion_needs_yes_without_a_terminal() -> None:
    deletions = [each for each in EVERY if each.prog.split()[-1] in ("delete", "forget")]
    helps = {each.prog: dict(texts(each)).get(f"{each.prog} yes") for each in deletions}
    assert len(helps) >= 6 and set(helps.values()) == {"Skip the confirmation; required without a terminal."}


VERBS = [parser.prog.removeprefix("wonder ") for parser in EVERY if parser.prog.count(" ") == 2]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([*verb.split(), "--help"])
    shown = capsys.readouterr().out.partition("\nexamples:\n")[2].splitlines()
    commands = [each for each in shown if each.startswith("  wonder ")]
    assert commands and all(f"{each} ".startswith(f"  wonder {verb} ") for each in commands)
    assert shown[1].startswith("      ")


def test_an_unknown_command_is_named_without_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bogus"])
    printed = capsys.readouterr().err
    assert "'bogus'" in printed and "chat, " not in printed and "wonder --help" in printed
    with pytest.raises(SystemExit):
        cli.main(["caht"])
    assert "did you mean chat?" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["principals", "roles", "keys", "agent", "files", "tenants"])
def test_a_command_without_its_verb_lists_the_verbs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([command])
    assert re.search(r"^  list +List ", capsys.readouterr().err, re.MULTILINE)


def test_a_flag_of_commands_before_the_command_is_refused_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--tls", "health"])
    assert "--tls follows the command: wonder health --tls" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "conversations",
        "runs",
        "gates",
        "libraries",
        "definitions",
        "actions",
        "audit",
        "memory blocks",
        "agent",
    ],
)
def test_every_list_takes_the_word_list(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """None of them reads `list` as a name: without a server each says so."""
    assert cli.main([*command.split(), "list", "--server", "127.0.0.1:1"]) == 1
    assert "No server listens on" in capsys.readouterr().err
