"""A strategy that trains as ever, and then plays games of the same app."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.arrays import Floats
from fl_audit.errors import InputError, in_a_line, require
from fl_audit.laboratory.seen import Seen
from fl_audit.laboratory.sketch import Sketch, sketch
from fl_audit.randomness import Purpose, generator
from strategies.games.agreement import Agreement, Contribution
from strategies.games.arrays import arrays_of, crafted, flat, shapes_of
from strategies.games.findings import finish
from strategies.games.fingerprint import fingerprint
from strategies.games.grid import Ears, HeardGrid
from strategies.games.hearing import GameEars, RollCall, Scene, played
from strategies.games.notes import Deed, Note, Numbers
from strategies.games.start import Start, seed_generators, spared_generators, start_of
from strategies.games.store import Campaign, open_campaign
from strategies.games.trackers import silent_trackers

_TOLD_EVERY = 5.0
"""Seconds between two lines of progress."""


class WatchedStrategy(Strategy):
    """A strategy that is audited: the first training is the app's own, and its result is what `start` returns.

    Parameters
    ----------
    strategy
        The app's strategy.
    audit
        The audit.
    """

    def __init__(self, strategy: Strategy, audit: Agreement) -> None:
        self._inner, self._audit = strategy, audit

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_inner", "_audit"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Train as the app's strategy does, then play games.

        Parameters
        ----------
        args, kwargs
            As the app's strategy takes them.

        Returns
        -------
        Result
            That of the app's own training, unchanged.

        Raises
        ------
        InputError
            If the directory of the audit holds games with other settings; nothing has been trained then.
        Exception
            What the app's own training raises.
        """
        start = start_of(self._inner, args, kwargs)
        grid: Grid = start.arguments["grid"]
        try:
            table = self._prepared(start, grid)
        except InputError:
            raise
        except Exception as error:  # whatever hinders the audit is no reason to hinder the training
            _tell(f"no games are played, the app trains as ever: {in_a_line(error)}")
            return start.played(grid)
        ears = SafeEars(table.roll)
        result = start.played(HeardGrid(grid, ears))
        with spared_generators(), no_news_from_flower(), silent_trackers():
            try:
                if ears.fault is not None:
                    raise InputError(f"no games were played, the app's own training cannot be heard: {ears.fault}")
                table.play()
            except (InputError, OSError) as error:
                _tell(str(error))
            except Exception as error:
                _tell(f"the games ended early: {in_a_line(error)}")
        return result

    def _prepared(self, start: Start, grid: Grid) -> "GameTable":
        """Return where the games will be played."""
        model = start.arguments.get("initial_arrays")
        kinds = "accepted is an ArrayRecord with at least one parameter"
        if not isinstance(model, ArrayRecord):
            raise InputError(f"initial_arrays is {type(model).__name__}, which cannot be watched: {kinds}")
        arrays = arrays_of(model)
        for name, value in arrays.items():
            wrong = f"{name} has values of type {value.dtype}: accepted are numbers and switches"
            require(value.dtype.kind in "fiub", wrong)
        sketched = sketch(shapes_of(arrays))
        campaign = open_campaign(
            self._audit, shapes_of(arrays), self._audit.contributions(self._inner), fingerprint(self._inner), _tell
        )
        return GameTable(self._audit, campaign, start.copied(), grid, RollCall(arrays, self._audit.replies), sketched)

    def summary(self) -> None:
        """Log a summary."""
        self._inner.summary()

    # Called by whoever drives the rounds by hand: as the app's strategy does.
    configure_train = property(lambda self: self._inner.configure_train)
    aggregate_train = property(lambda self: self._inner.aggregate_train)
    configure_evaluate = property(lambda self: self._inner.configure_evaluate)
    aggregate_evaluate = property(lambda self: self._inner.aggregate_evaluate)


class SafeEars:
    """Ears that end nothing: what goes wrong in them is kept, and the message is handed on as it is.

    Parameters
    ----------
    ears
        The ears.
    """

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self.fault: str | None = None

    def sends(self, message: Message) -> None:
        """Note a message."""
        self._safely(self._ears.sends, message)

    def receives(self, reply: Message) -> None:
        """Note a reply."""
        self._safely(self._ears.receives, reply)

    def _safely(self, hook: Callable[[Message], None], message: Message) -> None:
        try:
            hook(message)
        except Exception as error:  # the app's own training goes on, whatever the audit cannot bear
            self.fault = self.fault or in_a_line(error)


class GameTable:
    """Where the games of one run are played.

    Parameters
    ----------
    audit, campaign
        The audit, and its games so far.
    pristine
        What the app handed to its strategy, as it was before.
    grid
        The app's grid.
    roll
        Who took part in the app's own training.
    sketched
        The sketch of the app's model.
    """

    def __init__(
        self, audit: Agreement, campaign: Campaign, pristine: Start, grid: Grid, roll: RollCall, sketched: Sketch
    ) -> None:
        self._audit, self._campaign, self._pristine, self._grid, self.roll = audit, campaign, pristine, grid, roll
        self._model, self._sketch = arrays_of(pristine.model), sketched

    def play(self) -> None:
        """Play the games that are missing, and say what came of it.

        Raises
        ------
        InputError
            If the client app has no insider, or the target's client took no part.
        """
        audit, campaign = self._audit, self._campaign
        target, watcher = self._seats()
        if audit.has_probe and campaign.probe is None:
            seen, errors = self._game(audit.games + 1, Deed.NOTHING, Contribution.OWN, target, watcher, 1)
            campaign.keep_probe(seen.refusal or "; ".join(errors[:1]))
        told = time.monotonic()
        for game in campaign.missing[: audit.games_per_run]:
            campaign.choose(audit.claim, self._sketch.columns)
            contribution = Contribution(campaign.contribution(game))
            deed = audit.deed(campaign.is_present(game), contribution)
            campaign.add(game, self._game(game, deed, contribution, target, watcher, audit.claim.rounds)[0])
            if time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                _tell(f"game {game} of {audit.games}")
        _tell(finish(audit, campaign, self._sketch.columns))

    def _seats(self) -> tuple[int, int | None]:
        """Return the nodes of the target's client and of the one that looks."""
        audit, partitions = self._audit, self.roll.partitions
        accepted = "accepted is a client app with this modifier: ClientApp(mods=[audit.insider()])"
        if not partitions:
            raise InputError(f"no client answered as an insider: {accepted}")
        # Where there are no partitions, as on real devices, the order of node ids stands for them.
        ranks = {node: place for place, node in enumerate(sorted(partitions))}
        numbers = {ranks[node] if number is None else number: node for node, number in partitions.items()}
        found = ", ".join(str(number) for number in sorted(numbers))
        if audit.target not in numbers:
            raise InputError(f"target is {audit.target}, and clients {found} took part: accepted is one of them")
        node = numbers[audit.target]
        if audit.is_about_records and node not in self.roll.asks_for_records:
            raise InputError(
                "the claim is about records, and the client app did not ask which it holds: accepted is an app that "
                "calls held(records) where it loads them"
            )
        return node, next((numbers[number] for number in sorted(numbers) if number != audit.target), None)

    def _game(
        self, game: int, deed: Deed, contribution: Contribution, target: int, watcher: int | None, rounds: int
    ) -> tuple[Seen, list[str]]:
        """Play one game; return what was seen of it, and the errors that clients replied."""
        audit = self._audit
        known: Floats | None = self.roll.updates.get(target) if audit.is_about_records else None
        if contribution is Contribution.CRAFTED:
            known = flat(crafted(self._model, audit.length), self._model)
        size = sum(value.size for value in self._model.values())

        def difference(_round: int, learned: Floats | None) -> Floats:
            found = known if known is not None else learned
            return found if found is not None and found.shape == (size,) else np.zeros(size)

        scene = Scene(
            model=self._model,
            rounds=rounds,
            target=target,
            watcher=watcher,
            observer=audit.observer,
            difference=difference,
            sketch=self._sketch,
            note=Note(game, "", deed, audit.replies, audit.numbers, audit.length),
            knows_others=True,
            released_numbers=_train_metrics if audit.numbers is Numbers.WITHHELD else lambda _: {},
        )
        ears = GameEars(scene)
        draws = generator(self._campaign.seed, Purpose.LABORATORY, world=game)
        seed_generators(draws)
        return played(lambda grid: self._pristine.again(rounds, draws).played(grid), self._grid, ears), ears.errors


def _train_metrics(result: Result) -> dict[str, list[float]]:
    """Return the numbers that a strategy released about training."""
    found = dict[str, list[float]]()
    for record in result.train_metrics_clientapp.values():
        for name, value in record.items():
            if isinstance(value, (int, float)):
                found.setdefault(f"metrics: {name}", []).append(float(value))
    return found


def _tell(line: str) -> None:
    sys.stderr.write(f"fl_audit: {line}\n")
    sys.stderr.flush()


@contextmanager
def no_news_from_flower() -> Iterator[None]:
    """Keep the log of hundreds of games off the terminal."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
