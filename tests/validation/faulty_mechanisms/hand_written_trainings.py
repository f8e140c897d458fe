"""DP-SGD without Opacus: honest forms of it, and ways of applying gradients that break its claim.

Each trains a linear model in five steps on Poisson samples of 98 records, with noise multiplier 1 and clipping norm 1.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

from fl_audit.app_audits.local_training.pitfalls import Pitfall

NORM = 1.0
NOISE = 1.0
EXPECTED = 20
DELTA = 1e-3
EPSILON = 2.267
"""Of five Poisson samples of rate 0.2 with noise multiplier 1, by dp-accounting."""
Gradients = dict[str, Tensor]


def records(count: int = 98) -> TensorDataset:
    source = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, 5, generator=source), torch.arange(count) % 3)


def poisson_loader(dataset: Any) -> DataLoader[Any]:
    sampler = UniformWithReplacementSampler(num_samples=len(dataset), sample_rate=0.2)
    return DataLoader(dataset, batch_sampler=sampler)


def loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(inputs), labels, reduction="sum")


def _gradient(value: Tensor) -> Tensor:
    assert value.grad is not None, "a gradient was computed or put there"
    return value.grad


def by_vmap(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    if not len(inputs):
        return {name: torch.zeros(0, *value.shape) for name, value in parameters.items()}

    def loss_of_record(weights: Gradients, features: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, weights, (features[None],)), label[None])

    return vmap(grad(loss_of_record), in_dims=(None, 0, 0), randomness="different")(parameters, inputs, labels)


def by_loop(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    gradients_by_name: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    for features, label in zip(inputs, labels, strict=True):
        model.zero_grad()
        torch.autograd.backward(loss(model, features[None], label[None]))
        for name, value in model.named_parameters():
            gradients_by_name[name].append(_gradient(value).clone())
    shapes = {name: value.shape for name, value in model.named_parameters()}
    return {
        name: torch.stack(record_gradients) if record_gradients else torch.zeros(0, *shapes[name])
        for name, record_gradients in gradients_by_name.items()
    }


def _by_hooks(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    """Return gradients of records of a linear model, from what its hooks see."""
    hook_values: dict[str, Tensor] = {}

    def keep_inputs(_: nn.Module, layer_inputs: tuple[Tensor, ...], __: Tensor) -> None:
        hook_values["inputs"] = layer_inputs[0].detach()

    def keep_outputs(_: nn.Module, __: Any, gradients: Any) -> None:
        hook_values["outputs"] = gradients[0].detach()

    forward = model.register_forward_hook(keep_inputs)
    backward = model.register_full_backward_hook(keep_outputs)
    torch.autograd.backward(loss(model, inputs.requires_grad_(), labels))
    forward.remove()
    backward.remove()
    return {
        "weight": torch.einsum("no,ni->noi", hook_values["outputs"], hook_values["inputs"]),
        "bias": hook_values["outputs"],
    }


def _by_opacus_hooks(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    wrapped = GradSampleModule(model, loss_reduction="sum")
    torch.autograd.backward(loss(wrapped, inputs, labels))
    gradients = {name: vars(value)["grad_sample"].detach() for name, value in model.named_parameters()}
    wrapped.to_standard_module()
    return gradients


def clipped(gradients: Gradients) -> Gradients:
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
    factors = (NORM / (norms + 1e-6)).clamp(max=1)
    return {name: torch.einsum("n,n...->...", factors, gradient) for name, gradient in gradients.items()}


def gaussian_noise(like: Tensor) -> Tensor:
    return NOISE * NORM * torch.randn_like(like)


Apply = Callable[[nn.Module, Gradients], None]


def right(model: nn.Module, gradients: Gradients) -> None:
    sums = clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + gaussian_noise(value)) / EXPECTED


def trained(
    dataset: Any,
    gradients_of: Callable[[nn.Module, Tensor, Tensor], Gradients] = by_vmap,
    apply: Apply = right,
    model: nn.Module | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    batches: Callable[[Any], Iterator[Any]] | None = None,
) -> nn.Module:
    model = nn.Linear(5, 3) if model is None else model
    steps = optimizer(model.parameters(), lr=0.1)
    for inputs, labels in poisson_loader(dataset) if batches is None else batches(dataset):
        steps.zero_grad()
        apply(model, gradients_of(model, inputs, labels))
        steps.step()
    return model


class _NoisyStep(torch.optim.SGD):
    """Optimizer that adds noise to the clipped sum in its step, as those of early libraries do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for value in group["params"]:
                value.grad = (_gradient(value) + gaussian_noise(value)) / EXPECTED
        return super().step(closure)


def _bare_sum(model: nn.Module, gradients: Gradients) -> None:
    sums = clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = sums[name]


def _from_own_generator(dataset: Any) -> nn.Module:
    source = torch.Generator()
    source.manual_seed(int(torch.randint(2**62, (1,))))

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        for name, value in model.named_parameters():
            value.grad = (sums[name] + torch.randn(value.shape, generator=source)) / EXPECTED

    return trained(dataset, apply=apply)


def _from_numpy(dataset: Any) -> nn.Module:
    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = clipped(gradients)
        for name, value in model.named_parameters():
            noise = np.random.normal(0, NOISE * NORM, tuple(value.shape))  # noqa: NPY002
            value.grad = (sums[name] + torch.tensor(noise, dtype=torch.float32)) / EXPECTED

    return trained(dataset, apply=apply)


def _with_dropout(dataset: Any) -> nn.Module:
    return trained(dataset, model=nn.Sequential(nn.Dropout(0.3), nn.Linear(5, 3)))


def _noise_of_each_tensor(model: nn.Module, gradients: Gradients) -> None:
    """Clip each tensor by itself to a half and three quarters of the norm, with noise in proportion to that."""
    shares = {"weight": 0.5**0.5, "bias": 0.5**0.5}
    widths = {"weight": 4.0, "bias": 1 / (1 - 1 / 16) ** 0.5}
    for name, value in model.named_parameters():
        flat_gradients = gradients[name].flatten(1)
        factors = (shares[name] / (flat_gradients.norm(dim=1) + 1e-6)).clamp(max=1)
        total = torch.einsum("n,n...->...", factors, gradients[name])
        value.grad = (total + widths[name] * shares[name] * NOISE * torch.randn_like(value)) / EXPECTED


def _beside_a_public_training(dataset: Any) -> nn.Module:
    model = nn.Linear(5, 3)
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(30, 5, generator=source)
    labels = torch.arange(30) % 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, inputs, labels))
        optimizer.step()
    return trained(dataset, model=model)


def _with_bounded_layers(dataset: Any) -> nn.Module:
    """Train a network whose gradients do not grow with the features, whatever they are."""
    layers = nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)
    return trained(dataset, model=nn.Sequential(*layers))


HONEST: dict[str, Callable[[Any], Any]] = {
    "vmap": trained,
    "loop over records": lambda data: trained(data, by_loop),
    "hooks": lambda data: trained(data, _by_hooks),
    "hooks of Opacus": lambda data: trained(data, _by_opacus_hooks),
    "Adam": lambda data: trained(data, optimizer=torch.optim.Adam),
    "noise in a step of its own": lambda data: trained(data, apply=_bare_sum, optimizer=_NoisyStep),
    "a generator of its own": _from_own_generator,
    "noise of numpy": _from_numpy,
    "dropout": _with_dropout,
    "noise of each tensor": lambda data: trained(data, apply=_noise_of_each_tensor),
    "public training first": _beside_a_public_training,
    "bounded layers": _with_bounded_layers,
}


def _plain_bias(model: nn.Module, gradients: Gradients) -> None:
    """Leave the plain gradient of the batch in one tensor."""
    right(model, gradients)
    model.get_parameter("bias").grad = gradients["bias"].mean(0) if len(gradients["bias"]) else torch.zeros(3)


def _added_to_plain(model: nn.Module, gradients: Gradients) -> None:
    """Add the noised gradient to the plain one."""
    right(model, gradients)
    for name, value in model.named_parameters():
        value.grad = _gradient(value) + gradients[name].sum(0) / EXPECTED


def _unclipped(model: nn.Module, gradients: Gradients) -> None:
    for name, value in model.named_parameters():
        value.grad = (gradients[name].sum(0) + gaussian_noise(value)) / EXPECTED


def _clipped_batch(model: nn.Module, gradients: Gradients) -> None:
    sums = {name: gradient.sum(0, keepdim=True) for name, gradient in gradients.items()}
    whole = clipped(sums)
    for name, value in model.named_parameters():
        value.grad = (whole[name] + gaussian_noise(value)) / EXPECTED


def _noise_divided_twice(model: nn.Module, gradients: Gradients) -> None:
    sums = clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + gaussian_noise(value) / EXPECTED) / EXPECTED


def _bare_bias(model: nn.Module, gradients: Gradients) -> None:
    right(model, gradients)
    model.get_parameter("bias").grad = clipped(gradients)["bias"] / EXPECTED


def no_noise(model: nn.Module, gradients: Gradients) -> None:
    sums = clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = sums[name] / EXPECTED


def _same_noise(model: nn.Module, gradients: Gradients) -> None:
    torch.manual_seed(7)
    right(model, gradients)


def _clipped_by_tensor(model: nn.Module, gradients: Gradients) -> None:
    """Clip every tensor to the whole norm: both together may be as long as the root of two times that."""
    for name, value in model.named_parameters():
        total = clipped({name: gradients[name]})[name]
        value.grad = (total + gaussian_noise(value)) / EXPECTED


def _noise_by_dimension(model: nn.Module, gradients: Gradients) -> None:
    """Divide the noise by the root of the number of coordinates."""
    sums = clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + gaussian_noise(value) / value.numel() ** 0.5) / EXPECTED


def _divided_by_the_sample(model: nn.Module, gradients: Gradients) -> None:
    sums = clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + gaussian_noise(value)) / max(1, len(gradients["bias"]))


def _shared_noise(model: nn.Module, gradients: Gradients) -> None:
    """Use one draw for all coordinates of a tensor."""
    sums = clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + NOISE * NORM * torch.randn(1)) / EXPECTED


def added_to_the_last(model: nn.Module, gradients: Gradients) -> None:
    """Add the noised gradient to that of the last record, which a loop left."""
    last_gradients = {name: 0.0 if value.grad is None else value.grad for name, value in model.named_parameters()}
    right(model, gradients)
    for name, value in model.named_parameters():
        value.grad = _gradient(value) + last_gradients[name] / EXPECTED


BROKEN: dict[str, tuple[Apply, set[Pitfall], float | None]] = {
    "plain gradient of a tensor": (_plain_bias, {Pitfall.NO_NOISE}, math.inf),
    "added to the plain gradient": (_added_to_plain, {Pitfall.OVER_NORM}, math.inf),
    "added to the gradient of the last record": (added_to_the_last, {Pitfall.OVER_NORM}, math.inf),
    "no clipping": (_unclipped, {Pitfall.OVER_NORM}, math.inf),
    "clipping of the batch": (_clipped_batch, {Pitfall.COUPLED}, 2.9),
    "noise divided twice": (_noise_divided_twice, {Pitfall.CLAIMED_EPSILON}, 400.0),
    "noise in one tensor": (_bare_bias, {Pitfall.NO_NOISE}, math.inf),
    "no noise": (no_noise, {Pitfall.NO_NOISE}, math.inf),
    "the same noise in every step": (_same_noise, {Pitfall.NO_NOISE}, math.inf),
    "clipping of each tensor to the whole norm": (_clipped_by_tensor, {Pitfall.CLAIMED_EPSILON}, 3.1),
    "noise over the root of the coordinates": (_noise_by_dimension, {Pitfall.CLAIMED_EPSILON}, 6.0),
    "one draw for all coordinates": (_shared_noise, {Pitfall.REPEATED_NOISE}, None),
    "division by the size of the sample": (_divided_by_the_sample, {Pitfall.NOISE_FOLLOWS}, 2.0),
}
"""Ways of applying gradients that break the claim, what is found, and the least epsilon of all steps.

The epsilon is None where none is stated, since the noise is not independent at the coordinates.
"""
