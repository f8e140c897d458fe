"""Local training against a plain torch loop, and the distributions of its batches, its trials and its clipping."""

import copy
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fl_audit.learning import dense_chain_training
from fl_audit.learning.dense_chain_training import dense_chain
from fl_audit.learning.local_training import LocalSchedule, clip_updates, local_batches, local_updates, member_updates
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.randomness import Purpose, generator
from tests.builders.refusals import assert_refused
from tests.few_examples import examples
from tests.learning.gradient_truth import assert_close
from tests.learning.test_learning_stacked_model import NETS
from tests.learning.test_learning_ways import FAST, GENERIC

Batches = Sequence[np.ndarray]
SIGMOIDS = nn.Sequential(nn.Linear(7, 6), nn.Sigmoid(), nn.Linear(6, 5, bias=False), nn.Tanh(), nn.Linear(5, 3))


def _batches(records: int, schedule: LocalSchedule, round: int = 0) -> tuple[np.ndarray, ...]:
    return local_batches(records, schedule, generator(3, Purpose.LOCAL_ORDER, round=round))


def _made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    if name == "sigmoids":
        return copy.deepcopy(SIGMOIDS), (7,)
    if name in NETS:
        return NETS[name]()
    make, shape = (FAST | GENERIC)[name]
    return make(), shape


def _setting(name: str, trials: int, records: int) -> tuple[StackedModel, Tensor, Tensor, Tensor]:
    torch.manual_seed(11)
    module, shape = _made(name)
    model = StackedModel(module, shape)
    models = model.layout.flatten(dict(module.named_parameters())) + 0.2 * torch.randn(trials, model.layout.size)
    features = torch.randn(records, *shape)
    classes = model.template(torch.randn(1, *shape)).shape[1]
    return model, models, features, torch.arange(records) % classes


def _torch_loop(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    rate: float,
    batches: Batches,
    proximal: float = 0.0,
) -> Tensor:
    """Return start minus end of torch.optim.SGD, trial by trial, in float64; the loss has FedProx's term if asked."""
    module = copy.deepcopy(model.template).double().requires_grad_(True)
    rows = []
    for start in models.double():
        nn.utils.vector_to_parameters(start.clone(), module.parameters())
        optimizer = torch.optim.SGD(module.parameters(), lr=rate)
        for batch in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(module(features[batch].double()), labels[batch])
            moved = nn.utils.parameters_to_vector(module.parameters()) - start
            (loss + proximal / 2 * moved.square().sum()).backward()
            optimizer.step()
        rows.append(start - nn.utils.parameters_to_vector(module.parameters()).detach())
    return torch.stack(rows)


@pytest.mark.few_cases(20)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("name", [*NETS, "sigmoids", *FAST, *GENERIC])
def test_updates_are_those_of_a_torch_loop(name: str, trials: int) -> None:
    model, models, features, labels = _setting(name, trials, 11)
    schedule = LocalSchedule(0.1, batch=4, epochs=2)
    batches = _batches(11, schedule)
    start = models.clone()
    updates = local_updates(model, models, features, labels, schedule, batches)
    assert_close(updates, _torch_loop(model, models, features, labels, 0.1, batches), smallest_scale=0.0)
    assert torch.equal(models, start)


@pytest.mark.few_cases(6)
@pytest.mark.parametrize("stretch", [1, 4, 7, 11, 100])
@pytest.mark.parametrize("name", ["logistic", "dense-128", "no-bias", "sigmoids"])
def test_stretches_of_any_length_give_the_same(name: str, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, models, features, labels = _setting(name, 3, 11)
    assert model.chain is not None
    monkeypatch.setattr(dense_chain_training, "_STRETCH", stretch)
    for schedule in (LocalSchedule(0.1, batch=4, epochs=3), LocalSchedule(0.1, batch=2, steps=3)):
        batches = _batches(11, schedule)
        updates = local_updates(model, models, features, labels, schedule, batches)
        assert_close(updates, _torch_loop(model, models, features, labels, 0.1, batches), smallest_scale=0.0)


@pytest.mark.few_cases(8)
@pytest.mark.parametrize("stretch", [4, 7, 100])
@pytest.mark.parametrize("name", ["logistic", "no-bias", "sigmoids", "residual"])
def test_a_proximal_term_is_that_of_a_loss_with_it(name: str, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, models, features, labels = _setting(name, 3, 11)
    monkeypatch.setattr(dense_chain_training, "_STRETCH", stretch)
    schedule = LocalSchedule(0.1, batch=4, epochs=3, proximal=2.0)
    batches = _batches(11, schedule)
    updates = local_updates(model, models, features, labels, schedule, batches)
    assert_close(updates, _torch_loop(model, models, features, labels, 0.1, batches, proximal=2.0), smallest_scale=0.0)
    tiled_batches = [np.tile(batch, (3, 1)) for batch in batches]
    by_trial = member_updates(model, models, features, labels, schedule, tiled_batches)
    torch.testing.assert_close(by_trial, updates, rtol=1e-3, atol=1e-5)
    named = r"proximal weight is -1\.0: accepted are numbers from 0"
    assert_refused(named, LocalSchedule, 0.1, batch=4, epochs=3, proximal=-1.0)


@pytest.mark.parametrize("name", ["sigmoids", "residual", "embedding"])
@given(trials=st.integers(1, 4), records=st.integers(1, 9), rate=st.floats(1e-3, 1.0))
@settings(max_examples=examples(15))
def test_one_step_on_all_records_is_the_mean_gradient(name: str, trials: int, records: int, rate: float) -> None:
    model, models, features, labels = _setting(name, trials, records)
    schedule = LocalSchedule(rate, batch=records, steps=1)
    updates = local_updates(model, models, features, labels, schedule, _batches(records, schedule))
    expected = rate * model.clipped_sum(models, features, labels, None) / records
    # The difference of two weights is rounded as these weights are.
    torch.testing.assert_close(updates, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model.mean_gradients(models, features, labels), expected / rate, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["dense-128", "mnist-cnn", "a layer used twice"])
def test_trials_do_not_see_one_another(name: str) -> None:
    model, models, features, labels = _setting(name, 4, 9)
    schedule = LocalSchedule(0.1, batch=4, epochs=1)
    batches = _batches(9, schedule)
    together = local_updates(model, models, features, labels, schedule, batches)
    assert torch.equal(together, local_updates(model, models, features, labels, schedule, batches))
    other_models = torch.cat([models[:1], torch.randn_like(models[1:])])
    beside_others = local_updates(model, other_models, features, labels, schedule, batches)
    torch.testing.assert_close(together[0], beside_others[0], rtol=1e-4, atol=1e-6)
    alone = [local_updates(model, models[w : w + 1], features, labels, schedule, batches) for w in range(4)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["dense-128", "residual", "embedding"])
def test_no_records_move_nothing(name: str) -> None:
    model, models, features, labels = _setting(name, 2, 0)
    schedule = LocalSchedule(0.1, batch=4, steps=3)
    assert _batches(0, schedule) == ()
    updates = local_updates(model, models, features, labels, schedule, ())
    assert torch.equal(updates, torch.zeros_like(models))


def test_trials_beyond_the_cache_wait_for_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model, models, features, labels = _setting("dense-128", 5, 9)
    schedule = LocalSchedule(0.1, batch=4, epochs=2)
    monkeypatch.setattr(model, "trials_per_pass", lambda examples: 2)
    updates = local_updates(model, models, features, labels, schedule, _batches(9, schedule))
    assert_close(updates, _torch_loop(model, models, features, labels, 0.1, _batches(9, schedule)), smallest_scale=0.0)


@given(records=st.integers(1, 40), batch=st.integers(1, 50), epochs=st.integers(1, 4))
def test_an_epoch_takes_every_record_once(records: int, batch: int, epochs: int) -> None:
    batches = _batches(records, LocalSchedule(0.1, batch, epochs=epochs))
    batch_count = math.ceil(records / batch)
    assert len(batches) == epochs * batch_count
    for epoch in range(epochs):
        epoch_records = np.concatenate(batches[epoch * batch_count : (epoch + 1) * batch_count])
        assert epoch_records.dtype == np.int64
        assert sorted(epoch_records) == list(range(records))
    assert all(len(batch_count) <= batch for batch_count in batches)


@given(records=st.integers(1, 40), batch=st.integers(1, 50), steps=st.integers(1, 30))
def test_steps_are_the_first_of_enough_epochs(records: int, batch: int, steps: int) -> None:
    batches = _batches(records, LocalSchedule(0.1, batch, steps=steps))
    epochs = _batches(records, LocalSchedule(0.1, batch, epochs=steps))
    assert len(batches) == steps
    assert all(np.array_equal(step, epoch_batch) for step, epoch_batch in zip(batches, epochs, strict=False))


def test_rounds_and_epochs_have_orders_of_their_own() -> None:
    schedule = LocalSchedule(0.1, batch=30, epochs=2)
    first, second = _batches(30, schedule)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, _batches(30, schedule, round=1)[0])


@given(exponents=st.lists(st.floats(-6, 6), min_size=1, max_size=5), norm=st.floats(1e-3, 1e3), is_each=st.booleans())
def test_clipping_keeps_directions_and_bounds_norms(exponents: list[float], norm: float, is_each: bool) -> None:
    trials = len(exponents)
    updates = (
        torch.randn(trials, 50, generator=torch.Generator().manual_seed(1)) * 10 ** torch.tensor(exponents)[:, None]
    )
    before = updates.double()
    limits = norm * torch.arange(1, trials + 1) if is_each else torch.full((trials,), norm)
    clipped, norms = clip_updates(updates, limits if is_each else norm)
    torch.testing.assert_close(norms.double(), before.norm(dim=1), rtol=1e-5, atol=0)
    factors = (limits.double() / before.norm(dim=1)).clamp(max=1)
    torch.testing.assert_close(clipped.double(), before * factors[:, None], rtol=1e-5, atol=0)
    assert clipped.data_ptr() == updates.data_ptr()


def test_updates_within_the_norm_keep_their_bits() -> None:
    updates = torch.tensor([[0.3, 0.4], [0.0, 0.0]])
    clipped, norms = clip_updates(updates.clone(), 0.5001)
    assert torch.equal(clipped, updates)
    assert norms.tolist() == pytest.approx([0.5, 0.0])


CHAINS = {"logistic", "adult-mlp", "dense-128", "dense-3x100"}


@pytest.mark.parametrize("name", [*sorted(CHAINS), "mnist-cnn"])
def test_built_in_models_of_dense_layers_are_chains(name: str) -> None:
    module = build_model(ModelSpec(name, (1, 12, 12), 4))
    layers = dense_chain(module, (1, 12, 12), ParameterLayout.of(module))
    assert (layers is not None) == (name in CHAINS)


class Doubled(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


def _hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3))
    module[0].register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    return module


def _patched() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3))
    module[0].forward = lambda inputs: inputs[:, :3]
    return module


def _twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


NO_CHAINS = {
    "a layer of one's own": lambda: nn.Sequential(Doubled(4, 3)),
    "a hook": _hooked,
    "another forward": _patched,
    "a layer twice": _twice,
    "two activations": lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Tanh()),
    "an activation first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 3)),
    "an unknown activation": lambda: nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 3)),
    "a layer of one axis": lambda: nn.Sequential(nn.Linear(2, 4)),
    "no layer": lambda: nn.Sequential(nn.Identity()),
    "weights of a formula": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))),
}


@pytest.mark.parametrize("name", NO_CHAINS)
def test_what_is_not_certainly_a_chain_is_none(name: str) -> None:
    module = NO_CHAINS[name]()
    assert dense_chain(module, (4,), ParameterLayout.of(module)) is None


def test_flattening_comes_before_layers_on_images() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Flatten(), nn.Linear(12, 3))
    assert dense_chain(module, (4, 4), ParameterLayout.of(module)) is None
