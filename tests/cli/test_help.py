import re

import pytest
from one_line import one_line

from gnnscale.cli.command import COMMANDS
from gnnscale.cli.help import help_text
from gnnscale.core.config.compose import config_groups

#: Options of commands that train nothing, and choose from no group.
SHARED = ("dataset.store", "dataset.raw", "model.module", "model.arguments")


def options_of(text: str) -> dict[str, str]:
    joined = re.sub(r"\n {6,}", " ", text)
    found = re.findall(r"^  ([a-z][\w.]*)=(\S+)(.*)$", joined, re.MULTILINE)
    return {name: meaning.strip() for name, _, meaning in found}


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_meaning(command: str) -> None:
    found = options_of(help_text(command, command, [], []))
    assert found
    for name in found:
        # Those of a mapping may share one: dataset.raw has that of dataset.store.
        in_group = name.partition(".")[0] in config_groups() and name not in SHARED
        block = ".".join(name.split(".")[: 1 + in_group])
        assert any(text for each, text in found.items() if f"{each}.".startswith(f"{block}.")), name


@pytest.mark.long
@pytest.mark.parametrize("group", ["dataset", "model", "sampler", "optimizer", "loss"])
def test_so_has_every_option_of_every_choice(group: str) -> None:
    for choice in config_groups()[group]:
        text = help_text("train", "train", [f"{group}={choice}"], [group])
        found, known = options_of(text), [f"{group}={each}" for each in config_groups()[group]]
        assert text.startswith(f"{group}={choice}\n")
        assert all(f"\n  {each}" in text for each in known)
        assert [name for name, meaning in found.items() if not meaning] == []


def test_what_is_typed_is_what_is_shown() -> None:
    text = help_text("train", "train", ["model=gat", "model.hidden=8", "seed=3"], [])
    assert "model=gat\n" in text
    assert "model.hidden=8   " in text
    assert "seed=3  " in text
    assert "model.num_heads=" in text
    assert max(map(len, text.splitlines())) <= 110
    with one_line("modle: this command has no such group of options, did you mean 'model'?"):
        help_text("train", "train", [], ["modle"])
    with one_line("model: this command has no such group of options"):
        help_text("doctor", "doctor", [], ["model"])
