"""Observations that clients make of a round: the one place where the views differ.

Under `update` clients see the noised sum, and the models follow from it by the public optimizer. Under `model` they see
models alone, and the insider recovers the sum from successive ones. The server, the recorder, the insider and the
replay all use these functions.

The server makes a round (`ServerRound`). Clients see a part of it (`ObservedRound`): the release or the models, and the
side information of the adversary (`SideInformation`): the participation, the clipping norms, the noised bits behind an
adaptive norm.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.federation.names import InsiderView as InsiderView
from fl_audit.learning.optimizers import OptimizerState, inversion_error, recover_gradient, step
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.protocol import Key, earlier_key, models_key

_KEPT = {InsiderView.UPDATE: "releases", InsiderView.MODEL: "models"}

_BLURRED_FROM = 1e-3
"""Share of the noise's standard deviation above which the rounding of float32 models hides a recovered release."""


@dataclass(frozen=True)
class SideInformation:
    """Knowledge of an adversary about a round beside the release; None for any part that the mechanism lacks."""

    # The units that took part, bool (trials, units). If the participation of the target is secret, its column is empty.
    taking_part: Tensor | None = None
    norms: Tensor | None = None  # the clipping norms of the round, float64 (trials,)
    bits: Tensor | None = None  # the noised sum of the centred bits of an adaptive norm, float64 (trials,)
    # Contribution of the target's client, (trials, parameters); only the server sees it.
    contribution: Tensor | None = None
    trial_numbers: Tensor | None = None  # numbers of the trials, int64 (trials,), of which clients' noise is drawn
    # Seeds of the noise that the adversary knows: its own and its colluders', int64 (known shares,).
    noise_seeds: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the side information that are present, by name."""
        named = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in named.items() if value is not None}

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> "SideInformation":
        """Return the side information from tensors by name, the inverse of `tensors`."""
        return SideInformation(**{entry.name: tensors.get(entry.name) for entry in fields(SideInformation)})

    def first(self, trials: int) -> "SideInformation":
        """Return the side information of the first trials only."""
        named = {name: value[:trials] for name, value in self.tensors().items()}
        return replace(self, **(named | {"noise_seeds": self.noise_seeds}))

    @property
    def norms_array(self) -> Floats | None:
        """The clipping norms as an array; None where the norm is fixed."""
        return None if self.norms is None else self.norms.cpu().numpy()


class EarlierRound(NamedTuple):
    """An earlier round: the models on which the clients worked, and the release; both (trials, parameters)."""

    start: Tensor
    release: Tensor


@dataclass(frozen=True)
class ServerRound:
    """A round with everything that the server knows of it."""

    number: int  # the round, from 1
    # Up to three successive models (trials, parameters), theta_i last and theta_{i-1} before it.
    models: tuple[Tensor, ...]
    release: Tensor  # r_i (trials, parameters)
    side: SideInformation = field(default_factory=SideInformation)  # knowledge of an adversary beside it
    # The rounds before it that are needed to weigh it, oldest first; none unless the noise is correlated.
    earlier: tuple[EarlierRound, ...] = ()

    def first(self, trials: int) -> "ServerRound":
        """Return the same round with its first trials only."""
        models = tuple(model[:trials] for model in self.models)
        earlier = tuple(EarlierRound(start[:trials], release[:trials]) for start, release in self.earlier)
        return ServerRound(self.number, models, self.release[:trials], self.side.first(trials), earlier)


@dataclass(frozen=True)
class ObservedRound:
    """The view of an adversary on one round: models or releases, and side information."""

    number: int  # the round, from 1
    # Successive models (trials, parameters), oldest first. Under `update` theta_{i-1} alone; under `model` as many as
    # determine the sum, theta_i last.
    models: tuple[Tensor, ...]
    release: Tensor | None  # the noised sums r_i (trials, parameters); None under `model`
    side: SideInformation = field(default_factory=SideInformation)  # knowledge of an adversary beside it
    # The rounds before it that are needed to weigh it, oldest first; none unless the noise is correlated.
    earlier: tuple[EarlierRound, ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it but the number by name, for a message."""
        named = {models_key(back): model for back, model in enumerate(reversed(self.models))}
        named |= {} if self.release is None else {str(Key.RELEASE): self.release}
        for back, (start, release) in enumerate(reversed(self.earlier), start=1):
            named |= {earlier_key(Key.MODELS, back): start, earlier_key(Key.RELEASE, back): release}
        return named | self.side.tensors()

    @staticmethod
    def of(number: int, tensors: Mapping[str, Tensor]) -> "ObservedRound":
        """Return the observed round from the tensors of a message, the inverse of `tensors`.

        Parameters
        ----------
        number
            Number of the round, from 1.
        tensors
            Models, releases and side information, keyed as in a message.
        """
        models = tuple(tensors[models_key(back)] for back in reversed(range(_counted(tensors, models_key(0)[:-1]))))
        steps = tuple(
            EarlierRound(tensors[earlier_key(Key.MODELS, back)], tensors[earlier_key(Key.RELEASE, back)])
            for back in range(_counted(tensors, earlier_key(Key.RELEASE, 1)[:-1]), 0, -1)
        )
        return ObservedRound(number, models, tensors.get(Key.RELEASE), SideInformation.of(tensors), steps)

    @property
    def start(self) -> Tensor:
        """Return theta_{i-1}, the models on which the clients worked."""
        return self.models[-1] if self.release is not None else self.models[-2]

    def sums(self, mechanism: Mechanism) -> Tensor:
        """Return the noised sums, recovered in float64 where only models were seen."""
        if self.release is not None:
            return self.release
        return recover_gradient(mechanism.optimizer, list(self.models)) * mechanism.denominator

    def rounding(self, mechanism: Mechanism) -> Tensor | None:
        """Return the root mean square of the rounding in recovered sums (trials,); None where they were seen."""
        if self.release is not None:
            return None
        largest = torch.maximum(self.models[-1].abs(), self.models[-2].abs())
        return inversion_error(mechanism.optimizer, largest, mechanism.denominator)


def _counted(tensors: Mapping[str, Tensor], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in tensors)


def _require_view(view: InsiderView, mechanism: Mechanism) -> None:
    """Refuse models alone where the optimizer cannot be inverted, or the noise is correlated over rounds."""
    if view is InsiderView.MODEL:
        _ = mechanism.optimizer.models_to_invert  # refuses Adam, which cannot be inverted
        found = "view is 'model' with noise that is correlated over rounds, whose releases an insider must see"
        require(mechanism.rounds_needed == 1, f"{found}: accepted with it is 'update'")


def shown(value: Tensor | None, what: str) -> Tensor:
    """Return what was shown, or refuse.

    Parameters
    ----------
    value
        The part of a view; None if the view does not have it.
    what
        Name of the part, for the message.
    """
    require(value is not None, f"the insider was not shown {what}, which it needs to weigh the round")
    assert value is not None
    return value


def is_blurred(share: Floats) -> Flags:
    """Return whether the rounding of float32 models hides a release recovered from them.

    The share is the rounding of the recovered sum over the standard deviation of its noise, at least 0; any shape.
    """
    return share > _BLURRED_FROM


def refuse_blurred_updates(share: Floats) -> None:
    """Raise `InputError` if in any trial the rounding of clients' models hides the noise of their updates.

    Parameters
    ----------
    share
        The rounding over the standard deviation of the noise, of any shape.
    """
    largest = float(share.max(initial=0.0))
    found = f"the rounding of 32-bit weights is {largest:.2g} of the noise of the clients' updates, which hides them"
    remedy = "raise local-learning-rate, or set local-steps = 2, for which the insider has scores"
    require(not is_blurred(share).any(), f"{found}: accepted is up to {_BLURRED_FROM:g}; {remedy}")


def refuse_blurred(share: Floats) -> None:
    """Raise `InputError` if in any trial the models' rounding hides the release, which cannot be recovered then."""
    found = f"their rounding is {float(share.max(initial=0.0)):.2g} of the standard deviation of the noise"
    remedy = f"accepted is up to {_BLURRED_FROM:g}; raise the learning rate, or use view = 'update'"
    hidden = "view is 'model', and the 32-bit numbers of the models hide the release"
    require(not is_blurred(share).any(), f"{hidden}: {found}, {remedy}")


def show(view: InsiderView, mechanism: Mechanism, made: ServerRound) -> ObservedRound:
    """Return the part of a round that clients see.

    Parameters
    ----------
    view
        Parts of a round that clients may see.
    mechanism
        Mechanism by which a release is made.
    made
        The round as the server made it.
    """
    match view:
        case InsiderView.UPDATE:
            return ObservedRound(made.number, (made.models[-2],), made.release, made.side, made.earlier)
        case InsiderView.MODEL:
            return ObservedRound(made.number, made.models[-mechanism.optimizer.models_to_invert :], None, made.side)
        case _:
            assert_never(view)


def kept_of(view: InsiderView, made: ServerRound) -> dict[str, Tensor]:
    """Return the tensors of a round that a run directory keeps, by name: as much as clients saw.

    Parameters
    ----------
    view
        Parts of a round that clients see.
    made
        The round as the server made it.
    """
    match view:
        case InsiderView.UPDATE:
            return {_KEPT[view]: made.release} | made.side.tensors()
        case InsiderView.MODEL:
            return {_KEPT[view]: made.models[-1]} | made.side.tensors()
        case _:
            assert_never(view)


def walk(
    view: InsiderView, mechanism: Mechanism, initial: Tensor, rounds: Sequence[Mapping[str, Tensor]]
) -> Iterator[ServerRound]:
    """Walk through the kept rounds of some trials.

    Under the view `update` the models follow from the releases by the public optimizer, under `model` the releases from
    the models.

    Parameters
    ----------
    view
        Parts of a round that clients see.
    mechanism
        Mechanism by which a release is made.
    initial
        Initial models theta_0, shape (trials, parameters).
    rounds
        Tensors that were kept of each round, in order.
    """
    models, state, earlier = [initial], OptimizerState(), deque[EarlierRound](maxlen=mechanism.rounds_needed - 1)
    for number, stored in enumerate(rounds, start=1):
        kept = stored[_KEPT[view]]
        match view:
            case InsiderView.UPDATE:
                moved, state = step(mechanism.optimizer, models[-1], kept, state, mechanism.denominator)
                models, release = [*models[-2:], moved], kept
            case InsiderView.MODEL:
                models = [*models[-2:], kept]
                release = recover_gradient(mechanism.optimizer, models) * mechanism.denominator
            case _:
                assert_never(view)
        yield ServerRound(number, tuple(models), release, SideInformation.of(stored), tuple(earlier))
        earlier.append(EarlierRound(models[-2], release))
