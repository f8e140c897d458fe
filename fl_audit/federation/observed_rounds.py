"""The observations of clients in a round, for each view.

Under the view `update`, clients see the noised sum, from which the models follow by the public optimizer. Under
`model`, they see models alone, from which the insider recovers the sum. Server, recorder, insider and replay all use
the functions of this module.

`ServerRound` holds all of a round. `ObservedRound` is the part that clients see: the release or the models, and
`SideInformation`, e.g. participation, adaptive clipping norms and noised quantile bits.
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
    """Values of a round that an adversary knows beside the release; None for those that the mechanism does not have."""

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
        """Build the side information from tensors by name; inverse of `tensors()`."""
        return SideInformation(**{entry.name: tensors.get(entry.name) for entry in fields(SideInformation)})

    def first(self, trials: int) -> "SideInformation":
        """Return the side information of the first `trials` trials."""
        named = {name: value[:trials] for name, value in self.tensors().items()}
        return replace(self, **(named | {"noise_seeds": self.noise_seeds}))

    @property
    def norms_array(self) -> Floats | None:
        """The adaptive clipping norms as an array; None if the norm is fixed."""
        return None if self.norms is None else self.norms.cpu().numpy()


class EarlierRound(NamedTuple):
    """An earlier round: the models from which the clients started, and the release; both (trials, parameters)."""

    start: Tensor
    release: Tensor


@dataclass(frozen=True)
class ServerRound:
    """All that the server knows of a round."""

    number: int  # the round, from 1
    # Up to three successive models (trials, parameters), theta_i last and theta_{i-1} before it.
    models: tuple[Tensor, ...]
    release: Tensor  # r_i (trials, parameters)
    side: SideInformation = field(default_factory=SideInformation)  # knowledge of an adversary beside it
    # The rounds before it that are needed to weigh it, oldest first; none unless the noise is correlated.
    earlier: tuple[EarlierRound, ...] = ()

    def first(self, trials: int) -> "ServerRound":
        """Return the round in the first `trials` trials."""
        models = tuple(model[:trials] for model in self.models)
        earlier = tuple(EarlierRound(start[:trials], release[:trials]) for start, release in self.earlier)
        return ServerRound(self.number, models, self.release[:trials], self.side.first(trials), earlier)


@dataclass(frozen=True)
class ObservedRound:
    """An adversary's view of a round: models or releases, and side information."""

    number: int  # the round, from 1
    # Successive models (trials, parameters), oldest first. Under `update` theta_{i-1} alone; under `model` as many as
    # determine the sum, theta_i last.
    models: tuple[Tensor, ...]
    release: Tensor | None  # the noised sums r_i (trials, parameters); None under `model`
    side: SideInformation = field(default_factory=SideInformation)  # knowledge of an adversary beside it
    # The rounds before it that are needed to weigh it, oldest first; none unless the noise is correlated.
    earlier: tuple[EarlierRound, ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the round by their message keys, without the number of the round."""
        named = {models_key(back): model for back, model in enumerate(reversed(self.models))}
        named |= {} if self.release is None else {str(Key.RELEASE): self.release}
        for back, (start, release) in enumerate(reversed(self.earlier), start=1):
            named |= {earlier_key(Key.MODELS, back): start, earlier_key(Key.RELEASE, back): release}
        return named | self.side.tensors()

    @staticmethod
    def of(number: int, tensors: Mapping[str, Tensor]) -> "ObservedRound":
        """Build an observed round from the tensors of a message; inverse of `ObservedRound.tensors()`.

        Parameters
        ----------
        number
            Number of the round, from 1.
        tensors
            Models, releases and side information by message key.
        """
        models = tuple(tensors[models_key(back)] for back in reversed(range(_counted(tensors, models_key(0)[:-1]))))
        steps = tuple(
            EarlierRound(tensors[earlier_key(Key.MODELS, back)], tensors[earlier_key(Key.RELEASE, back)])
            for back in range(_counted(tensors, earlier_key(Key.RELEASE, 1)[:-1]), 0, -1)
        )
        return ObservedRound(number, models, tensors.get(Key.RELEASE), SideInformation.of(tensors), steps)

    @property
    def start(self) -> Tensor:
        """The models theta_{i-1} from which the clients started."""
        return self.models[-1] if self.release is not None else self.models[-2]

    def sums(self, mechanism: Mechanism) -> Tensor:
        """Return the noised sums; under the view `model`, they are recovered in float64 from successive models."""
        if self.release is not None:
            return self.release
        return recover_gradient(mechanism.optimizer, list(self.models)) * mechanism.denominator

    def rounding(self, mechanism: Mechanism) -> Tensor | None:
        """Return the RMS rounding error of recovered sums, shape (trials,); None if the sums were observed directly."""
        if self.release is not None:
            return None
        largest = torch.maximum(self.models[-1].abs(), self.models[-2].abs())
        return inversion_error(mechanism.optimizer, largest, mechanism.denominator)


def _counted(tensors: Mapping[str, Tensor], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in tensors)


def _require_view(view: InsiderView, mechanism: Mechanism) -> None:
    """Raise `InputError` if the view `model` is used with an optimizer without inverse or with correlated noise."""
    if view is InsiderView.MODEL:
        _ = mechanism.optimizer.models_to_invert  # refuses Adam, which cannot be inverted
        found = "view is 'model' with noise that is correlated over rounds, whose releases an insider must see"
        require(mechanism.rounds_needed == 1, f"{found}: accepted with it is 'update'")


def shown(value: Tensor | None, what: str) -> Tensor:
    """Return a part of the adversary's view; raises `InputError` if the view does not contain it.

    Parameters
    ----------
    value
        The part; None if the view does not contain it.
    what
        Name of the part, for the message.
    """
    require(value is not None, f"the insider was not shown {what}, which it needs to weigh the round")
    assert value is not None
    return value


def is_blurred(share: Floats) -> Flags:
    """Return whether the rounding of float32 models makes the releases that are recovered from them useless.

    `share`, of any shape, is the rounding error of the recovered sum divided by the standard deviation of its noise.
    """
    return share > _BLURRED_FROM


def refuse_blurred_updates(share: Floats) -> None:
    """Raise `InputError` if in any trial the rounding of float32 models is too large against the noise of the updates.

    Parameters
    ----------
    share
        Rounding error divided by the standard deviation of the noise, of any shape.
    """
    largest = float(share.max(initial=0.0))
    found = f"the rounding of 32-bit weights is {largest:.2g} of the noise of the clients' updates, which hides them"
    remedy = "raise local-learning-rate, or set local-steps = 2, for which the insider has scores"
    require(not is_blurred(share).any(), f"{found}: accepted is up to {_BLURRED_FROM:g}; {remedy}")


def refuse_blurred(share: Floats) -> None:
    """Raise `InputError` if in any trial the rounding of float32 models is too large to recover the release."""
    found = f"their rounding is {float(share.max(initial=0.0)):.2g} of the standard deviation of the noise"
    remedy = f"accepted is up to {_BLURRED_FROM:g}; raise the learning rate, or use view = 'update'"
    hidden = "view is 'model', and the 32-bit numbers of the models hide the release"
    require(not is_blurred(share).any(), f"{hidden}: {found}, {remedy}")


def show(view: InsiderView, mechanism: Mechanism, made: ServerRound) -> ObservedRound:
    """Return the part of a round that clients see under a view.

    Parameters
    ----------
    view
        View of the clients.
    mechanism
        Mechanism of the federation; its optimizer decides how many models clients see.
    made
        The round as the server knows it.
    """
    match view:
        case InsiderView.UPDATE:
            return ObservedRound(made.number, (made.models[-2],), made.release, made.side, made.earlier)
        case InsiderView.MODEL:
            return ObservedRound(made.number, made.models[-mechanism.optimizer.models_to_invert :], None, made.side)
        case _:
            assert_never(view)


def kept_of(view: InsiderView, made: ServerRound) -> dict[str, Tensor]:
    """Return the tensors of a round that the run directory stores, by name: release or model, and side information.

    Parameters
    ----------
    view
        View of the clients.
    made
        The round as the server knows it.
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
    """Yield the rounds of some trials, reconstructed from the tensors that the run directory stores.

    Under the view `update`, the models follow from the releases by the public optimizer; under `model`, the releases
    follow from the models.

    Parameters
    ----------
    view
        View of the clients.
    mechanism
        Mechanism of the federation.
    initial
        Initial models theta_0, shape (trials, parameters).
    rounds
        Tensors that are stored of each round, in order.
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
