"""What targets of the same form share: valid folders, some of whose files are damaged and used."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from gnnscale.core.errors import ConfigError, GraphError

from ..case import Input, Outcome, case_rng
from ..odd import ASIDE, odd_places, regular_files
from ..verdict import guarded, strange_files
from .damage import damaged

__all__ = ["Artefact", "Valid"]

#: Part of the cases whose files agree with each other about the damage.
_AGREEING = 0.4


class Valid(NamedTuple):
    """A folder as the program makes it.

    Attributes:
        files: content by path below the folder.
        made_for: what the target needs to use it.
    """

    files: Mapping[str, bytes]
    made_for: Any = None


class Artefact(ABC):
    """A target whose cases are folders that were valid before something in them was damaged.

    Attributes:
        place: of the folder, below the case's own.
        kinds: ways in which it is used.
        refusals: exceptions that tell the user what is wrong.
        names: one of which a refusal has to hold, where it does not hold the folder's path.
        leaves: what else may be there when a case has ended.
        writes: whether using it may write into the folder.
    """

    name: ClassVar[str]
    batch = 64
    limit_s = 20.0
    uses_files = True
    place: ClassVar[str] = "store"
    kinds: ClassVar[tuple[str, ...]] = ("",)
    refusals: ClassVar[tuple[type[Exception], ...]] = (GraphError, ConfigError)
    names: ClassVar[tuple[str, ...]] = ()
    leaves: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[bool] = False

    def __init__(self) -> None:
        self._valid: list[Valid] = []
        #: Files of the home folder that every case has.
        self._home: Mapping[str, bytes] = {}

    @abstractmethod
    def valid(self, folder: Path) -> list[Valid]:
        """Make the valid folders in ``folder``, which is the home folder too."""

    @abstractmethod
    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Use the folder of a case.

        Args:
            path: of the folder.
            valid: what it was before.
            made: the case. Its option ``agreeing`` says whether what is wrong agrees with itself,
                so that it need not be noticed.

        Raises:
            WrongResultError: it was let in, and comes to what cannot be right.
        """

    def spoiled(
        self, files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the files with some of them damaged, and which edits these were."""
        count = case_rng(key, number, "edits").choice((0, 1, 1, 1, 2, 3))
        return damaged(files, key, number, count, keep)

    def agreeing(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the files, of which one says what the others hold, as bad intent would."""
        return dict(files)

    def prepare(self) -> None:
        """Make the valid folders that are damaged later."""
        with tempfile.TemporaryDirectory(prefix="gnnscale-fuzz-") as folder:
            os.environ["GNNSCALE_HOME"] = folder
            self._valid = self.valid(Path(folder))

    def make(self, key: str, number: int, keep: frozenset[int] | None = None) -> Input:
        """Damage a valid folder; what tells of other files may then be made to agree with them."""
        rng = case_rng(key, number)
        which = number % len(self._valid)
        valid = self._valid[which].files
        files, edits = self.spoiled(valid, key, number, keep)
        agrees = rng.random() < _AGREEING
        if agrees:
            files = self.agreeing(files)
        # What is as it was is left out, so that a kept case follows when the format moves on.
        changed = {name: content for name, content in files.items() if content != valid.get(name)}
        options = {
            "which": which,
            "without": sorted(valid.keys() - files.keys()),
            "agreeing": agrees,
        }
        return Input(
            kind=rng.choice(self.kinds),
            options=options,
            files=changed,
            edits=tuple(edits),
            odd=odd_places(files, case_rng(key, number, "odd")),
        )

    def run(self, made: Input, folder: Path) -> Outcome:
        """Use the folder, which stays as it is; nothing is left beside it."""
        valid = self._valid[made.options["which"]]
        files = {**valid.files, **made.files}
        for name in made.options["without"]:
            del files[name]
        path = folder / self.place
        Input(kind="", files=files, odd=made.odd).write(path)
        Input(kind="", files=self._home).write(folder / "home")
        os.environ["GNNSCALE_HOME"] = str(folder / "home")
        before = {each: regular_files(folder / each) for each in (self.place, ASIDE)}
        outcome = guarded(
            lambda: self.use(path, valid, made), self.refusals, [str(path), *self.names]
        )
        if outcome.is_finding:
            return outcome
        for each in (ASIDE,) if self.writes else before:
            if before[each] and regular_files(folder / each) != before[each]:
                return Outcome("wrong result", f"what lay in {each} was changed")
        return strange_files(folder, {self.place, ASIDE, *self.leaves}) or outcome
