"""The directory of an audit: what was agreed, the secret of the games, and one whole file for every game played."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fl_audit.errors import InputError, require
from fl_audit.laboratory.seen import Seen
from fl_audit.randomness import Purpose, generator
from fl_audit.whole_files import remove_halves, whole_file

_SETTINGS, _SECRET, _PROBE = "campaign.json", "challenger.json", "probe.json"
_PARTS = ("steps", "released", "direction", "others", "own")


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
    """

    directory: Path
    games: int
    seed: int

    @property
    def missing(self) -> list[int]:
        """Numbers of the games that are not played yet, from 1."""
        return [number for number in range(1, self.games + 1) if not self._file(number).exists()]

    def is_present(self, game: int) -> bool:
        """Whether D is played in a game: the toss of a fair coin."""
        return bool(generator(self.seed, Purpose.SECRET_BIT, world=game).random() < 0.5)

    def add(self, game: int, seen: Seen) -> None:
        """Keep a game that was played."""
        arrays: dict[str, Any] = {part: np.asarray(getattr(seen, part), dtype=np.float64) for part in _PARTS}
        with whole_file(self._file(game)) as file, file.open("wb") as stream:
            np.savez_compressed(
                stream,
                **arrays,
                names=np.array(list(seen.numbers), dtype=np.str_),
                numbers=np.array(list(seen.numbers.values()), dtype=np.float64),
                refusal=np.array([] if seen.refusal is None else [seen.refusal], dtype=np.str_),
            )

    def played(self) -> list[Seen]:
        """Return all games, in order; none may be missing."""
        return [self._game(number) for number in range(1, self.games + 1)]

    def _game(self, number: int) -> Seen:
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


def open_campaign(directory: Path, settings: dict[str, Any], games: int, seed: int | None) -> Campaign:
    """Begin a campaign, or go on with the one that is in a directory.

    Parameters
    ----------
    directory
        Made where it is missing.
    settings
        What was agreed on, JSON values; a campaign goes on with the same ones alone.
    games
        How many games are planned.
    seed
        Of the games; None draws one.

    Raises
    ------
    InputError
        If there is a campaign with other settings in the directory, or a file of it cannot be read.
    """
    agreed = json.loads(json.dumps(settings | {"games": games}))
    path, secret = directory / _SETTINGS, directory / _SECRET
    if path.exists() and secret.exists():
        before = _read(path)
        for key in agreed:
            said = f"{directory} holds games with {key} {before.get(key)!r}, and now it is {agreed[key]!r}"
            require(before.get(key) == agreed[key], f"{said}: accepted are the same settings, or another directory")
        remove_halves(directory)
        return Campaign(directory, games, int(_read(secret)["seed"]))
    drawn = secrets.randbits(63) if seed is None else seed
    _write(secret, {"seed": drawn}, private=True)
    _write(path, agreed)
    return Campaign(directory, games, drawn)


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
