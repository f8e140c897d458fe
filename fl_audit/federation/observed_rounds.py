"""Observations of a round: the values that clients see under each view.

Under the view `update`, clients see the noised sum and compute the models with the public optimizer. Under `model`,
they see only models, from which the insider (a client that attacks) computes the sums. The server, the recorder, the
insider and the replay of a run all use these functions.

`ServerRound` holds all values of a round. `ObservedRound` holds the values that clients see: the release or the models,
and `SideInformation`, e.g. participation, adaptive clipping norms and the noised number of units within the norm.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.learning.optimizers import OptimizerState, inversion_error, recover_gradient, step
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.threat_model import InsiderView
from fl_audit.message_keys import Key, earlier_key, models_key

_KEPT = {InsiderView.UPDATE: "releases", InsiderView.MODEL: "models"}

_BLURRED_FROM = 1e-3
"""Share of the noise's standard deviation above which the rounding of float32 models hides a recovered release."""


@dataclass(frozen=True)
class SideInformation:
    """Values of a round that an adversary knows beside the release, such as participation and clipping norms.

    A value is None if the mechanism does not have it, or the adversary does not see it.
    """

    # Whether each unit participated, bool (trials, units). If the participation of the target is secret, its column is
    # False.
    taking_part: Tensor | None = None
    norms: Tensor | None = None  # the clipping norms of the round, float64 (trials,)
    bits: Tensor | None = None  # noised sum of the centred quantile bits, float64 (trials,)
    # Contribution of the target's client, (trials, parameters); only the server sees it.
    contribution: Tensor | None = None
    trial_numbers: Tensor | None = None  # numbers of the trials, int64 (trials,), from which noise is drawn
    # Seeds of the noise that the adversary knows: its own and its colluders', int64 (known shares,).
    noise_seeds: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that are not None, keyed by the names of the fields."""
        values_by_name = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values_by_name.items() if value is not None}

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> "SideInformation":
        """Build the side information from tensors keyed by field name; the inverse of `tensors`."""
        return SideInformation(**{entry.name: tensors.get(entry.name) for entry in fields(SideInformation)})

    def first(self, trials: int) -> "SideInformation":
        """Return the same side information for only the first `trials` trials."""
        tensors = {name: value[:trials] for name, value in self.tensors().items()}
        return replace(self, **(tensors | {"noise_seeds": self.noise_seeds}))

    @property
    def norms_array(self) -> Floats | None:
        """Adaptive clipping norms as a NumPy array, float64 (trials,); None if the clipping norm is fixed."""
        return None if self.norms is None else self.norms.cpu().numpy()


class EarlierRound(NamedTuple):
    """Models at the start of an earlier round, and its noised sum; both (trials, parameters)."""

    start: Tensor
    release: Tensor


@dataclass(frozen=True)
class ServerRound:
    """All values that the server knows of a round: models, release and side information."""

    number: int  # the round, from 1
    # Up to three successive models (trials, parameters), theta_i last and theta_{i-1} before it.
    models: tuple[Tensor, ...]
    release: Tensor  # r_i (trials, parameters)
    side: SideInformation = field(default_factory=SideInformation)  # knowledge of an adversary beside it
    # The rounds before it that are needed to weigh it, oldest first; none unless the noise is correlated.
    earlier: tuple[EarlierRound, ...] = ()
    # What adversaries are shown in place of the release: the noised sums before anything was done to them, (trials,
    # parameters). Who sees them sees the release too. None if they see the release as it is.
    shown: Tensor | None = None
    # Models after the optimizer's step, (trials, parameters); None if the server did not change them afterwards.
    stepped: Tensor | None = None

    @property
    def noised(self) -> Tensor:
        """Noised sums that the adversary is shown, (trials, parameters): those before post-processing, if known."""
        return self.release if self.shown is None else self.shown

    def first(self, trials: int) -> "ServerRound":
        """Return the same round for only the first `trials` trials."""
        models = tuple(model[:trials] for model in self.models)
        earlier = tuple(EarlierRound(start[:trials], release[:trials]) for start, release in self.earlier)
        tensor = None if self.shown is None else self.shown[:trials]
        return ServerRound(self.number, models, self.release[:trials], self.side.first(trials), earlier, tensor)


@dataclass(frozen=True)
class ObservedRound:
    """The values of a round that an adversary sees: models or release, and side information."""

    number: int  # the round, from 1
    # Successive models (trials, parameters), oldest first. Under `update` theta_{i-1} alone; under `model` as many as
    # determine the sum, theta_i last.
    models: tuple[Tensor, ...]
    release: Tensor | None  # the noised sums r_i (trials, parameters); None under `model`
    side: SideInformation = field(default_factory=SideInformation)  # knowledge of an adversary beside it
    # The rounds before it that are needed to weigh it, oldest first; none unless the noise is correlated.
    earlier: tuple[EarlierRound, ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the round, keyed as in messages."""
        tensors = {models_key(back): model for back, model in enumerate(reversed(self.models))}
        tensors |= {} if self.release is None else {str(Key.RELEASE): self.release}
        for back, (start, release) in enumerate(reversed(self.earlier), start=1):
            tensors |= {earlier_key(Key.MODELS, back): start, earlier_key(Key.RELEASE, back): release}
        return tensors | self.side.tensors()

    @staticmethod
    def of(number: int, tensors: Mapping[str, Tensor]) -> "ObservedRound":
        """Build an observed round from the tensors of a message; inverse of `ObservedRound.tensors`.

        Parameters
        ----------
        number
            Number of the round, from 1.
        tensors
            Models, releases and side information, keyed as in messages.
        """
        models = tuple(tensors[models_key(back)] for back in reversed(range(_counted(tensors, models_key(0)[:-1]))))
        steps = tuple(
            EarlierRound(tensors[earlier_key(Key.MODELS, back)], tensors[earlier_key(Key.RELEASE, back)])
            for back in range(_counted(tensors, earlier_key(Key.RELEASE, 1)[:-1]), 0, -1)
        )
        return ObservedRound(number, models, tensors.get(Key.RELEASE), SideInformation.of(tensors), steps)

    @property
    def start(self) -> Tensor:
        """Models theta_{i-1} from which the clients start round i, (trials, parameters)."""
        return self.models[-1] if self.release is not None else self.models[-2]

    def sums(self, mechanism: Mechanism) -> Tensor:
        """Return the noised sums of the round, (trials, parameters).

        Under the view `model`, they are computed from successive models.
        """
        if self.release is not None:
            return self.release
        return recover_gradient(mechanism.optimizer, list(self.models), self.number) * mechanism.denominator

    def rounding(self, mechanism: Mechanism) -> Tensor | None:
        """Return the root mean square rounding error of sums computed from models, float64 (trials,).

        None under the view `update`, in which the sums themselves are observed.
        """
        if self.release is not None:
            return None
        largest = torch.maximum(self.models[-1].abs(), self.models[-2].abs())
        return inversion_error(mechanism.optimizer, largest, mechanism.denominator, self.number)


def _counted(tensors: Mapping[str, Tensor], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in tensors)


def _require_view(view: InsiderView, mechanism: Mechanism) -> None:
    """Raise `InputError` if an insider who sees only models could not compute the releases from them.

    This is so if noise is correlated over rounds, or if the optimizer's step cannot be inverted.
    """
    if view is InsiderView.MODEL:
        _ = mechanism.optimizer.models_to_invert  # refuses Adam, which cannot be inverted
        problem = "view is 'model' with noise that is correlated over rounds, whose releases an insider must see"
        require(mechanism.rounds_needed == 1, f"{problem}: accepted with it is 'update'")


def require_seen(value: Tensor | None, name: str) -> Tensor:
    """Return a part of the adversary's view, which must contain it; otherwise `InputError` is raised.

    Parameters
    ----------
    value
        The part of the view; None if the adversary does not see it.
    name
        Name of the part, for the message.
    """
    require(value is not None, f"the insider was not shown {name}, which it needs to weigh the round")
    assert value is not None
    return value


def is_too_inaccurate(share: Floats) -> Flags:
    """Return whether released sums, recovered from float32 models, are too inaccurate because of rounding.

    `share` is the rounding error of a sum divided by the standard deviation of its noise. A sum is too inaccurate if
    this ratio is above 0.001. The result has the shape of `share`.
    """
    return share > _BLURRED_FROM


def refuse_blurred_updates(share: Floats) -> None:
    """Raise `InputError` if in any trial the rounding of float32 models hides the noise of the clients' updates.

    Parameters
    ----------
    share
        Rounding error divided by the standard deviation of the noise, in each trial, as for `is_too_inaccurate`.
    """
    largest = float(share.max(initial=0.0))
    problem = f"the rounding of 32-bit weights is {largest:.2g} of the noise of the clients' updates, which hides them"
    remedy = "raise local-learning-rate, or set local-steps = 2, for which the insider has scores"
    require(not is_too_inaccurate(share).any(), f"{problem}: accepted is up to {_BLURRED_FROM:g}; {remedy}")


def refuse_blurred(share: Floats) -> None:
    """Raise `InputError` if in any trial the rounding of float32 models hides the release.

    Parameters
    ----------
    share
        Rounding error over the standard deviation of the noise, as for `is_too_inaccurate`.
    """
    problem = f"their rounding is {float(share.max(initial=0.0)):.2g} of the standard deviation of the noise"
    remedy = f"accepted is up to {_BLURRED_FROM:g}; raise the learning rate, or use view = 'update'"
    hidden = "view is 'model', and the 32-bit numbers of the models hide the release"
    require(not is_too_inaccurate(share).any(), f"{hidden}: {problem}, {remedy}")


def part_seen_by_clients(view: InsiderView, mechanism: Mechanism, server_round: ServerRound) -> ObservedRound:
    """Return the part of a round that clients see: the release or models, with side information.

    If the server changes the noised sums after the noise, they see the noised sums themselves, whatever the view: a
    stronger adversary, whose log-odds have a known distribution.

    Parameters
    ----------
    view
        Whether clients see the noised sum (`update`) or models alone (`model`).
    mechanism
        Mechanism of the federation.
    server_round
        All that the server knows of the round.
    """
    if server_round.shown is not None:
        return ObservedRound(
            server_round.number, (server_round.models[-2],), server_round.shown, server_round.side, server_round.earlier
        )
    match view:
        case InsiderView.UPDATE:
            return ObservedRound(
                server_round.number,
                (server_round.models[-2],),
                server_round.release,
                server_round.side,
                server_round.earlier,
            )
        case InsiderView.MODEL:
            return ObservedRound(
                server_round.number,
                server_round.models[-mechanism.optimizer.models_to_invert :],
                None,
                server_round.side,
            )
        case _:
            assert_never(view)


def stored_tensors(view: InsiderView, server_round: ServerRound) -> dict[str, Tensor]:
    """Return those tensors of a round that are written to the run directory, keyed by name.

    They are the release or the model, depending on the view, and the side information. If adversaries are shown noised
    sums in place of the release, both these sums and the model are stored.

    Parameters
    ----------
    view
        Whether the clients see the release or only the new model.
    server_round
        All that the server knows of the round.
    """
    if server_round.shown is not None:
        return {"releases": server_round.shown, "models": server_round.models[-1]} | server_round.side.tensors()
    match view:
        case InsiderView.UPDATE:
            return {_KEPT[view]: server_round.release} | server_round.side.tensors()
        case InsiderView.MODEL:
            return {_KEPT[view]: server_round.models[-1]} | server_round.side.tensors()
        case _:
            assert_never(view)


def replayed_rounds(
    view: InsiderView, mechanism: Mechanism, initial: Tensor, rounds: Sequence[Mapping[str, Tensor]]
) -> Iterator[ServerRound]:
    """Reconstruct the rounds of some trials from the tensors that `stored_tensors` returned, and yield them one by one.

    Under the view `update`, the public optimizer computes the models from the releases. Under `model`, the releases are
    computed from the models. If both are stored, the releases are the noised sums that adversaries were shown.

    Parameters
    ----------
    view
        View that clients had of the rounds.
    mechanism
        Mechanism of the federation.
    initial
        Initial models theta_0, shape (trials, parameters).
    rounds
        For each round, in order, its stored tensors by name.
    """
    models = [initial]
    state = OptimizerState()
    earlier = deque[EarlierRound](maxlen=mechanism.rounds_needed - 1)
    for number, stored in enumerate(rounds, start=1):
        tensor = stored[_KEPT[view]]
        if set(_KEPT.values()) <= stored.keys() and not stored["releases"].isnan().all():
            models = [*models[-2:], stored["models"]]
            releases = stored["releases"]
            yield ServerRound(number, tuple(models), releases, SideInformation.of(stored), tuple(earlier), releases)
            earlier.append(EarlierRound(models[-2], releases))
            continue
        match view:
            case InsiderView.UPDATE:
                moved, state = step(mechanism.optimizer, models[-1], tensor, state, mechanism.denominator)
                models = [*models[-2:], moved]
                release = tensor
            case InsiderView.MODEL:
                models = [*models[-2:], tensor]
                release = recover_gradient(mechanism.optimizer, models, number) * mechanism.denominator
            case _:
                assert_never(view)
        yield ServerRound(number, tuple(models), release, SideInformation.of(stored), tuple(earlier))
        earlier.append(EarlierRound(models[-2], release))
