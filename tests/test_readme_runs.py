from readme_commands import commands


def test_commands_are_found() -> None:
    found = list(commands())
    assert ["gnnscale", "train"] in found
    assert {words[1] for words in found if words[0] == "gnnscale"} >= {
        *("train", "doctor", "simulate", "generate", "partition", "plan-cache"),
        *("predict", "export"),
    }
    assert any(words[0] == "torchrun" for words in found)
