"""Local DP-SGD of a client with Opacus, one trial after another.

Every step takes a Poisson sample of the records, clips the gradient of each, and adds noise (Abadi et al. 2016, "Deep
learning with differential privacy"). Opacus trains one model at a time, so training many trials is slow, but its steps
and its accountant are not our own code. All random draws come from generators that the caller provides, one per trial.

Opacus derives the sampling rate and the expected batch size from the number of records. So a client whose target record
is absent keeps a placeholder for it, which is sampled like other records and then left out. Sampling rate, number of
steps and expected batch size are then the same with and without the record, as the guarantee assumes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import InputError, require
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.losses import loss_of
from fl_audit.learning.module_preparation import constants_of, copied, exception_text, without_hints
from fl_audit.learning.pass_budgets import GRADIENT_BUDGET
from fl_audit.learning.per_record_lookups import PerRecordLookupHooks, require_samples
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.privacy.events import batches_per_epoch

# Opacus takes a third of the time in which a client process starts, and most federations never use it, so only the
# functions that need it import it.
if TYPE_CHECKING:
    from opacus import PrivacyEngine
    from opacus.accountants import RDPAccountant
    from opacus.optimizers import DPOptimizer

_WORDS = 624
"""Number of words in the state of torch's generator, a Mersenne twister."""
_BEFORE_WORDS = 24  # number of bytes that precede these words in the state
_NO_SLOTS = torch.empty(0, dtype=torch.int64)
"""A sample that contains no record."""
CLIPPING_SLACK = 1e-6
"""Number that Opacus adds to gradient norms before it divides by them."""


@dataclass(frozen=True)
class LocalDPSGDSettings:
    """Settings of a client's local DP-SGD in one round: schedule, clipping norm and noise multiplier."""

    schedule: LocalSchedule  # learning rate, mean batch size, and epochs or steps
    clipping_norm: float  # L2 norm C to which each record's gradient is clipped in a step, positive
    # Noise multiplier z, at least 0: every step adds N(0, (z C)^2 I) to the sum of clipped gradients. With 0 there is
    # no privacy guarantee.
    noise_multiplier: float

    def count(self, records: int) -> int:
        """Return the number of steps in a round for a client with this number of records."""
        if self.schedule.steps is not None:
            return self.schedule.steps
        return (self.schedule.epochs or 1) * batches_per_epoch(records, self.schedule.batch)

    def mean_batch(self, records: int) -> float:
        """Return the expected batch size for a client with `records` records.

        A step of DP-SGD divides its sum of clipped gradients by this number.
        """
        return records / batches_per_epoch(records, self.schedule.batch)

    def update_variance(self, records: int) -> float:
        """Return the variance per coordinate of the noise in a client's update, as the sum over all steps.

        The effect of the noise on the gradients of later steps is left out.
        """
        step = self.schedule.learning_rate * self.noise_multiplier * self.clipping_norm / self.mean_batch(records)
        return self.count(records) * step**2

    def accountant_after(self, rounds: int, records: int) -> str:
        """Return the state, as JSON, of a client's privacy accountant after a number of rounds."""
        rate = 1 / batches_per_epoch(records, self.schedule.batch)
        return _state_of(_accountant(self.noise_multiplier, rate, rounds * self.count(records)))


@dataclass(frozen=True)
class PrivateUpdates:
    """Updates of a client after a round of local DP-SGD, and the state of its privacy accountant."""

    updates: Tensor  # theta_start - theta_end, float32 (trials, parameters)
    accountant: str  # state of Opacus's accountant after the round, as JSON; it is the same in all trials
    times: Floats | None = None  # number of steps that sampled a canary, (trials, canaries); None without canaries


@dataclass(frozen=True)
class GradientCanaries:
    """Artificial records (canaries) of an audit, each defined by its gradient alone.

    Canaries are sampled and clipped like records. They change neither the sampling rate nor the expected batch size,
    which follow from the client's real records.

    Source: Nasr et al. 2023, arXiv 2302.07956.
    """

    directions: Sequence[Tensor]  # for each trial the canaries' directions, float32 (canaries, parameters), of norm 1
    coins: Flags  # whether a canary is inserted, bool (trials, canaries)
    sources: Sequence[np.random.Generator]  # for each trial the generator that draws which steps sample a canary


def private_updates(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    settings: LocalDPSGDSettings,
    sources: Sequence[np.random.Generator],
    present: Flags | None = None,
    accountant: str | None = None,
    canaries: GradientCanaries | None = None,
) -> PrivateUpdates:
    """Train a client's model by DP-SGD with Opacus in every trial, one after another.

    Raises `InputError` if Opacus cannot train the model.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,), `present` (trials, n).
    """
    # Suppressed are two warnings of Opacus: one on how its hooks work in torch 2, and one on noise that is drawn from a
    # seed. Every report states the latter.
    with without_hints():
        trial = _SequentialTrialTrainer(model, features.cpu(), labels.cpu(), settings)
        updates = torch.empty(models.shape)
        state = accountant
        times = None if canaries is None else np.zeros(canaries.coins.shape)
        for row, source in enumerate(sources):
            if canaries is not None and times is not None:
                times[row] = trial.sample_canaries(canaries, row)
            there = None if present is None else torch.from_numpy(present[row])
            updates[row], state = trial.train(models[row].cpu(), source, there, accountant)
    assert state is not None, "there is a trial at least"
    return PrivateUpdates(updates.to(models.device), state, times)


def first_sample(records: int, batch: int, source: np.random.Generator) -> Flags:
    """Return which records the first DP-SGD step of a round samples, bool (records,), as drawn in `private_updates`."""
    from opacus.data_loader import DPDataLoader  # slow to import, and needed by few federations  # noqa: PLC0415

    is_sampled = np.zeros(records, dtype=np.bool_)

    def note(items: Sequence[tuple[Tensor]]) -> Tensor:
        is_sampled[[int(slot) for (slot,) in items]] = True
        return _NO_SLOTS

    slots = TensorDataset(torch.arange(records))
    draws = torch_generator(source)
    loader = DPDataLoader.from_data_loader(DataLoader(slots, batch, collate_fn=note, generator=draws))
    loader.collate_fn.first_batch = _NO_SLOTS
    next(iter(loader))
    return is_sampled


def torch_generator(source: np.random.Generator) -> torch.Generator:
    """Return a torch generator on the CPU, with its whole state drawn from a numpy generator.

    A seed would not suffice: torch uses only 32 bits of it, so two of a hundred thousand generators would likely be
    equal.
    """
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state().numpy().copy()
    words = state[_BEFORE_WORDS : _BEFORE_WORDS + 8 * _WORDS].view(np.uint64)
    words[:] = source.integers(2**32, size=_WORDS, dtype=np.uint64)
    generator.set_state(torch.from_numpy(state))
    return generator


@lru_cache(maxsize=256)
def opacus_epsilon(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    """Return the epsilon that Opacus's RDP accountant states after a number of equal DP-SGD steps."""
    # Opacus warns if the best Renyi order is the first or the last of its list. The epsilon is then still a bound.
    with without_hints():
        return float(_accountant(noise_multiplier, sampling_rate, steps).get_epsilon(delta))


def _accountant(noise_multiplier: float, sampling_rate: float, steps: int) -> "RDPAccountant":
    from opacus.accountants import RDPAccountant  # slow to import, and needed by few federations  # noqa: PLC0415

    accountant = RDPAccountant()
    accountant.history = [(noise_multiplier, sampling_rate, steps)]
    return accountant


def _state_of(accountant: "RDPAccountant") -> str:
    """Return the state of an accountant as JSON.

    The accountant's own method is not used, because its result cannot be serialised before version 1.6 of Opacus.
    """
    return json.dumps({"history": accountant.history, "mechanism": "rdp"})


class _SequentialTrialTrainer:
    """Trains a model by DP-SGD on one client's records, in one trial after another."""

    def __init__(self, model: StackedModel, features: Tensor, labels: Tensor, settings: LocalDPSGDSettings) -> None:
        require(len(labels) > 0, "a client holds no record, and cannot train privately: accepted are 1 and more")
        self._features = features
        self._labels = labels
        self._loss = model.loss
        self._steps = settings
        self._layout: ParameterLayout = model.layout
        self._slots = TensorDataset(torch.arange(len(labels)))
        # Opacus refuses a module in evaluation mode; our models compute the same in both, which was checked.
        # The copy has parameters of its own, because several threads may train one model at the same time.
        own_copy = copied(model.template, constants_of(model.template))
        self._module: nn.Module = own_copy.cpu().requires_grad_(True).train()
        self._parameters = dict(self._module.named_parameters())
        self._lookups = PerRecordLookupHooks(self._module, features)
        self._together = max(1, GRADIENT_BUDGET // model.layout.size)
        self._extra: list[Tensor] = []

    def sample_canaries(self, canaries: GradientCanaries, row: int) -> Floats:
        """Draw for every step which canaries it samples in trial `row`; return how often each is sampled, float64.

        Canaries are sampled at the rate of the client's records. They are counted whatever their coin is, but only
        those whose coin is 1 are added to the sums of gradients.
        """
        records = len(self._labels)
        steps = self._steps.count(records)
        rate = 1 / batches_per_epoch(records, self._steps.schedule.batch)
        is_sampled = canaries.sources[row].random((steps, canaries.coins.shape[1])) < rate
        # A canary has twice the clipping norm before clipping, so it enters the sum with exactly the clipping norm.
        long = 2 * self._steps.clipping_norm * canaries.directions[row]
        self._extra = [long[torch.from_numpy(sampled_in_step & canaries.coins[row])] for sampled_in_step in is_sampled]
        return np.asarray(is_sampled.sum(axis=0), dtype=np.float64)

    def train(
        self, start: Tensor, source: np.random.Generator, present: Tensor | None, accountant: str | None
    ) -> tuple[Tensor, str]:
        """Train for one round; return theta_start - theta_end, (parameters,), and the accountant's state as JSON.

        `present` says which records the training uses, bool (records,); None for all.
        """
        from opacus import PrivacyEngine  # slow to import, and needed by few federations  # noqa: PLC0415

        with torch.no_grad():
            for name, weights in self._layout.of_one(start).items():
                self._parameters[name].copy_(weights)
        engine = PrivacyEngine(accountant="rdp")
        if accountant is not None:
            engine.accountant.history = [tuple(steps) for steps in json.loads(accountant)["history"]]
        optimizer, loader = self._made_private(engine, source, present)
        # The loader is repeated, because an epoch of Opacus' sampler may be one step short: 1 / (1 / steps) is rounded.
        samples = chain.from_iterable(repeat(loader))
        for number, slots in enumerate(islice(samples, self._steps.count(len(self._labels)))):
            # Before version 1.6 Opacus gives a list in the place of a sample without a record.
            sample = slots if isinstance(slots, Tensor) else _NO_SLOTS
            self._step(optimizer, sample, self._extra[number] if self._extra else None)
        end = self._layout.flatten(self._parameters)
        return start - end, _state_of(engine.accountant)

    def _made_private(
        self, engine: "PrivacyEngine", source: np.random.Generator, present: Tensor | None
    ) -> tuple["DPOptimizer", DataLoader[Any]]:
        schedule = self._steps.schedule
        records = len(self._labels)
        samples = torch_generator(source)
        noise = torch_generator(source)

        def of_present(items: Sequence[tuple[Tensor]]) -> Tensor:
            """Return the indices of those sampled records that are present in the trial.

            `items` is a Poisson sample as a data loader gives it: one tensor with an index for each sampled record.
            """
            slots = torch.stack([slot for (slot,) in items])
            return slots if present is None else slots[present[slots]]

        try:
            self._module, optimizer, loader = engine.make_private(
                module=self._module,
                optimizer=torch.optim.SGD(self._parameters.values(), lr=schedule.learning_rate),
                data_loader=DataLoader(self._slots, schedule.batch, collate_fn=of_present, generator=samples),
                noise_multiplier=self._steps.noise_multiplier,
                max_grad_norm=self._steps.clipping_norm,
                noise_generator=noise,
            )
        # Opacus refuses layers by several kinds of errors, NotImplementedError among them.
        except Exception as error:
            raise InputError(
                f"Opacus cannot train the model ({exception_text(error)}): accepted with strategy 'dp-sgd-clients' are "
                "modules without buffers, of layers that Opacus knows"
            ) from error
        # Opacus rounds the mean batch down, in the worst case to 0.
        optimizer.expected_batch_size = self._steps.mean_batch(records)
        # Opacus learns the form of an empty batch from the first batch. It is set here, because the first may be empty.
        loader.collate_fn.first_batch = _NO_SLOTS
        return optimizer, loader

    def _step(self, optimizer: "DPOptimizer", slots: Tensor, extra: Tensor | None) -> None:
        """Take one DP-SGD step on the sampled records `slots`, perhaps none, in microbatches that fit into memory.

        `extra` are the gradients of canaries in the step, (canaries, parameters).
        """
        portions = torch.split(slots, self._together) if len(slots) else (slots,)
        for remaining in range(len(portions) - 1, -1, -1):
            optimizer.signal_skip_step(remaining > 0)
        for portion in portions:
            optimizer.zero_grad()
            if len(portion):
                self._lookups.records = len(portion)
                loss = loss_of(self._module(self._features[portion]), self._labels[portion], "mean", self._loss)
                torch.autograd.backward(loss)
                require_samples(self._module, self._parameters, len(portion))
            else:
                # Some layers cannot be run without a record. The sample has no gradients, and the step adds only noise.
                for empty in optimizer.params:
                    empty.grad_sample = empty.new_zeros((0, *empty.shape))
            if extra is not None:
                for name, rows in self._layout.views(extra).items():
                    parameter: Any = self._parameters[name]
                    parameter.grad_sample = torch.cat([parameter.grad_sample, rows])
                extra = None
            optimizer.step()
        optimizer.zero_grad()
