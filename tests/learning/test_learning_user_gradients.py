"""Summed gradients of users against a direct computation, one user after the other, in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from fl_audit.learning import microbatching, pass_budgets
from fl_audit.learning.gradient_norms_and_products import gradient_norms_and_products
from fl_audit.learning.microbatching import GroupedRecords
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.models import Model

TRIALS = 3
SIZES = (1, 7, 1, 3, 2, 12, 1, 4)
USERS = torch.from_numpy(np.repeat(np.arange(len(SIZES)) * 5, SIZES))
RECORDS = len(USERS)


NETWORKS = {
    "dense": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,)),
    "wide": (lambda: nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3, bias=False)), (40,)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(16, 3)
        ),
        (1, 6, 6),
    ),
    "channels by themselves": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(), nn.Linear(16, 3)
        ),
        (2, 6, 6),
    ),
    # A module that has no stacked form: a learned temperature.
    "tempered": (
        lambda: Model(lambda m, x: m.inner(x) * m.heat, inner=nn.Linear(6, 3), heat=nn.Parameter(torch.ones(()))),
        (6,),
    ),
}


def network_case(name: str) -> tuple[StackedModel, nn.Module, Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    build, shape = NETWORKS[name]
    template = build()
    model = StackedModel(template, shape)
    models = torch.randn(TRIALS, model.layout.size) * 0.5
    features = torch.randn(RECORDS, *shape)
    labels = torch.randint(0, 3, (RECORDS,))
    return model, template, models, features, labels


def sums_of_users(
    template: nn.Module, model: StackedModel, weights: Tensor, user_records: tuple[Tensor, ...]
) -> Tensor:
    """Return each user's summed gradient in float64, (users, parameters)."""
    features, labels, users = user_records
    wide = template.double()

    def loss(values: dict[str, Tensor], indices: Tensor) -> Tensor:
        logits = functional_call(wide, values, (features[indices].double(),))
        return nn.functional.cross_entropy(logits, labels[indices], reduction="sum")

    values = {name: entry.double() for name, entry in model.layout.of_one(weights).items()}
    sums = [grad(loss)(values, (users == user).nonzero().flatten()) for user in users.unique()]
    return torch.stack([torch.cat([entry[name].flatten() for name in model.layout.names]) for entry in sums])


def clipped(user_sums: Tensor, norm: float | None) -> Tensor:
    return user_sums if norm is None else user_sums * (norm / user_sums.norm(dim=1, keepdim=True)).clamp(max=1)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", [None, 0.7, 1e-3])
def test_clipped_sums_of_users_equal_a_direct_computation(name: str, norm: float | None) -> None:
    model, template, models, features, labels = network_case(name)
    norms = None if norm is None else torch.full((TRIALS,), norm, dtype=torch.float64)
    sums, bits = model.clipped_sums(models, GroupedRecords.of(features, labels, USERS), norms)
    for trial in range(TRIALS):
        user_sums = sums_of_users(template, model, models[trial], (features, labels, USERS))
        truth = clipped(user_sums, norm).sum(0)
        assert (sums[trial].double() - truth).norm() <= 1e-6 * max(1.0, float(user_sums.norm(dim=1).sum()))
        if norm is not None:
            assert bits is not None
            assert bits[trial] == int((user_sums.norm(dim=1) <= norm).sum()) - len(user_sums) / 2


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_samples_of_users_sum_those_that_are_in(name: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, template, models, features, labels = network_case(name)
    sampled_users = torch.from_numpy(np.random.default_rng(1).random((TRIALS, len(SIZES))) < share)
    sampled_users[2] = False
    participation = sampled_users.repeat_interleave(torch.tensor(SIZES), dim=1)
    norms = torch.full((TRIALS,), 0.7, dtype=torch.float64)
    whole = model.clipped_sums(models, GroupedRecords.of(features, labels, USERS), norms, taking_part=participation)
    assert whole.centred_bits is not None
    for trial in range(TRIALS):
        user_sums = sums_of_users(template, model, models[trial], (features, labels, USERS))
        truth = clipped(user_sums, 0.7)[sampled_users[trial]]
        assert (whole.total[trial].double() - truth.sum(0)).norm() < 1e-5
        within = (user_sums.norm(dim=1) <= 0.7)[sampled_users[trial]].double() - 0.5
        assert whole.centred_bits[trial] == within.sum()
    # Users are never parted, however little a pass holds, and the order of records does not matter.
    monkeypatch.setattr(pass_budgets, "PASS_BUDGET", 4 * model.activations)
    monkeypatch.setattr(pass_budgets, "CACHE_BUDGET", 4 * model.activations)
    parted = model.clipped_sums(models, GroupedRecords.of(features, labels, USERS), norms, taking_part=participation)
    torch.testing.assert_close(parted.total, whole.total, rtol=1e-4, atol=1e-5)
    assert torch.equal(parted.centred_bits, whole.centred_bits)
    order = torch.randperm(RECORDS, generator=torch.Generator().manual_seed(2))
    shuffled = GroupedRecords.of(features[order], labels[order], USERS[order])
    mixed = model.clipped_sums(models, shuffled, 0.7, taking_part=participation[:, order])
    torch.testing.assert_close(mixed.total, whole.total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gathered_below", [0.0, 1.0], ids=["weighted", "gathered"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_user_with_some_records_in_a_trial_contributes_the_sum_of_these(
    name: str, gathered_below: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microbatching, "GATHERED_BELOW", gathered_below)
    model, template, models, features, labels = network_case(name)
    participation = torch.from_numpy(np.random.default_rng(2).random((TRIALS, RECORDS)) < 0.6)
    norms = torch.full((TRIALS,), 0.7, dtype=torch.float64)
    sums = model.clipped_sums(models, GroupedRecords.of(features, labels, USERS), norms, taking_part=participation)
    assert sums.centred_bits is not None
    for trial in range(TRIALS):
        sample = participation[trial]
        user_sums = sums_of_users(template, model, models[trial], (features[sample], labels[sample], USERS[sample]))
        assert (sums.total[trial].double() - clipped(user_sums, 0.7).sum(0)).norm() < 1e-5
        assert sums.centred_bits[trial] == ((user_sums.norm(dim=1) <= 0.7).double() - 0.5).sum()


def test_norms_of_each_trial_clip_it() -> None:
    model, _, models, features, labels = network_case("dense")
    norms = torch.tensor([0.2, 0.5, 2.0], dtype=torch.float64)
    sums = model.clipped_sums(models, GroupedRecords.of(features, labels, USERS), norms)
    assert sums.centred_bits is not None
    for trial in range(TRIALS):
        alone = model.clipped_sums(models[[trial]], GroupedRecords.of(features, labels, USERS), norms[[trial]])
        assert alone.centred_bits is not None
        torch.testing.assert_close(sums.total[[trial]], alone.total, rtol=1e-5, atol=1e-6)
        assert sums.centred_bits[trial] == alone.centred_bits[0]


@pytest.mark.parametrize("norm", [torch.tensor([0.2, 0.5, 2.0], dtype=torch.float64), 0.5], ids=["own", "common"])
@pytest.mark.parametrize("trials", [1, 2])
def test_the_first_trials_of_a_batch_are_worked_out_again_to_the_bit(norm: Tensor | float, trials: int) -> None:
    model, _, models, features, labels = network_case("dense")
    records = GroupedRecords.of(features, labels, USERS)
    whole = model.clipped_sums(models, records, norm)
    first = norm[:trials] if isinstance(norm, Tensor) else norm
    again = model.clipped_sums(models[:trials], records, first, batch_trials=TRIALS)
    assert torch.equal(again.total, whole.total[:trials])
    if whole.centred_bits is not None and again.centred_bits is not None:
        assert torch.equal(again.centred_bits, whole.centred_bits[:trials])


def test_gradients_that_cancel_keep_the_norm_of_their_sum() -> None:
    # 60 records whose gradients are far longer than their sum: norms must not be differences of large squares.
    model = StackedModel(nn.Linear(50, 2, bias=False), (50,))
    base = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)) * 1000
    features = torch.cat([base.repeat(60, 1), base[:, :] * 1e-4])
    labels = torch.tensor([0, 1] * 30 + [0])
    records = GroupedRecords.of(features, labels, torch.zeros(61, dtype=torch.int64))
    sums = model.clipped_sums(torch.zeros(1, 100), records, 0.05)
    assert float(sums.total.norm()) <= 0.05 * (1 + 1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_norms_and_products_are_those_of_the_sums(name: str) -> None:
    model, template, models, features, labels = network_case(name)
    vectors = torch.randn(TRIALS, model.layout.size)
    user_gradients = gradient_norms_and_products(model, models, features, labels, vectors, USERS)
    for trial in range(TRIALS):
        user_sums = sums_of_users(template, model, models[trial], (features, labels, USERS))
        torch.testing.assert_close(user_gradients.norms[trial].double(), user_sums.norm(dim=1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            user_gradients.products[trial].double(), user_sums @ vectors[trial].double(), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("name", NETWORKS)
def test_users_of_one_record_are_records(name: str) -> None:
    model, _, models, features, labels = network_case(name)
    alone = model.clipped_sums(models, GroupedRecords.of(features, labels, torch.arange(RECORDS)), 0.3)
    assert torch.equal(alone.total, model.clipped_sum(models, features, labels, 0.3))
    # Beside one user with two records, all others go through the sums of groups.
    users = torch.arange(RECORDS + 1).clamp(max=RECORDS - 1)
    twice = GroupedRecords.of(features[users], labels[users], users)
    last = model.clipped_sum(models, features[-1:], labels[-1:], 0.15)
    grouped = model.clipped_sums(models, twice, 0.3).total
    expected = model.clipped_sum(models, features[:-1], labels[:-1], 0.3) + 2 * last
    torch.testing.assert_close(grouped, expected, rtol=1e-4, atol=1e-5)


def test_no_users_have_no_sum() -> None:
    model, _, models, features, labels = network_case("dense")
    for users in (torch.arange(0), None):
        records = GroupedRecords.of(features[:0], labels[:0], users)
        assert not model.clipped_sums(models, records, 0.3).total.any()
