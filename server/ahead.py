"""Work of the server that goes on while clients compute: evaluation of the last release, noise of the next one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch
from flwr.app import ArrayRecord, MetricRecord
from torch import Tensor

from fl_audit.arrays import Flags, Floats32
from fl_audit.game.membership import Membership
from fl_audit.learning.memory import ROUNDS_BETWEEN_TRIMS, give_back_freed_memory
from fl_audit.packing import unpack
from strategies.contributors import Challenger

Evaluate = Callable[[int, Mapping[str, Floats32]], MetricRecord | None]


class BackgroundEvaluation:
    """Evaluates releases one behind the other in a thread of its own; at most one waits.

    Parameters
    ----------
    evaluate
        What to do with a release.
    executor
        The thread.
    releases
        Numbers of the releases to evaluate; the others are passed over.
    """

    def __init__(self, evaluate: Evaluate, executor: ThreadPoolExecutor, releases: tuple[int, ...]) -> None:
        self._evaluate = evaluate
        self._executor = executor
        self._releases = releases
        self._pending: Future[MetricRecord | None] | None = None

    def __call__(self, server_round: int, arrays: ArrayRecord) -> None:
        """Begin to evaluate a release, after the one before has been evaluated."""
        if server_round not in self._releases:
            if server_round % ROUNDS_BETWEEN_TRIMS == 0:
                give_back_freed_memory()
            return
        self.settle()
        models = {name: unpack(array) for name, array in arrays.items()}
        self._pending = self._executor.submit(self._evaluated, server_round, models)

    def _evaluated(self, server_round: int, models: Mapping[str, Floats32]) -> MetricRecord | None:
        found = self._evaluate(server_round, models)
        give_back_freed_memory()
        return found

    def settle(self) -> None:
        """Wait for the evaluation under way; what went wrong in it is raised here."""
        if self._pending is not None:
            self._pending.result()
        self._pending = None


class PreparedNoise(Challenger):
    """A challenger that draws the standard normals of the next round while clients compute.

    Parameters
    ----------
    challenger
        Who draws them.
    executor
        The thread it draws them in.
    rounds
        After this round there is no next one.
    """

    def __init__(self, challenger: Challenger, executor: ThreadPoolExecutor, rounds: int) -> None:
        self._challenger = challenger
        self._executor = executor
        self._rounds = rounds
        self._drawn: dict[tuple[int, int], Future[Tensor]] = {}

    def membership(self, worlds: Sequence[int]) -> Membership:
        """Return which targets are in, world by world."""
        return self._challenger.membership(worlds)

    def participation(
        self, worlds: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> Flags:
        """Return which of a client's records take part in a round."""
        return self._challenger.participation(worlds, server_round, client, records, sampling_rate)

    def client_participation(
        self, worlds: Sequence[int], server_round: int, clients: int, sampling_rate: float
    ) -> Flags:
        """Return which clients take part in a round."""
        return self._challenger.client_participation(worlds, server_round, clients, sampling_rate)

    def coins(self, worlds: Sequence[int], server_round: int, canaries: int) -> Flags:
        """Return which canaries are in, in a round, (worlds, canaries)."""
        return self._challenger.coins(worlds, server_round, canaries)

    def quantile_normals(self, worlds: Sequence[int], server_round: int) -> Tensor:
        """Return standard normal draws for the bits of an adaptive norm."""
        return self._challenger.quantile_normals(worlds, server_round)

    def noise_seed(self, client: int) -> int:
        """Return the seed of a client's own noise."""
        return self._challenger.noise_seed(client)

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return float32 standard normal draws (worlds, size) of a round, and begin with those of the next."""
        ready = self._drawn.pop((worlds[0], server_round), None)
        draws = self._challenger.standard_normals(worlds, server_round, size) if ready is None else ready.result()
        if server_round < self._rounds:
            later = self._executor.submit(self._challenger.standard_normals, worlds, server_round + 1, size)
            self._drawn[worlds[0], server_round + 1] = later
        return draws


@contextmanager
def one_thread(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Offer a thread that computes with so many threads of torch; what still waits at the end is dropped."""
    executor = ThreadPoolExecutor(max_workers=1, initializer=torch.set_num_threads, initargs=(threads,))
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
