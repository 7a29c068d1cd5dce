import pytest

from gnnscale.core.errors import ConfigError, check_bank, check_label, check_word


def test_words_of_programs() -> None:
    for check, allowed in (
        (check_word, ["xcu250-figd2104-2L-e", "p", "0.2.0+local", "_a"]),
        (check_bank, ["DDR[0]", "HBM[0:9]", "HBM[16:31]", "MC_NOC0"]),
        (check_label, ["AWS F1 (one VU9P)", "Alveo U50", "my card", "VCK190/ES"]),
    ):
        for text in allowed:
            check("option", text)


@pytest.mark.parametrize("check", [check_word, check_bank, check_label])
@pytest.mark.parametrize(
    "text", ["", "-a", " a", "a\n", "a$b", "a`b", "a;b", "a\\", "[exec a]", "größe", "٣", "a" * 200]
)
def test_what_acts_or_is_no_word_is_named(check, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^option=.*: expected ") as error:
        check("option", text)
    assert str(error.value).isprintable()
