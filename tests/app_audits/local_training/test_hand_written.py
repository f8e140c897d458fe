"""DP-SGD without Opacus: honest forms of it are not accused, and what its steps do not keep is found."""

import math
from collections.abc import Callable, Iterable, Iterator
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

from fl_audit.app_audits.local_training.assessment import Assessment, headline
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


def _beside_a_public_training(dataset: Any) -> nn.Module:
    model, source = nn.Linear(5, 3), torch.Generator().manual_seed(1)
    inputs, labels = torch.randn(30, 5, generator=source), torch.arange(30) % 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(_loss(model, inputs, labels))
        optimizer.step()
    return _trained(dataset, model=model)


def _with_bounded_layers(dataset: Any) -> nn.Module:
    """Train a network whose gradients do not grow with the features, whatever they are."""
    layers = nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)
    return _trained(dataset, model=nn.Sequential(*layers))


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
    "public training first": _beside_a_public_training,
    "bounded layers": _with_bounded_layers,
}
QUICK = ("vmap",)


def _long_but(quick: tuple[str, ...], names: Iterable[str]) -> list[Any]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.mark.parametrize("name", _long_but(QUICK, HONEST))
def test_an_honest_form_is_consistent(name: str) -> None:
    found = _audited(HONEST[name])
    assert (found.found, found.unseen, found.verdict) == ((), (), Verdict.CONSISTENT)
    # Twenty redraws of 18 numbers in five steps know the noise to 1.7 %; a record moves a step by the clipping norm.
    assert found.evidence.measured is not None
    for step in found.evidence.measured.steps:
        assert step.multiplier == pytest.approx(1.0, rel=0.1)
        assert step.multiplier < step.largest_multiplier < 1.3


def _plain_bias(model: nn.Module, gradients: Gradients) -> None:
    """Leave the plain gradient of the batch in one tensor."""
    _right(model, gradients)
    model.get_parameter("bias").grad = gradients["bias"].mean(0) if len(gradients["bias"]) else torch.zeros(3)


def _added_to_plain(model: nn.Module, gradients: Gradients) -> None:
    """Add the noised gradient to the plain one."""
    _right(model, gradients)
    for name, value in model.named_parameters():
        value.grad += gradients[name].sum(0) / EXPECTED


def _unclipped(model: nn.Module, gradients: Gradients) -> None:
    for name, value in model.named_parameters():
        value.grad = (gradients[name].sum(0) + _noise(value)) / EXPECTED


def _clipped_batch(model: nn.Module, gradients: Gradients) -> None:
    sums = {name: each.sum(0, keepdim=True) for name, each in gradients.items()}
    whole = _clipped(sums)
    for name, value in model.named_parameters():
        value.grad = (whole[name] + _noise(value)) / EXPECTED


def _noise_divided_twice(model: nn.Module, gradients: Gradients) -> None:
    sums = _clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + _noise(value) / EXPECTED) / EXPECTED


def _bare_bias(model: nn.Module, gradients: Gradients) -> None:
    _right(model, gradients)
    model.get_parameter("bias").grad = _clipped(gradients)["bias"] / EXPECTED


def _no_noise(model: nn.Module, gradients: Gradients) -> None:
    sums = _clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = sums[name] / EXPECTED


def _same_noise(model: nn.Module, gradients: Gradients) -> None:
    torch.manual_seed(7)
    _right(model, gradients)


def _clipped_by_tensor(model: nn.Module, gradients: Gradients) -> None:
    """Clip every tensor to the whole norm: both together may be as long as the root of two times that."""
    for name, value in model.named_parameters():
        total = _clipped({name: gradients[name]})[name]
        value.grad = (total + _noise(value)) / EXPECTED


def _noise_by_dimension(model: nn.Module, gradients: Gradients) -> None:
    """Divide the noise by the root of the number of coordinates."""
    sums = _clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + _noise(value) / value.numel() ** 0.5) / EXPECTED


def _divided_by_the_sample(model: nn.Module, gradients: Gradients) -> None:
    sums = _clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + _noise(value)) / max(1, len(gradients["bias"]))


def _shared_noise(model: nn.Module, gradients: Gradients) -> None:
    """Use one draw for all coordinates of a tensor."""
    sums = _clipped(gradients)
    for name, value in model.named_parameters():
        value.grad = (sums[name] + NOISE * NORM * torch.randn(1)) / EXPECTED


def _added_to_the_last(model: nn.Module, gradients: Gradients) -> None:
    """Add the noised gradient to that of the last record, which a loop left."""
    left = {name: 0.0 if value.grad is None else value.grad for name, value in model.named_parameters()}
    _right(model, gradients)
    for name, value in model.named_parameters():
        value.grad += left[name] / EXPECTED


BROKEN: dict[str, tuple[Apply, set[Pitfall], float]] = {
    "plain gradient of a tensor": (_plain_bias, {Pitfall.NO_NOISE}, math.inf),
    "added to the plain gradient": (_added_to_plain, {Pitfall.OVER_NORM}, math.inf),
    "added to the gradient of the last record": (_added_to_the_last, {Pitfall.OVER_NORM}, math.inf),
    "no clipping": (_unclipped, {Pitfall.OVER_NORM}, math.inf),
    "clipping of the batch": (_clipped_batch, {Pitfall.COUPLED}, 2.9),
    "noise divided twice": (_noise_divided_twice, {Pitfall.CLAIMED_EPSILON}, 400.0),
    "noise in one tensor": (_bare_bias, {Pitfall.NO_NOISE}, math.inf),
    "no noise": (_no_noise, {Pitfall.NO_NOISE}, math.inf),
    "the same noise in every step": (_same_noise, {Pitfall.NO_NOISE}, math.inf),
    "clipping of each tensor to the whole norm": (_clipped_by_tensor, {Pitfall.CLAIMED_EPSILON}, 3.1),
    "noise over the root of the coordinates": (_noise_by_dimension, {Pitfall.CLAIMED_EPSILON}, 6.0),
    "one draw for all coordinates": (_shared_noise, {Pitfall.REPEATED_NOISE}, 0.0),
    "division by the size of the sample": (_divided_by_the_sample, {Pitfall.NOISE_FOLLOWS}, 2.0),
}
"""Ways of applying gradients that break the claim, what is found, and the least epsilon of all steps."""


@pytest.mark.parametrize("name", _long_but(("plain gradient of a tensor", "added to the plain gradient"), BROKEN))
def test_steps_that_break_the_claim_are_found(name: str) -> None:
    apply, pitfalls, least = BROKEN[name]
    gradients_of = _by_loop if apply is _added_to_the_last else _by_vmap
    found = _audited(lambda data: _trained(data, gradients_of, apply))
    assert found.verdict is Verdict.VIOLATED
    assert _names(found) >= pitfalls
    assert found.composed is not None
    assert found.composed.epsilon >= least


def _noise_that_ends(dataset: Any) -> nn.Module:
    steps = [0]

    def apply(model: nn.Module, gradients: Gradients) -> None:
        steps[0] += 1
        (_right if steps[0] <= 3 else _no_noise)(model, gradients)

    return _trained(dataset, apply=apply)


def _seeded(dataset: Any) -> nn.Module:
    torch.manual_seed(0)
    return _trained(dataset)


def _from_a_known_generator(dataset: Any) -> nn.Module:
    source = torch.Generator().manual_seed(0)

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = _clipped(gradients)
        for name, value in model.named_parameters():
            value.grad = (sums[name] + torch.randn(value.shape, generator=source)) / EXPECTED

    return _trained(dataset, apply=apply)


def _beside_a_plain_model(dataset: Any) -> Any:
    plain = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)

    def apply(model: nn.Module, gradients: Gradients) -> None:
        _right(model, gradients)
        optimizer.zero_grad()
        torch.autograd.backward(_loss(plain, *dataset.tensors))
        optimizer.step()

    return {"private": _trained(dataset, apply=apply).state_dict(), "plain": plain.state_dict()}


def _by_hand(dataset: Any, noise: Callable[[Tensor], Tensor]) -> nn.Module:
    """Train without an optimizer of torch."""
    model = nn.Linear(5, 3)
    for inputs, labels in _loader(dataset):
        sums = _clipped(_by_vmap(model, inputs, labels))
        with torch.no_grad():
            for name, value in model.named_parameters():
                value -= 0.1 * (sums[name] + noise(value)) / EXPECTED
    return model


def _with_mean(dataset: Any, noise: float) -> Any:
    weights = _trained(dataset).state_dict()
    return {"weights": weights, "mean": dataset.tensors[0].mean(0) + noise * torch.randn(5)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("train", "pitfall"),
    [
        (_noise_that_ends, Pitfall.NO_NOISE), (_seeded, Pitfall.SEEDED_NOISE),
        (_from_a_known_generator, Pitfall.NO_NOISE), (_beside_a_plain_model, Pitfall.NO_NOISE),
        (lambda data: _by_hand(data, torch.zeros_like), Pitfall.BARE_OUTPUT),
        (lambda data: _with_mean(data, 0.0), Pitfall.BARE_OUTPUT),
    ],
    ids=["noise that ends", "seeded", "known generator", "plain model", "no optimizer, no noise", "bare mean"],
)  # fmt: skip
def test_what_leaves_without_noise_is_found(train: Callable[[Any], Any], pitfall: Pitfall) -> None:
    found = _audited(train)
    assert found.verdict is Verdict.VIOLATED
    assert pitfall in _names(found)


def _drawn_by_hand(dataset: Any) -> Iterator[Any]:
    inputs, labels = dataset.tensors
    for _ in range(5):
        is_drawn = torch.rand(len(inputs)) < 0.2
        yield inputs[is_drawn], labels[is_drawn]


def _from_secret_numpy(dataset: Any, seed: int | None) -> nn.Module:
    source = np.random.default_rng(seed)

    def apply(model: nn.Module, gradients: Gradients) -> None:
        sums = _clipped(gradients)
        for name, value in model.named_parameters():
            noise = torch.from_numpy(source.normal(0, NOISE * NORM, tuple(value.shape))).float()
            value.grad = (sums[name] + noise) / EXPECTED

    return _trained(dataset, apply=apply)


@pytest.mark.long
@pytest.mark.parametrize(
    ("train", "reason"),
    [
        (lambda data: _trained(data, batches=_drawn_by_hand), "drew their records"),
        (lambda data: _by_hand(data, _noise), "no optimizer of torch took one"),
        (lambda data: _with_mean(data, 1.0), "the noise of mean"),
        (lambda data: _from_secret_numpy(data, None), "takes other steps when it is called again"),
        (lambda data: _from_secret_numpy(data, 0), "arrays of numpy"),
    ],
    ids=["samples drawn by hand", "no optimizer", "noised mean", "secret numpy", "numpy of its own"],
)
def test_what_cannot_be_measured_is_named_and_not_accused(train: Callable[[Any], Any], reason: str) -> None:
    found = _audited(train)
    assert (found.found, found.verdict) == ((), Verdict.INCONCLUSIVE)
    assert any(reason in said for said in found.unseen)


@pytest.mark.long
def test_samples_that_are_drawn_by_hand_hide_no_missing_noise() -> None:
    found = _audited(lambda data: _trained(data, apply=_no_noise, batches=_drawn_by_hand))
    assert (_names(found), found.verdict) == ({Pitfall.NO_NOISE}, Verdict.VIOLATED)


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "verdict"), [(3.139, Verdict.CONSISTENT), (2.267, Verdict.VIOLATED)])
def test_batches_of_a_shuffled_epoch_are_not_amplified(epsilon: float, verdict: Verdict) -> None:
    def batches(dataset: Any) -> DataLoader[Any]:
        return DataLoader(dataset, batch_size=20, shuffle=True, drop_last=True)

    # One Gaussian release of multiplier 1: epsilon is 3.139 at 0.001.
    assert _audited(lambda data: _trained(data, batches=batches), epsilon=epsilon).verdict is verdict


@pytest.mark.long
@pytest.mark.parametrize(("counted", "verdict"), [(1.0, Verdict.CONSISTENT), (2.0, Verdict.VIOLATED)])
def test_an_accountant_that_is_used_by_hand_makes_the_claim(counted: float, verdict: Verdict) -> None:
    def train(dataset: Any) -> nn.Module:
        model, accountant = _trained(dataset), RDPAccountant()
        for _ in range(5):
            accountant.step(noise_multiplier=counted, sample_rate=0.2)
        accountant.get_epsilon(delta=DELTA)
        return model

    found = _audited(train, epsilon=None, delta=None)
    assert found.verdict is verdict
    assert (Pitfall.WRONG_NOISE_COUNTED in _names(found)) is (verdict is Verdict.VIOLATED)


def test_without_a_claim_steps_are_not_audited_and_the_remedy_is_named() -> None:
    found = _audited(_trained, epsilon=None, delta=None)
    assert (found.found, found.verdict) == ((), Verdict.NOT_AUDITED)
    assert "5 of SGD" in headline(found)
    assert "--claim-epsilon" in headline(found)
