"""Models by name, initial weights of trials, and every refusal."""

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fl_audit.learning.model_checks import check_module
from fl_audit.learning.model_initialisation import initial_models, model_template
from fl_audit.learning.models import ModelSpec, build_model
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.randomness import Purpose, generator
from tests.builders.refusals import assert_refused
from tests.learning.gradient_truth import clip_and_sum, example_gradients, record_gradients

FACTORIES = """
import random
import sys

import torch
from torch import nn

from tests.builders.models import Model

def with_both(feature_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(feature_shape[0] * feature_shape[1], classes))

def with_classes(classes, width=5):
    return nn.Sequential(nn.Flatten(), nn.Linear(6, width), nn.ReLU(), nn.Linear(width, classes))

def with_nothing():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3))

class Network(nn.Module):
    def __init__(self, feature_shape, classes):
        super().__init__()
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        return self.head(x.flatten(1))

def of_head(forward, inputs=6):
    return Model(lambda model, x: forward(model.head, x.flatten(1)), head=nn.Linear(inputs, 3))

def centred():
    return of_head(lambda head, x: head(x - x.mean(0)))

def standardised():
    return of_head(lambda head, x: head((x - x.mean(0)) / x.std(0)) if len(x) > 1 else head(x))

def noisy():
    return of_head(lambda head, x: head(x) + torch.randn(3))

def dropping():
    return of_head(lambda head, x: nn.functional.dropout(head(x), training=True))

def squeezed():
    return of_head(lambda head, x: head(x).squeeze())

def branching():
    return of_head(lambda head, x: head(x) if x.sum().item() < 1e9 else x)

def narrow():
    return of_head(lambda head, x: head(x), inputs=99)

def too_deep():
    return of_head(lambda head, x: head(x).unsqueeze(2))

def of_two_classes():
    return of_head(lambda head, x: head(x)[:, :2])

def normalised():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

def no_module():
    return "a network"


def recurrent(dropout=0.0):
    cells = nn.LSTM(3, 4, num_layers=2, dropout=dropout)
    return Model(lambda model, x: model.head(model.cells(x.transpose(0, 1))[0][-1]), cells=cells, head=nn.Linear(4, 3))

def attentive(dropout=0.0):
    layer = nn.TransformerEncoderLayer(3, 1, 8, dropout=0.0)
    layer.self_attn.dropout = dropout
    body = nn.TransformerEncoder(layer, 1)
    return Model(lambda model, x: model.head(model.body(x.transpose(0, 1)).mean(0)), body=body, head=nn.Linear(3, 3))

def dropping_in_training():
    def forward(model, x):
        return nn.functional.dropout(model.head(x.flatten(1)), 0.1, training=model.training)
    return Model(forward, head=nn.Linear(6, 3))

def shifting_in_training():
    return Model(lambda model, x: model.head(x.flatten(1)) + (1.0 if model.training else 0.0), head=nn.Linear(6, 3))

def tempered():
    temperature = nn.Parameter(torch.tensor(1.5))
    return Model(lambda model, x: model.head(x.flatten(1)) * model.temperature, head=nn.Linear(6, 3),
                 temperature=temperature)

def softened():
    return Model(lambda model, x: model.soft(model.head(x.flatten(1))), head=nn.Linear(6, 3), soft=nn.Softmax())

def chain_softened():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.Softmax())

def wide():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 7))

def in_doubles():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double()

def in_halves():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).half()

def nowhere():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).to("meta")

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))

def ending():
    sys.exit("good\\nbye")

def failing():
    raise KeyError

def misled():
    return nn.Linear("six", 3)

def demanding(classes, width):
    return nn.Linear(width, classes)

def all_frozen():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).requires_grad_(False)

def unsteady():
    core = nn.Linear(6, 6).requires_grad_(False)
    with torch.no_grad():
        core.weight.copy_(torch.full((6, 6), random.SystemRandom().random()))
        core.bias.copy_(core.weight[0])
    return nn.Sequential(nn.Flatten(), core, nn.Linear(6, 3))

def adapted(inputs, outputs):
    return Model(
        lambda model, x: model.core(x) + model.up(model.down(x)),
        core=nn.Linear(inputs, outputs).requires_grad_(False),
        down=nn.Linear(inputs, 2, bias=False),
        up=nn.Linear(2, outputs, bias=False),
    )

def low_rank():
    return nn.Sequential(nn.Flatten(), adapted(6, 8), nn.Tanh(), adapted(8, 3))

def frozen_bias():
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    model[1].bias.requires_grad_(False)
    return model

def frozen_core():
    core = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU()).requires_grad_(False)
    return nn.Sequential(core, nn.Linear(8, 3))

def recurrent_dropping():
    return recurrent(0.2)

def attentive_dropping():
    return attentive(0.3)


NOT_CALLABLE = 3
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "networks.py").write_text(FACTORIES)
    (tmp_path / "ending_module.py").write_text("raise SystemExit(1)\n")
    (tmp_path / "failing_module.py").write_text("1 / 0\n")
    (tmp_path / "needing_module.py").write_text("import not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("their_package", "their_package.networks"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def theirs(name: str) -> ModelSpec:
    return ModelSpec(name if ":" in name else f"their_package.networks:{name}", (2, 3), 3)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("mnist-cnn", (1, 28, 28), 10, 6554),
        ("adult-mlp", (104,), 2, 686),
        ("dense-128", (600,), 100, 600 * 128 + 128 + 128 * 100 + 100),
        ("dense-512-128", (617,), 100, 617 * 512 + 512 + 512 * 128 + 128 + 128 * 100 + 100),
        ("logistic", (30,), 2, 62),
        ("logistic", (4, 5), 3, 63),
    ],
)
def test_built_in_models_have_the_published_sizes(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    model = StackedModel.of(ModelSpec(name, shape, classes))
    assert model.layout.size == parameters
    assert model.fast
    assert model.logits(torch.zeros(2, parameters), torch.zeros(3, *shape)).shape == (2, 3, classes)


def test_built_in_models_start_as_keras_starts_them() -> None:
    torch.manual_seed(5)
    layers = [layer for layer in build_model(ModelSpec("adult-mlp", (104,), 2)) if isinstance(layer, nn.Linear)]
    for layer in layers:
        limit = (6 / (layer.in_features + layer.out_features)) ** 0.5
        assert 0.7 * limit < float(layer.weight.detach().abs().max()) <= limit
        assert torch.equal(layer.bias, torch.zeros_like(layer.bias))


# Initial weights


def test_the_weights_of_a_trial_do_not_depend_on_its_company() -> None:
    spec = ModelSpec("adult-mlp", (9,), 2)
    together = initial_models(spec, 3, [0, 1, 2, 3, 4])
    assert together.dtype == torch.float32
    assert together.shape == (5, 9 * 6 + 6 + 42 + 14)
    assert torch.equal(initial_models(spec, 3, [4, 1]), together[[4, 1]])
    for trial in range(5):
        assert torch.equal(initial_models(spec, 3, [trial])[0], together[trial])


def test_the_weights_of_trials_and_seeds_differ() -> None:
    spec = ModelSpec("logistic", (9,), 2)
    rows = torch.cat([initial_models(spec, seed, range(4)) for seed in (0, 1, 2**64 - 1)])
    assert len(torch.unique(rows, dim=0)) == 12


@pytest.mark.parametrize("before", [0, 123])
def test_the_weights_do_not_depend_on_the_global_generators_and_leave_them_alone(before: int) -> None:
    spec = ModelSpec("mnist-cnn", (1, 10, 10), 2)
    torch.manual_seed(before)
    np.random.seed(before)  # noqa: NPY002  # the global generator is the point
    random.seed(before)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    models = initial_models(spec, 0, [0, 1])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert random.getstate() == states[2]
    torch.manual_seed(77)
    assert torch.equal(initial_models(spec, 0, [0, 1]), models)


def test_the_global_generator_is_left_alone_when_a_factory_fails(factories: None) -> None:
    state = torch.get_rng_state()
    assert_refused(None, lambda: initial_models(theirs("no_module"), 0, [0]))
    assert torch.equal(torch.get_rng_state(), state)


def test_golden_weights() -> None:
    """Stored runs could not be resumed if these changed."""
    golden = [
        [0.899744689, 0.0749180615, 0.195430771, 0.149620771, 0.0, 0.0],
        [0.0126915723, -0.822409153, -0.031616509, -0.792904258, 0.0, 0.0],
    ]
    models = initial_models(ModelSpec("logistic", (2,), 2), 0, [0, 1])
    torch.testing.assert_close(models, torch.tensor(golden), rtol=1e-6, atol=0)


# Layout


def test_layout_is_torchs_own_order() -> None:
    module = build_model(ModelSpec("mnist-cnn", (1, 10, 10), 3))
    layout = ParameterLayout.of(module)
    parameters = dict(module.named_parameters())
    flat = layout.flatten(parameters)
    assert torch.equal(flat, nn.utils.parameters_to_vector(module.parameters()))
    assert layout.size == len(flat)
    models = torch.stack([flat, 2 * flat])
    views = layout.views(models)
    assert list(views) == list(parameters)
    for name, view in views.items():
        assert torch.equal(view, torch.stack([parameters[name], 2 * parameters[name]]))
        assert view.data_ptr() == models[:, layout.slices()[name]].data_ptr()
    assert [(column_slice.start, column_slice.stop) for column_slice in layout.slices().values()][-1][1] == layout.size


# Factories of one's own


@pytest.mark.parametrize(
    ("name", "parameters"), [("with_both", 21), ("with_classes", 53), ("with_nothing", 21), ("Network", 21)]
)
def test_a_factory_of_ones_own(factories: None, name: str, parameters: int) -> None:
    spec = theirs(name)
    model = StackedModel.of(spec)
    assert model.layout.size == parameters
    models = initial_models(spec, 5, [3, 8])
    assert torch.equal(initial_models(spec, 5, [8])[0], models[1])
    assert not torch.equal(models[0], models[1])
    features = torch.rand(4, 2, 3)
    labels = torch.tensor([0, 1, 2, 0])
    truth = clip_and_sum(example_gradients(model.template, models, features, labels), 0.5)
    torch.testing.assert_close(model.clipped_sum(models, features, labels, 0.5).double(), truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("mnist", "mnist-cnn"), ("adult_mlp", "adult-mlp"), ("logit", "logistic"), ("dense", "dense-128")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    named = f"{name!r} is unknown .nearest: {nearest!r}."
    error = assert_refused(named, lambda: StackedModel.of(ModelSpec(name, (1, 28, 28), 10)))
    assert all(model_name in str(error) for model_name in ("logistic", "mnist-cnn", "package.module:factory"))


# Refusals of modules


def _around(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(layer), nn.Linear(4, 2))


@pytest.mark.parametrize(
    "layer",
    [lambda: nn.Dropout(0.0), lambda: nn.InstanceNorm1d(4), lambda: nn.GroupNorm(2, 4), lambda: nn.LayerNorm(4)],
)
def test_accepts_their_harmless_kin(layer: Callable[[], nn.Module]) -> None:
    check_module(_around(layer()))


def test_a_check_leaves_the_global_generator_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 3))
    state = torch.get_rng_state()
    StackedModel(module, (4,))
    assert torch.equal(torch.get_rng_state(), state)


# What a stranger's module may do


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("their_package.networks:missing", r"networks\b.* cannot be imported .*missing"),
        ("their_package.absent:with_both", r"absent\b.* cannot be imported .*absent"),
        ("no_such_package:with_both", r"no_such_package\b.* cannot be imported .*no_such_package"),
        (":with_both", "cannot be imported"),
        ("..networks:with_both", "cannot be imported"),
        ("their_package.networks:", "cannot be imported"),
        ("their_package.networks:NOT_CALLABLE", "not callable"),
        ("their_package.networks:no_module", r"\bstr: .*torch\.nn\.Module"),
        ("normalised", "BatchNorm1d.*GroupNorm"),
        ("centred", "mixes examples"),
        ("standardised", "mixes examples"),
        ("too_deep", r"returns shape \(3, 3, 1\) for 3 records, .*\.mean\(2\)"),
        ("of_two_classes", r"2 outputs .*3 classes"),
        ("noisy", "random"),
        ("dropping", "random"),
        ("squeezed", r"shape \(3,\) .*single record: .*\(1, 3\)"),
        ("branching", r"example by example .*no \.item\(\)"),
        ("narrow", r"layer 'head' \(Linear\) .*\b99 .*\b6\b.*torch\.nn\.Linear\(6, 3\)"),
        ("wide", r"7 outputs .*3 classes"),
        ("in_doubles", r"'1\.weight' .*float64: .*float32, .*module\.float"),
        ("in_halves", r"'1\.weight' .*float16: .*float32"),
        ("nowhere", r"'1\.weight' .*\bmeta: .*\bcpu"),
        ("lazy", r"'1\.weight' .*lazy layer"),
        ("ending", r"networks:ending' .*SystemExit in networks\.py"),
        ("failing", r"KeyError in networks\.py, line \d+$"),
        ("misled", r"TypeError: .* in networks\.py"),
        ("demanding", r"required argument: 'width'\): accepted"),
        ("ending_module:build", r"cannot be imported \(SystemExit in ending_module\.py, line 1\)$"),
        ("failing_module:build", r"cannot be imported \(ZeroDivisionError: .* in failing_module\.py"),
        ("needing_module:build", r"cannot be imported: .*'not_there', .*not installed$"),
        ("all_frozen", r"parameters .*frozen"),
        ("unsteady", r"1\.weight, 1\.bias anew"),
        ("dropping_in_training", r"random numbers .*dropout"),
        ("shifting_in_training", r"other outputs .*training mode"),
        ("recurrent_dropping", r"random numbers .*training mode"),
        ("attentive_dropping", r"random numbers .*training mode"),
    ],
)
def test_what_no_factory_may_give_is_refused_in_one_line(factories: None, name: str, message: str) -> None:
    assert_refused(message, lambda: StackedModel.of(theirs(name)))


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(
    ("name", "trained", "fast"), [("low_rank", 50, False), ("frozen_core", 27, True), ("frozen_bias", 75, False)]
)
def test_of_a_model_with_a_frozen_part_the_rest_is_trained(
    factories: None, name: str, trained: int, fast: bool
) -> None:
    spec = theirs(name)
    model = StackedModel.of(spec)
    assert (model.layout.size, model.fast, model.chain) == (trained, fast, None)
    models = initial_models(spec, 1, [0, 1])
    features = torch.rand(5, 2, 3)
    labels = torch.tensor([0, 1, 2, 0, 1])
    assert models.shape == (2, trained)
    truth = torch.stack([record_gradients(model_template(spec), features, labels, row) for row in models])
    found = model.clipped_sum(models, features, labels, 0.3).double()
    torch.testing.assert_close(found, clip_and_sum(truth, 0.3), rtol=1e-4, atol=1e-5)
    # What is frozen is the same wherever the model is built: another process draws nothing else.
    torch.manual_seed(3)
    rebuilt_model = StackedModel(model_template(spec), spec.feature_shape)
    assert torch.equal(rebuilt_model.logits(models, features), model.logits(models, features))


@pytest.mark.parametrize("name", ["recurrent", "attentive", "tempered", "softened", "chain_softened"])
def test_a_strangers_module_runs_without_a_word_of_torch(
    factories: None, name: str, recwarn: pytest.WarningsRecorder
) -> None:
    spec = theirs(name)
    model = StackedModel.of(spec)
    models = initial_models(spec, 1, [0, 1])
    features = torch.rand(5, 2, 3)
    labels = torch.tensor([0, 1, 2, 0, 1])
    sums = model.clipped_sum(models, features, labels, 0.3)
    model.losses(models, features, labels)
    module = copy.deepcopy(model.template).requires_grad_(True)
    truth = torch.stack([record_gradients(module, features, labels, weights) for weights in models])
    torch.testing.assert_close(sums.double(), clip_and_sum(truth, 0.3), rtol=1e-4, atol=1e-5)
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)] == []


def test_a_factory_gives_every_trial_the_weights_of_a_call_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counted_models.py").write_text(
        "import torch\nfrom torch import nn\nCALLS = []\ndef build(feature_shape, classes):\n"
        "    CALLS.append(classes)\n"
        "    core = nn.Sequential(nn.Linear(feature_shape[0], 20), nn.Embedding(9, 7, padding_idx=0))\n"
        "    core = core.requires_grad_(False)\n"
        "    head = nn.Linear(20, classes)\n"
        "    nn.init.orthogonal_(head.weight)\n"
        "    nn.init.trunc_normal_(core[0].weight, std=0.02)\n"
        "    with torch.no_grad():\n        head.bias.copy_(torch.randn(classes) * core[0].bias.mean())\n"
        "    return nn.Sequential(core[0], nn.Tanh(), head)\n"
        "def seeded():\n    torch.manual_seed(7)\n    return build((3,), 2)\n"
        "def elsewhere():\n    import numpy as np\n    model = build((3,), 2)\n"
        "    with torch.no_grad():\n        model[2].bias.copy_(torch.from_numpy(np.random.default_rng().random(2)))\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = ModelSpec("counted_models:build", (3,), 2)
    models = [StackedModel.of(spec) for _ in range(5)]
    assert all(model is models[0] for model in models)
    calls = sys.modules["counted_models"].CALLS
    weights = initial_models(spec, 5, range(4))
    assert len(calls) == 3 + 4  # two seeds, once more for the frozen layer that torch draws, and four trials
    for trial, row in enumerate(weights):
        with drawn_by(generator(5, Purpose.INITIAL_WEIGHTS, trial=trial)):
            trial_model = sys.modules["counted_models"].build((3,), 2)
        expected = [parameter.flatten() for parameter in trial_model.parameters() if parameter.requires_grad]
        assert torch.equal(row, torch.cat(expected))
    assert len({row.sum().item() for row in weights}) == 4
    StackedModel.of(ModelSpec("counted_models:build", (4,), 2))
    assert len(calls) == 14
    # Weights that a factory seeds itself are the same in all trials.
    assert len(set(map(tuple, initial_models(ModelSpec("counted_models:seeded", (3,), 2), 0, range(3)).tolist()))) == 1
    assert len(calls) == 16
    initial_models(ModelSpec("counted_models:elsewhere", (3,), 2), 0, range(3))
    assert len(calls) == 16 + 6


@contextmanager
def drawn_by(source: np.random.Generator) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch.Generator().manual_seed(int(source.integers(2**63))).get_state())
        yield
