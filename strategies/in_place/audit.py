"""An app's own audit: what its claim is, how its games are played, and what came of them."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from fl_audit.adjacency import Relation, Unit
from fl_audit.errors import InputError, require
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.findings import trial_json
from fl_audit.laboratory.guesses import LESSONS, fewest_games, guess_trial
from fl_audit.laboratory.seen import stacked
from fl_audit.laboratory.trial import Trial
from fl_audit.whole_files import whole_file
from strategies.in_place.findings import in_place_findings, report_text, with_refusals
from strategies.in_place.insider import insider
from strategies.in_place.notes import Deed, Numbers, Replies
from strategies.in_place.records import held
from strategies.in_place.store import Campaign, open_campaign
from strategies.in_place.watched import WatchedStrategy
from strategies.laboratory.subject import Observer


class Contribution(StrEnum):
    """What the target's client sends where it takes part.

    OWN is what it has learned. CRAFTED is an update along a public direction that is far longer than any clipping norm:
    the strongest one where the mechanism clips what leaves the client, and unfair where clients clip by themselves.
    """

    OWN = "own"
    CRAFTED = "crafted"


@dataclass(frozen=True)
class Audit:
    """The audit of a Flower app, in place.

    Parameters
    ----------
    claim
        What the app claims; its rounds are those of a game, whatever the app's own training has.
    games
        How many games are played.
    directory
        Where they are kept: a run that finds some there plays the others.
    contribution
        What the target's client sends where it takes part; None is CRAFTED under Flower's wrappers that clip on the
        server, else OWN.
    numbers
        Whether the claim covers the numbers that clients report.
    replies
        What the arrays in replies are.
    observer
        Who looks: another client, who sees releases, or the server, who sees what the target's client sends.
    target
        The partition of the target's client.
    length
        Length of a crafted update, above 0.
    games_per_run
        Most games that one run of the app plays; None for all.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    seed
        Of the games; None draws a secret one.

    Raises
    ------
    InputError
        If a number is out of its range, or an update is crafted where the claim is about records.

    Examples
    --------
    In a Flower app::

        audit = Audit(StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5), games=200)
        strategy = audit.watch(strategy)
        app = ClientApp(mods=[audit.insider()])
    """

    claim: StatedClaim
    games: int = 200
    directory: Path = Path("fl-audit-games")
    contribution: Contribution | None = None
    numbers: Numbers = Numbers.KEPT
    replies: Replies = Replies.MODELS
    observer: Observer = Observer.CLIENT
    target: int = 0
    length: float = 1000.0
    games_per_run: int | None = None
    confidence: float = 0.95
    seed: int | None = None

    def __post_init__(self) -> None:
        require(self.games > LESSONS, f"games are {self.games}: accepted are whole numbers from {LESSONS + 1}")
        require(0.5 < self.confidence < 1, f"confidence is {self.confidence}: accepted are numbers above 0.5, below 1")
        require(0 < self.length < 1e9, f"length is {self.length}: accepted are numbers above 0 and below 1000000000")
        few = f"games_per_run is {self.games_per_run}: accepted are whole numbers from 1, or None"
        require(self.games_per_run is None or self.games_per_run >= 1, few)
        require(self.target >= 0, f"target is {self.target}: accepted are whole numbers from 0")
        for name, kinds in (("numbers", Numbers), ("replies", Replies), ("observer", Observer)):
            object.__setattr__(self, name, _chosen(name, getattr(self, name), kinds))
        if self.contribution is not None:
            object.__setattr__(self, "contribution", _chosen("contribution", self.contribution, Contribution))
        object.__setattr__(self, "directory", Path(self.directory))
        crafted = self.is_about_records and self.contribution is Contribution.CRAFTED
        require(not crafted, "contribution is crafted, and the claim is about records: accepted is own")

    def watch(self, strategy: Strategy) -> Strategy:
        """Return a strategy that trains as this one, and then plays games of the app.

        Parameters
        ----------
        strategy
            The app's strategy, with all its wrappers.
        """
        return WatchedStrategy(strategy, self)

    def insider(self) -> Mod:
        """Return the modifier for the client app; it stands last, after those that belong to the mechanism."""
        return insider

    def held(self, *parts: Any) -> Any:
        """Return the records that a client holds; see `held`."""
        return held(*parts)

    def verdict(self) -> Trial:
        """Return what came of the games.

        Raises
        ------
        InputError
            If games are missing.
        """
        path = self.directory / _COLUMNS
        if not path.exists():
            raise InputError(f"{self.directory} holds no finished audit: run the app until all games are played")
        columns = tuple((str(name), slice(*place)) for name, place in json.loads(path.read_text(encoding="utf-8")))
        secret = json.loads((self.directory / "challenger.json").read_text(encoding="utf-8"))
        return self._trial(Campaign(self.directory, self.games, int(secret["seed"])), columns)

    # What follows is for the watched strategy.

    @property
    def is_about_records(self) -> bool:
        """Whether the claim is about records, not clients."""
        return self.claim.neighbours.unit is Unit.RECORD

    @property
    def has_probe(self) -> bool:
        """Whether an update of exactly zero is tried once: an ordinary client may well learn nothing."""
        return not self.is_about_records and self.claim.neighbours.relation is Relation.ADD_REMOVE

    def campaign(self, shapes: dict[str, tuple[int, ...]], strategy: Strategy) -> Campaign:
        """Begin the games of this audit, or go on with them; parameters are the model's shapes and the strategy."""
        settings = asdict(self) | {"model": shapes, "contribution": self._contribution(strategy)}
        for name in ("directory", "games", "games_per_run", "confidence", "seed"):
            del settings[name]
        return open_campaign(self.directory, settings, self.games, self.seed)

    def deed(self, present: bool, strategy: Strategy) -> Deed:
        """Return what the target's client does under D or D'."""
        is_crafted = self.is_crafted(strategy)
        if present:
            return Deed.CRAFTED if is_crafted else Deed.OWN
        match self.claim.neighbours.unit, self.claim.neighbours.relation:
            case Unit.CLIENT, Relation.ADD_REMOVE:
                return Deed.ALMOST_NOTHING
            case Unit.CLIENT, Relation.REPLACE:
                return Deed.CRAFTED_OPPOSITE if is_crafted else Deed.OWN_OPPOSITE
            case Unit.RECORD, Relation.ADD_REMOVE:
                return Deed.WITHOUT_RECORD
            case _:
                return Deed.OTHER_RECORD

    def is_crafted(self, strategy: Strategy) -> bool:
        """Return whether the target's contribution is crafted under the app's strategy."""
        return self._contribution(strategy) is Contribution.CRAFTED

    def _contribution(self, strategy: Strategy) -> Contribution:
        if self.contribution is not None:
            return self.contribution
        clips = (DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyServerSideAdaptiveClipping)
        is_clipped = isinstance(strategy, clips) and not self.is_about_records
        return Contribution.CRAFTED if is_clipped else Contribution.OWN

    def released_numbers(self, result: object) -> dict[str, list[float]]:
        """Return the numbers that a strategy released about training, if the claim covers them."""
        found = dict[str, list[float]]()
        if self.numbers is Numbers.WITHHELD:
            for record in getattr(result, "train_metrics_clientapp", {}).values():
                for name, value in record.items():
                    if isinstance(value, (int, float)):
                        found.setdefault(f"metrics: {name}", []).append(float(value))
        return found

    def finish(self, campaign: Campaign, columns: tuple[tuple[str, slice], ...]) -> str:
        """Return what came of the games in words, and write it into their directory if all are played."""
        left = len(campaign.missing)
        if left:
            return (
                f"{self.games - left} of {self.games} games are played, kept in {self.directory}: run the app again "
                "for the others"
            )
        with whole_file(self.directory / _COLUMNS) as file:
            file.write_text(json.dumps([[name, [part.start, part.stop]] for name, part in columns]) + "\n")
        trial = self._trial(campaign, columns)
        found = in_place_findings(trial)
        notes = self._notes(campaign)
        text = report_text(trial, found, notes)
        with whole_file(self.directory / "verdict.json") as file:
            values = trial_json(trial, found, trial.claim.limits) | {"notes": list(notes)}
            file.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        with whole_file(self.directory / "verdict.txt") as file:
            file.write_text(text + "\n", encoding="utf-8")
        return f"{text}\nWritten to {self.directory}/verdict.json."

    def _trial(self, campaign: Campaign, columns: tuple[tuple[str, slice], ...]) -> Trial:
        seen = campaign.played()
        present = np.array([campaign.is_present(game) for game in range(1, self.games + 1)])
        kind = "removed" if self.claim.neighbours.relation is Relation.ADD_REMOVE else "replaced"
        kind += " record" if self.is_about_records else ""
        trial = guess_trial(self.claim, kind, stacked(seen, columns), present, self.confidence)
        return with_refusals(trial, kind, seen, present, campaign.probe)

    def _notes(self, campaign: Campaign) -> tuple[str, ...]:
        """Return what a reader has to know of these games besides."""
        found = []
        needed = fewest_games(self.claim, self.confidence)
        if needed > self.games:
            found.append(f"A claim as weak as this one takes {needed} games at least; {self.games} were played.")
        if self.numbers is Numbers.KEPT and not self.is_about_records:
            found.append(
                'The numbers that clients report were left as they are: nothing is said of them. numbers="withheld" '
                "has a claim cover them."
            )
        if self.observer is Observer.CLIENT:
            found.append("The observer is a client that knows what all others sent, and sees every release.")
        return tuple(found)


_COLUMNS = "columns.json"


def _chosen(name: str, value: object, kinds: type[StrEnum]) -> StrEnum:
    """Return the choice of a name, or refuse it."""
    if value not in list(kinds):
        raise InputError(f"{name} is {value!r}: accepted are {', '.join(kinds)}")
    return kinds(str(value))
