"""The directory of an audit: what was agreed, the secret of the games, and one whole file for every game played."""

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fl_audit.errors import InputError, require
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.guesses import LESSONS, most_telling
from fl_audit.laboratory.seen import Seen, stacked
from fl_audit.randomness import Purpose, generator
from fl_audit.whole_files import remove_halves, whole_file
from strategies.games.agreement import Agreement

_SETTINGS, _SECRET, _PROBE = "campaign.json", "challenger.json", "probe.json"
_COLUMNS, _CHOICE = "columns.json", "choice.json"
_PARTS = ("steps", "released", "direction", "others", "own")
_FILES = (_SETTINGS, _SECRET, _PROBE, _COLUMNS, _CHOICE, "games", "verdict.json", "verdict.txt")
"""What is kept of an audit."""
Columns = tuple[tuple[str, slice], ...]
"""Names and slices of what is seen of a model."""


@dataclass(frozen=True)
class Campaign:
    """The games of an audit, over any number of runs of the app.

    Parameters
    ----------
    directory
        Where they are kept.
    games
        How many were planned.
    seed
        The secret that the games follow.
    contributions
        What the target's client may send. Where there are several, the first games try them in turn, twenty each, and
        all others play the one that told most in these.
    """

    directory: Path
    games: int
    seed: int
    contributions: tuple[str, ...]

    @staticmethod
    def finished(directory: Path, games: int) -> "Campaign | None":
        """Return the campaign of a directory if all its games are played, else None.

        Parameters
        ----------
        directory, games
            Where it is kept, and how many games it has.
        """
        if not (directory / _COLUMNS).exists():
            return None
        settings, secret = _read(directory / _SETTINGS), _read(directory / _SECRET)
        return Campaign(directory, games, int(secret["seed"]), tuple(settings["contribution"]))

    @property
    def pilots(self) -> int:
        """How many games at the start try contributions in turn."""
        return LESSONS * len(self.contributions) if len(self.contributions) > 1 else 0

    def contribution(self, game: int) -> str:
        """Return what the target's client sends in a game, if it is there; it follows from earlier games alone."""
        return self.contributions[(game - 1) % len(self.contributions)] if game <= self.pilots else self.chosen

    @property
    def chosen(self) -> str:
        """The contribution that told most in the first games; the only one if there is one."""
        if len(self.contributions) == 1:
            return self.contributions[0]
        return str(_read(self.directory / _CHOICE)["contribution"])

    def choose(self, claim: StatedClaim, columns: Columns) -> None:
        """Choose the contribution of the games after the first ones, if that is due.

        Parameters
        ----------
        claim, columns
            What is claimed, and where each tensor stands in what was seen.
        """
        if not self.pilots or (self.directory / _CHOICE).exists() or self.missing[:1] <= [self.pilots]:
            return
        tried = []
        for contribution in self.contributions:
            numbers = [game for game in range(1, self.pilots + 1) if self.contribution(game) == contribution]
            present = np.array([self.is_present(game) for game in numbers])
            tried.append((stacked([self.game(game) for game in numbers], columns), present))
        _write(self.directory / _CHOICE, {"contribution": self.contributions[most_telling(tried, claim)]})

    @property
    def counted(self) -> list[int]:
        """Numbers of the games with the chosen contribution: the first of them teach, the others count."""
        return [game for game in range(1, self.games + 1) if self.contribution(game) == self.chosen]

    def keep_columns(self, columns: Columns) -> None:
        """Keep what is seen of the model; that is done when all games are played."""
        _write(self.directory / _COLUMNS, {"columns": [[name, [part.start, part.stop]] for name, part in columns]})

    @cached_property
    def columns(self) -> Columns:
        """What is seen of the model."""
        return tuple((str(name), slice(*place)) for name, place in _read(self.directory / _COLUMNS)["columns"])

    @property
    def missing(self) -> list[int]:
        """Numbers of the games that are not played yet, from 1."""
        return [number for number in range(1, self.games + 1) if not self._file(number).exists()]

    def is_present(self, game: int) -> bool:
        """Whether D is played in a game: the toss of a fair coin."""
        return bool(generator(self.seed, Purpose.SECRET_BIT, world=game).random() < 0.5)

    def add(self, game: int, seen: Seen) -> None:
        """Keep a game that was played.

        Parameters
        ----------
        game, seen
            Its number, and what was seen.
        """
        arrays: dict[str, Any] = {part: np.asarray(getattr(seen, part), dtype=np.float64) for part in _PARTS}
        with whole_file(self._file(game)) as file, file.open("wb") as stream:
            np.savez_compressed(
                stream,
                **arrays,
                names=np.array(list(seen.numbers), dtype=np.str_),
                numbers=np.array(list(seen.numbers.values()), dtype=np.float64),
                refusal=np.array([] if seen.refusal is None else [seen.refusal], dtype=np.str_),
            )

    def game(self, number: int) -> Seen:
        """Return a game that was played."""
        with np.load(self._file(number), allow_pickle=False) as file:
            said = [str(one) for one in file["refusal"]]
            numbers = {str(name): float(value) for name, value in zip(file["names"], file["numbers"], strict=True)}
            parts = {part: np.asarray(file[part], dtype=np.float64) for part in _PARTS}
        return Seen(**parts, numbers=numbers, refusal=said[0] if said else None)

    def _file(self, number: int) -> Path:
        return self.directory / "games" / f"{number:06d}.npz"

    @property
    def probe(self) -> str | None:
        """What the strategy said to an update of exactly zero, empty if it took it; None if it was not asked yet."""
        path = self.directory / _PROBE
        return str(_read(path)["said"]) if path.exists() else None

    def keep_probe(self, said: str) -> None:
        """Keep what the strategy said to an update of exactly zero."""
        _write(self.directory / _PROBE, {"said": said})


def open_campaign(
    audit: Agreement,
    shapes: dict[str, tuple[int, ...]],
    contributions: tuple[str, ...],
    code: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Campaign:
    """Begin a campaign, or go on with the one that is in a directory.

    Parameters
    ----------
    audit
        What was agreed; a campaign goes on with the same settings alone.
    shapes
        Of the model's tensors.
    contributions
        What the target's client may send.
    code
        The fingerprint of the strategy: games of another one are put aside, and new ones are played.
    tell
        Takes what becomes of earlier games, in words.

    Raises
    ------
    InputError
        If there is a campaign with other settings in the directory, or a file of it cannot be read.
    """
    least = LESSONS * len(contributions)
    require(audit.games > least, f"games are {audit.games}: accepted are whole numbers from {least + 1}")
    directory, own = audit.directory, ("directory", "games_per_run", "confidence", "seed")
    settings = {name: value for name, value in asdict(audit).items() if name not in own}
    agreed = json.loads(json.dumps(settings | {"model": shapes, "contribution": contributions}))
    path, secret = directory / _SETTINGS, directory / _SECRET
    if path.exists() and (earlier := str(_read(path).get("code", ""))) != code:
        aside = _put_aside(directory, earlier or "before")
        tell(f"the strategy is not the one of the games in {directory}: these are kept in {aside}, new ones are played")
    agreed["code"] = code
    if path.exists() and secret.exists():
        before = _read(path)
        for key in agreed:
            said = f"{directory} holds games with {key} {before.get(key)!r}, and now it is {agreed[key]!r}"
            require(before.get(key) == agreed[key], f"{said}: accepted are the same settings, or another directory")
        remove_halves(directory)
        return Campaign(directory, audit.games, int(_read(secret)["seed"]), contributions)
    drawn = secrets.randbits(63) if audit.seed is None else audit.seed
    _write(secret, {"seed": drawn}, private=True)
    _write(path, agreed)
    return Campaign(directory, audit.games, drawn, contributions)


def _put_aside(directory: Path, name: str) -> Path:
    """Move all that belongs to earlier games into a directory of their own, and return it."""
    aside = directory / f"games-of-{name}"
    number = 1
    while aside.exists():
        number += 1
        aside = directory / f"games-of-{name}-{number}"
    aside.mkdir()
    for name in _FILES:
        if (directory / name).exists():
            (directory / name).rename(aside / name)
    return aside


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): accepted is a file that this program wrote") from error
    assert isinstance(found, dict)
    return found


def _write(path: Path, values: dict[str, Any], private: bool = False) -> None:
    with whole_file(path, private) as file:
        file.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
