from typing import Any

from gnnscale.core.process import SharedSetting


def test_the_last_block_restores_what_the_first_set() -> None:
    happened: list[str] = []

    def begin() -> Any:
        happened.append("set")
        return lambda: happened.append("restored")

    setting = SharedSetting(begin)
    first, second = setting.held(), setting.held()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert happened == ["set"]
    second.__exit__(None, None, None)
    assert happened == ["set", "restored"]
    with setting.held():
        pass
    assert happened == ["set", "restored"] * 2
