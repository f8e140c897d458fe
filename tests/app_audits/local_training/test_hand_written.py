"""DP-SGD without Opacus: honest forms of it are not accused, and what its steps do not keep is found."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from opacus.grad_sample import GradSampleModule
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

from fl_audit.app_audits.local_training.assessment import Assessment
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.verdict.verdict import Verdict

NORM, NOISE, EXPECTED, DELTA = 1.0, 1.0, 20, 1e-3
EPSILON = 2.267
"""Of five Poisson samples of rate 0.2 with noise multiplier 1, by dp-accounting."""
Gradients = dict[str, Tensor]


def _data(records: int = 98) -> TensorDataset:
    source = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(records, 5, generator=source), torch.arange(records) % 3)


def _loader(dataset: Any) -> DataLoader[Any]:
    sampler = UniformWithReplacementSampler(num_samples=len(dataset), sample_rate=0.2)
    return DataLoader(dataset, batch_sampler=sampler)


def _loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(inputs), labels, reduction="sum")


def _by_vmap(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    own = {name: value.detach() for name, value in model.named_parameters()}
    if not len(inputs):
        return {name: torch.zeros(0, *value.shape) for name, value in own.items()}

    def loss(weights: Gradients, features: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, weights, (features[None],)), label[None])

    return vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(own, inputs, labels)


def _by_loop(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    found: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    for features, label in zip(inputs, labels, strict=True):
        model.zero_grad()
        torch.autograd.backward(_loss(model, features[None], label[None]))
        for name, value in model.named_parameters():
            found[name].append(value.grad.clone())
    shapes = {name: value.shape for name, value in model.named_parameters()}
    return {name: torch.stack(each) if each else torch.zeros(0, *shapes[name]) for name, each in found.items()}


def _by_hooks(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    """Return gradients of records of a linear model, from what its hooks see."""
    seen: dict[str, Tensor] = {}
    forward = model.register_forward_hook(lambda _, given, made: seen.update(inputs=given[0].detach()))
    backward = model.register_full_backward_hook(lambda _, given, made: seen.update(outputs=made[0].detach()))
    torch.autograd.backward(_loss(model, inputs.requires_grad_(), labels))
    forward.remove()
    backward.remove()
    return {"weight": torch.einsum("no,ni->noi", seen["outputs"], seen["inputs"]), "bias": seen["outputs"]}


def _by_opacus_hooks(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    wrapped = GradSampleModule(model, loss_reduction="sum")
    torch.autograd.backward(_loss(wrapped, inputs, labels))
    found = {name: value.grad_sample.detach() for name, value in model.named_parameters()}
    wrapped.to_standard_module()
    return found


def _clipped(gradients: Gradients) -> Gradients:
    norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients.values()]).norm(dim=0)
    factors = (NORM / (norms + 1e-6)).clamp(max=1)
    return {name: torch.einsum("n,n...->...", factors, each) for name, each in gradients.items()}


def _noise(like: Tensor) -> Tensor:
    return NOISE * NORM * torch.randn_like(like)


Apply = Callable[[nn.Module, Gradients], None]


def _right(model: nn.Module, gradients: Gradients) -> None:
    sums = _clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + _noise(value)) / EXPECTED


def _trained(
    dataset: Any,
    gradients_of: Callable[[nn.Module, Tensor, Tensor], Gradients] = _by_vmap,
    apply: Apply = _right,
    model: nn.Module | None = None,
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
    batches: Callable[[Any], Iterator[Any]] | None = None,
) -> nn.Module:
    model = nn.Linear(5, 3) if model is None else model
    steps = optimizer(model.parameters(), lr=0.1)
    for inputs, labels in _loader(dataset) if batches is None else batches(dataset):
        steps.zero_grad()
        apply(model, gradients_of(model, inputs, labels))
        steps.step()
    return model


def _audited(train: Callable[[Any], Any], data: Any = None, calls: int = 2, **claim: Any) -> Assessment:
    options = TrainingAuditOptions(1, calls, **({"epsilon": EPSILON, "delta": DELTA} | claim))
    return audit_training(train, "train", None, _data() if data is None else data, options)


def _names(found: Assessment) -> set[Pitfall]:
    return {one.pitfall for one in found.found}


class _NoisyStep(torch.optim.SGD):
    """Optimizer that adds noise to the clipped sum in its step, as those of early libraries do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for value in group["params"]:
                value.grad = (value.grad + _noise(value)) / EXPECTED
        return super().step(closure)


def _bare_sum(model: nn.Module, gradients: Gradients) -> None:
    sums = _clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = sums[name]


def _from_own_generator(dataset: Any) -> nn.Module:
    source = torch.Generator()
    source.manual_seed(int(torch.randint(2**62, (1,))))

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = _clipped(gradients)
        for name, value in model.named_parameters():
            value.grad = (sums[name] + torch.randn(value.shape, generator=source)) / EXPECTED

    return _trained(dataset, apply=apply)


def _from_numpy(dataset: Any) -> nn.Module:
    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = _clipped(gradients)
        for name, value in model.named_parameters():
            noise = np.random.normal(0, NOISE * NORM, tuple(value.shape))  # noqa: NPY002
            value.grad = (sums[name] + torch.tensor(noise, dtype=torch.float32)) / EXPECTED

    return _trained(dataset, apply=apply)


def _with_dropout(dataset: Any) -> nn.Module:
    return _trained(dataset, model=nn.Sequential(nn.Dropout(0.3), nn.Linear(5, 3)))


def _noise_of_each_tensor(model: nn.Module, gradients: Gradients) -> None:
    """Clip each tensor by itself to a half and three quarters of the norm, with noise in proportion to that."""
    shares = {"weight": 0.5**0.5, "bias": 0.5**0.5}
    widths = {"weight": 4.0, "bias": 1 / (1 - 1 / 16) ** 0.5}
    for name, value in model.named_parameters():
        each = gradients[name].flatten(1)
        factors = (shares[name] / (each.norm(dim=1) + 1e-6)).clamp(max=1)
        total = torch.einsum("n,n...->...", factors, gradients[name])
        value.grad = (total + widths[name] * shares[name] * NOISE * torch.randn_like(value)) / EXPECTED


HONEST: dict[str, Callable[[Any], Any]] = {
    "vmap": _trained,
    "loop over records": lambda data: _trained(data, _by_loop),
    "hooks": lambda data: _trained(data, _by_hooks),
    "hooks of Opacus": lambda data: _trained(data, _by_opacus_hooks),
    "Adam": lambda data: _trained(data, optimizer=torch.optim.Adam),
    "noise in a step of its own": lambda data: _trained(data, apply=_bare_sum, optimizer=_NoisyStep),
    "a generator of its own": _from_own_generator,
    "noise of numpy": _from_numpy,
    "dropout": _with_dropout,
    "noise of each tensor": lambda data: _trained(data, apply=_noise_of_each_tensor),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_form_is_consistent(name: str) -> None:
    found = _audited(HONEST[name])
    assert (found.found, found.unseen, found.verdict) == ((), (), Verdict.CONSISTENT)
    # The clipping norm over the expected number of records, and twenty redraws of 18 numbers in five steps.
    assert found.evidence.measured is not None
    assert all(step.multiplier == pytest.approx(1.0, rel=0.1) for step in found.evidence.measured.steps)
