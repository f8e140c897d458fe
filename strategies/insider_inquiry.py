"""The inquiry that shows insiders each release and notes what they say of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message

from fl_audit.adversaries.residuals import Residuals, ResidualsLayout
from fl_audit.arrays import Floats, Integers
from fl_audit.game.columns import Columns
from fl_audit.game.public import PublicGame
from fl_audit.game.seen import show
from fl_audit.packing import pack
from fl_audit.protocol import Key, Query
from fl_audit.worlds import WorldBatch
from strategies.inquiries import Inquiry, More, Transcript, WriteMessage
from strategies.replies import Answer, read_array

_OBSERVE = f"query.{Query.OBSERVE}"


@dataclass
class Observed:
    """What an insider said of a batch, one array (worlds, ...) a round."""

    increments: list[Floats] = field(default_factory=list)
    local_sensitivity: list[Floats] = field(default_factory=list)
    scores: list[Floats] = field(default_factory=list)
    residuals: list[Floats] = field(default_factory=list)


class InsiderInquiry(Inquiry):
    """Shows release i in exchange i + 1, while the clients work on the next round.

    Parameters
    ----------
    public
        The public game: what clients see of a round.
    insiders
        Partitions of the insiders, each with the seeds of the noise that it knows. The first one is the insider of
        which everything is noted; of the others the log-odds are.
    batches
        The batches that travel together.
    layout
        What an insider's measurements of the noise stand for; None where it measures none.
    true_side
        Tells which of the sums was released, (worlds, rounds), once the last round is over; see `Residuals.opened`.
    """

    def __init__(
        self,
        public: PublicGame,
        insiders: Mapping[int, Sequence[int]],
        batches: Sequence[WorldBatch],
        layout: ResidualsLayout | None = None,
        true_side: Callable[[WorldBatch], Integers] | None = None,
    ) -> None:
        self._public = public
        self._insiders = {client: torch.tensor(list(seeds), dtype=torch.int64) for client, seeds in insiders.items()}
        self._batches = batches
        self._layout = layout
        self._true_side = true_side
        self._observed = {(client, batch.name): Observed() for client in insiders for batch in batches}
        self._norms: dict[str, list[Floats]] = {batch.name: [] for batch in batches}

    @property
    def last_exchange(self) -> int:
        """The last release is shown after the last round."""
        return self._public.rounds + 1

    def messages(
        self, exchange: int, transcripts: Mapping[str, Transcript], to_observer: WriteMessage, to_owner: WriteMessage
    ) -> list[Message]:
        """Return the newest release of each batch, as each insider sees it."""
        if not self._asks(exchange):
            return []
        written = []
        for batch in self._batches:
            made = transcripts[batch.name].made
            assert made is not None, "an exchange from the second on follows a release"
            if made.around.norms is not None:
                self._norms[batch.name].append(made.around.norms.numpy())
            for client, seeds in self._insiders.items():
                known = replace(made, around=replace(made.around, noise_seeds=seeds)) if len(seeds) else made
                tensors = show(self._public.view, self._public.law, known).tensors()
                arrays = ArrayRecord({name: Array(*pack(value.numpy())) for name, value in tensors.items()})
                written.append(to_observer(client, _OBSERVE, batch, exchange - 1, arrays, self._told(batch)))
        return written

    def _told(self, batch: WorldBatch) -> More:
        """Return what insiders are told beside the release."""
        return {}

    def answers(self, exchange: int) -> list[Answer]:
        """Return the insiders' answers, one a batch."""
        asked = self._batches if self._asks(exchange) else ()
        return [Answer(client, _OBSERVE, batch.name) for batch in asked for client in self._insiders]

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of increments, sensitivities, scores and residuals.

        Raises
        ------
        FederationError
            If an insider did not send them.
        """
        assert self._layout is not None, "who asks for measurements knows what they stand for"
        for answer in self.answers(exchange):
            reply, observed = found[answer], self._observed[answer.client, answer.batch]
            worlds = next(batch.count for batch in self._batches if batch.name == answer.batch)
            said: tuple[tuple[Key, list[Floats], tuple[int, ...], bool], ...] = (
                (Key.LOG_ODDS, observed.increments, (worlds,), True),
                (Key.LOCAL_SENSITIVITY, observed.local_sensitivity, (worlds,), True),
                (Key.SCORES, observed.scores, (worlds, 2), False),
                (Key.RESIDUALS, observed.residuals, (worlds, len(self._layout.names)), False),
            )
            for key, kept, shape, finite in said:
                array = read_array(reply, key, shape, np.float64, answer.client, exchange - 1, finite)
                kept.append(array.astype(np.float64))

    def columns(self, batch: WorldBatch) -> Columns:
        """Return what the insiders said of a batch, as columns of the run's tables."""
        first, *others = (self._observed[client, batch.name] for client in self._insiders)
        found = self._columns_of(batch, first)
        if not others:
            return found
        final = np.stack([_log_odds(one)[:, -1] for one in (first, *others)], axis=1)
        return found | Columns(insiders={"log_odds": final}, insider_clients=tuple(self._insiders))

    def _columns_of(self, batch: WorldBatch, observed: Observed) -> Columns:
        """Return all that one insider said, the noise as it was by what really was released."""
        assert self._layout is not None
        assert self._true_side is not None
        norms = self._norms[batch.name]
        law, sensitivity = self._public.law, np.stack(observed.local_sensitivity, axis=1)
        both = Residuals.of_array(np.stack(observed.residuals, axis=1), self._layout)
        residuals = both.opened(self._true_side(batch))
        scores, used = np.stack(observed.scores, axis=1), np.stack(norms, axis=1) if norms else None
        log_odds = _log_odds(observed)
        rounds = {
            "sigma": law.noise_scale(sensitivity, self._public.standpoint, used),
            "local_sensitivity": sensitivity,
            "log_odds": log_odds,
            "increment": np.stack(observed.increments, axis=1),
            "measured_sigma": residuals.sigma,
        }
        if law.is_sampled or law.is_adaptive:
            # Elsewhere they follow from increments and sensitivities.
            rounds |= {"score_present": scores[..., 0], "score_absent": scores[..., 1]}
        if used is not None:
            rounds["clipping_norm"] = used
        return Columns(worlds={"log_odds": log_odds[:, -1]}, rounds=rounds, residuals=residuals.columns())

    def _asks(self, exchange: int) -> bool:
        return 1 < exchange <= self.last_exchange


def _log_odds(observed: Observed) -> Floats:
    """Return the cumulated log-odds (worlds, rounds)."""
    return np.stack(observed.increments, axis=1).cumsum(axis=1)
