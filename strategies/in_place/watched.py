"""A strategy that trains as ever, and then plays games of the same app."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.errors import InputError
from fl_audit.laboratory.seen import Seen
from fl_audit.laboratory.sketch import sketch
from fl_audit.randomness import Purpose, generator
from strategies.in_place.contributions import Arrays, Floats, arrays_of
from strategies.in_place.grid import HeardGrid
from strategies.in_place.listening import GameEars, Part, RollCall, released_arrays, shapes_of
from strategies.in_place.notes import Deed, Note
from strategies.in_place.pristine import Start, seed_generators, spared_generators, start_of
from strategies.in_place.store import Campaign

if TYPE_CHECKING:
    from strategies.in_place.audit import Audit

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

    def __init__(self, strategy: Strategy, audit: "Audit") -> None:
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
        model = arrays_of(start.model)
        campaign = self._audit.campaign(shapes_of(model), self._inner)
        roll = RollCall(model, self._audit.replies)
        try:
            pristine = start.copied()
        except Exception as error:  # whatever hinders a copy is no reason to hinder the training
            result = start.played(HeardGrid(start.arguments["grid"], roll))
            _tell(f"no games were played: the strategy cannot be copied ({type(error).__name__}: {error})")
            return result
        result = start.played(HeardGrid(start.arguments["grid"], roll))
        with spared_generators(), _no_news_from_flower():
            try:
                Table(self._audit, campaign, pristine, start.arguments["grid"], roll).play()
            except (InputError, OSError) as error:
                _tell(str(error))
        return result

    def summary(self) -> None:
        """Log a summary."""
        self._inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure training as the app's strategy does."""
        return self._inner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate as the app's strategy does."""
        return self._inner.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure evaluation as the app's strategy does."""
        return self._inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate evaluations as the app's strategy does."""
        return self._inner.aggregate_evaluate(server_round, replies)


class Table:
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
    """

    def __init__(self, audit: "Audit", campaign: Campaign, pristine: Start, grid: Grid, roll: RollCall) -> None:
        self._audit, self._campaign, self._pristine, self._grid, self._roll = audit, campaign, pristine, grid, roll
        self._model: Arrays = arrays_of(pristine.model)
        self._sketch = sketch(shapes_of(self._model))

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
            seen, errors = self._game(audit.games + 1, Deed.NOTHING, target, watcher, rounds=1)
            campaign.keep_probe(seen.refusal or "; ".join(errors[:1]))
        told = time.monotonic()
        for game in campaign.missing[: audit.games_per_run]:
            deed = audit.deed(campaign.is_present(game), self._pristine.strategy)
            campaign.add(game, self._game(game, deed, target, watcher, audit.claim.rounds)[0])
            if time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                _tell(f"game {game} of {audit.games}")
        _tell(audit.finish(campaign, sketch(shapes_of(self._model)).columns))

    def _seats(self) -> tuple[int, int | None]:
        """Return the nodes of the target's client and of the one that looks."""
        audit, partitions = self._audit, self._roll.partitions
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
        if audit.is_about_records and node not in self._roll.asks_for_records:
            raise InputError(
                "the claim is about records, and the client app did not ask which it holds: accepted is an app that "
                "calls held(records) where it loads them"
            )
        return node, next((numbers[number] for number in sorted(numbers) if number != audit.target), None)

    def _game(self, game: int, deed: Deed, target: int, watcher: int | None, rounds: int) -> tuple[Seen, list[str]]:
        """Play one game; return what was seen of it, and the errors that clients replied."""
        audit = self._audit
        note = Note(game, "", deed, audit.replies, audit.numbers, audit.length)
        reference: Floats | None = self._roll.updates.get(target) if audit.is_about_records else None
        is_crafted = audit.is_crafted(self._pristine.strategy)
        part = Part(note, target, watcher, self._model, rounds, audit.observer, is_crafted, reference)
        ears = GameEars(part, self._sketch)
        draws = generator(self._campaign.seed, Purpose.LABORATORY, world=game)
        seed_generators(draws)
        result, refusal = None, None
        try:
            result = self._pristine.again(rounds, draws).played(HeardGrid(self._grid, ears))
        except Exception as error:  # whatever a foreign strategy raises is a finding, never the end of the audit
            refusal = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        return ears.seen(released_arrays(result), audit.released_numbers(result), refusal), ears.errors


def _tell(line: str) -> None:
    sys.stderr.write(f"fl_audit: {line}\n")
    sys.stderr.flush()


@contextmanager
def _no_news_from_flower() -> Iterator[None]:
    """Keep the log of hundreds of games off the terminal."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
