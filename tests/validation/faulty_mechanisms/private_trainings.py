"""Private trainings with Opacus: two of the shape of public examples, with planted pitfalls, and honest twins.

One has the shape of Opacus' example for MNIST, the other that of Flower's example with Opacus for CIFAR-10: networks
and records of these sizes, and random numbers instead of images.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fl_audit.app_audits.local_training.pitfalls import Pitfall

# of 97, 98 and 99 records Opacus expects batches of 19
RECORDS = 98
BATCH = 20
DELTA = 1e-3


class Pictures(Dataset[dict[str, Tensor]]):
    """Records as dictionaries, as of Hugging Face."""

    def __init__(self, pictures: Tensor, labels: Tensor) -> None:
        self.pictures = pictures
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"img": self.pictures[index], "label": self.labels[index]}


@dataclass(frozen=True)
class Example:
    """One of the two trainings."""

    name: str
    shape: tuple[int, int, int]  # of a picture
    is_named: bool  # whether records are dictionaries

    def dataset(self, seed: int = 0, records: int = RECORDS) -> Any:
        """Return random records."""
        source = torch.Generator().manual_seed(seed)
        labels = torch.randint(10, (records,), generator=source)
        pictures = torch.randn(records, *self.shape, generator=source)
        return Pictures(pictures, labels) if self.is_named else TensorDataset(pictures, labels)

    def model(self, *beside: nn.Module) -> nn.Module:
        """Return a small network, with layers put in before the last one."""
        convolution = nn.Conv2d(self.shape[0], 4, 8, 4)
        width = 4 * ((self.shape[1] - 8) // 4 + 1) ** 2
        return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), *beside, nn.Linear(width, 10))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss of a batch."""
        inputs, labels = (batch["img"], batch["label"]) if self.is_named else batch
        return F.cross_entropy(model(inputs), labels)

    def inputs(self, batch: Any) -> Tensor:
        """Return the images of a batch."""
        images: Tensor = batch["img"] if self.is_named else batch[0]
        return images


EXAMPLES = (Example("MNIST with Opacus", (1, 28, 28), False), Example("Flower with Opacus", (3, 32, 32), True))
"""The two trainings."""

Train = Callable[[Example, nn.Module, Any], Any]
ServerRound = tuple[PrivacyEngine, nn.Module, Any, Any]


def private_setup(
    model: nn.Module, dataset: Any, engine: PrivacyEngine | None = None, batch: int = BATCH, **options: Any
) -> ServerRound:
    """Return an engine with model, optimizer and loader as it makes them.

    Without an engine, a new one is made; `asked` are further arguments of `make_private`.
    """
    engine = engine or PrivacyEngine(accountant="rdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arguments = {"noise_multiplier": 1.0, "max_grad_norm": 1.0} | options
    loader = DataLoader(dataset, batch_size=batch, shuffle=True)
    private, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **arguments)
    return engine, private, optimizer, loader


def step(example: Example, private: nn.Module, optimizer: Any, batch: Any) -> float:
    """Take one private step, and return the loss before it."""
    optimizer.zero_grad()
    loss = example.loss(private, batch)
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss)


def trained(example: Example, setup: ServerRound, epochs: int = 1) -> float:
    """Train through an engine as intended, and return the mean loss of the last epoch."""
    engine, private, optimizer, loader = setup
    losses = [0.0]
    for _ in range(epochs):
        losses = [step(example, private, optimizer, batch) for batch in loader]
    engine.get_epsilon(DELTA)
    return sum(losses) / max(len(losses), 1)


def _plain(example: Example, model: nn.Module, dataset: Any, epochs: int = 1, **options: Any) -> nn.Module:
    trained(example, private_setup(model, dataset, **options), epochs)
    return model


def _early_epsilon(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, loader = private_setup(model, dataset)
    for step_index, batch in enumerate(loader):
        step(example, private, optimizer, batch)
        if step_index == 1:
            engine.get_epsilon(DELTA)


def _large_delta(example: Example, model: nn.Module, dataset: Any) -> None:
    setup = private_setup(model, dataset)
    trained(example, setup)
    setup[0].get_epsilon(0.05)


def _uncounted(example: Example, model: nn.Module, dataset: Any) -> None:
    setup = private_setup(model, dataset)
    setup[2].attach_step_hook(lambda _: None)
    trained(example, setup)


def _untaken(example: Example, model: nn.Module, dataset: Any) -> None:
    setup = private_setup(model, dataset)
    trained(example, setup)
    setup[0].accountant.step(noise_multiplier=1.0, sample_rate=0.2)


def _wrong_rate(example: Example, model: nn.Module, dataset: Any) -> None:
    setup = private_setup(model, dataset)
    setup[2].attach_step_hook(setup[0].accountant.get_optimizer_hook_fn(sample_rate=0.02))
    trained(example, setup)


def _wrong_noise(example: Example, model: nn.Module, dataset: Any) -> None:
    setup = private_setup(model, dataset)
    setup[2].attach_step_hook(lambda _: setup[0].accountant.step(noise_multiplier=3.0, sample_rate=0.2))
    trained(example, setup)


def _other_loader(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, _ = private_setup(model, dataset)
    trained(example, (engine, private, optimizer, DataLoader(dataset, batch_size=BATCH, shuffle=True)))


def _fixed_sample(example: Example, model: nn.Module, dataset: Any) -> None:
    setup = private_setup(model, dataset)
    setup[3].batch_sampler.generator = torch.Generator().manual_seed(7)
    trained(example, setup)


def _repeated_batch(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, loader = private_setup(model, dataset)
    for batch in loader:
        for _ in range(2):
            step(example, private, optimizer, batch)
    engine.get_epsilon(DELTA)


def _accumulation(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, loader = private_setup(model, dataset)
    for step_index, batch in enumerate(loader):
        optimizer.signal_skip_step(step_index % 2 == 0)
        step(example, private, optimizer, batch)
    engine.get_epsilon(DELTA)


def _empty_skipped(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, loader = private_setup(model, dataset, batch=2)
    for batch in loader:
        if len(example.inputs(batch)):
            step(example, private, optimizer, batch)
    engine.get_epsilon(DELTA)


def _cut_batch(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, loader = private_setup(model, dataset)
    for batch in loader:
        items = batch.items() if isinstance(batch, dict) else enumerate(batch)
        cut = {name: value[:10] for name, value in items}
        step(example, private, optimizer, cut if isinstance(batch, dict) else list(cut.values()))
    engine.get_epsilon(DELTA)


def _batch_clipping(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, loader = private_setup(model, dataset)
    for batch in loader:
        optimizer.zero_grad()
        torch.autograd.backward(example.loss(private, batch))
        for parameter in optimizer.params:
            parameter.grad_sample = parameter.grad_sample.mean(dim=0, keepdim=True)
        optimizer.step()
    engine.get_epsilon(DELTA)


class _BatchMean(nn.Module):
    """Subtracts the mean of a batch."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(dim=0, keepdim=True) if len(inputs) else inputs


class _RunningMean(nn.Module):
    """Keeps a running mean of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.mean: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs):
            self.mean.mul_(0.9).add_(0.1 * inputs.detach().mean())
        return inputs


def _batch_norm(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    normed_model = example.model(nn.Unflatten(1, (4, -1)), nn.BatchNorm1d(4, affine=False), nn.Flatten())
    with torch.no_grad():
        for mine, source_parameter in zip(normed_model.parameters(), model.parameters(), strict=True):
            mine.copy_(source_parameter)
    private = GradSampleModule(normed_model, strict=False)
    inner = torch.optim.SGD(normed_model.parameters(), lr=0.1)
    engine, _, _, loader = private_setup(example.model(), dataset)
    optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=19)
    optimizer.attach_step_hook(engine.accountant.get_optimizer_hook_fn(sample_rate=0.2))
    trained(example, (engine, private, optimizer, loader))
    return normed_model


def _with_layer(layer: Callable[[], nn.Module]) -> Train:
    def train(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
        layered_model = example.model(layer())
        with torch.no_grad():
            for mine, source_parameter in zip(layered_model.parameters(), model.parameters(), strict=True):
                mine.copy_(source_parameter)
        trained(example, private_setup(layered_model, dataset))
        return layered_model

    return train


class _WideClipping(DPOptimizer):
    """Clips to three times the norm that its noise is for."""

    def clip_and_accumulate(self) -> None:
        self.max_grad_norm *= 3
        super().clip_and_accumulate()
        self.max_grad_norm /= 3


class _LayerClipping(DPOptimizer):
    """Clips every tensor by itself to the norm that its noise is for."""

    def clip_and_accumulate(self) -> None:
        for parameter in self.params:
            grads = parameter.grad_sample.reshape(len(parameter.grad_sample), -1)
            factors = (self.max_grad_norm / (grads.norm(dim=1) + 1e-6)).clamp(max=1.0)
            parameter.summed_grad = (factors[:, None] * grads).sum(dim=0).view_as(parameter)


def _noising(draw: Callable[[Tensor, int], Tensor]) -> type[DPOptimizer]:
    """Return an optimizer that adds its own noise, drawn by the shape of a tensor and the number of the step."""

    class Own(DPOptimizer):
        number = 0

        def add_noise(self) -> None:
            self.number += 1
            for parameter in self.params:
                parameter.grad = (parameter.summed_grad + draw(parameter.summed_grad, self.number)).view_as(parameter)

    return Own


def _with_optimizer(kind: type[DPOptimizer]) -> Train:
    """Return a training with a given class of Opacus' optimizer."""

    def train(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
        engine, private, usual, loader = private_setup(model, dataset)
        optimizer = kind(
            usual.original_optimizer,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            expected_batch_size=usual.expected_batch_size,
        )
        optimizer.attach_step_hook(usual.step_hook)
        trained(example, (engine, private, optimizer, loader))
        return model

    return train


class _TrueSize(DPOptimizer):
    """Divides the noised sum by the size of the sample, and not by the expected one."""

    size = 1

    def clip_and_accumulate(self) -> None:
        self.size = max(len(self.grad_samples[0]), 1)
        super().clip_and_accumulate()

    def scale_grad(self) -> None:
        for parameter in self.params:
            parameter.grad /= self.size


def _uniform(like: Tensor, _: int) -> Tensor:
    return (torch.rand(like.shape) - 0.5) * 12**0.5


def _always_same(like: Tensor, _: int) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(5))


def _seeded(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    torch.manual_seed(42)
    return _plain(example, model, dataset)


def _trained_before(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(dataset, batch_size=BATCH):
        step(example, model, optimizer, batch)
    return _plain(example, model, dataset)


def _unwrapped(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    engine, private, optimizer, loader = private_setup(model, dataset)
    trained(example, (engine, private, optimizer, loader))
    for batch in loader:
        optimizer.zero_grad()
        torch.autograd.backward(example.loss(private, batch))
        optimizer.original_optimizer.step()
    return model


def _outside_optimizer(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    engine, private, optimizer, loader = private_setup(model, dataset)
    last = torch.optim.Adam(list(model.parameters())[-2:], lr=0.01)
    for batch in loader:
        optimizer.zero_grad()
        torch.autograd.backward(example.loss(private, batch))
        last.step()
        optimizer.step()
    engine.get_epsilon(DELTA)
    return model


def _moved_outside(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    engine, private, optimizer, loader = private_setup(model, dataset)
    for batch in loader:
        step(example, private, optimizer, batch)
        with torch.no_grad():
            next(iter(model.parameters())).add_(0.01 * example.inputs(batch).sum())
    engine.get_epsilon(DELTA)
    return model


def _frozen_moved(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    first = next(iter(model.parameters()))
    first.requires_grad_(False)
    engine = PrivacyEngine(accountant="rdp")
    trained_parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(trained_parameters, lr=0.1),
        data_loader=DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for batch in loader:
        step(example, private, optimizer, batch)
        first.add_(0.01 * example.inputs(batch).sum())
    engine.get_epsilon(DELTA)
    return model


def _unknown_tensors(example: Example, model: nn.Module, dataset: Any) -> dict[str, Tensor]:
    _plain(example, model, dataset)
    pictures = torch.stack([example.inputs(dataset[index]) for index in range(10)])
    return {**model.state_dict(), "statistics": pictures.mean(dim=0)}


def _plain_beside(example: Example, model: nn.Module, dataset: Any) -> nn.ModuleList:
    engine, private, optimizer, loader = private_setup(model, dataset)
    plain = example.model()
    beside = torch.optim.SGD(plain.parameters(), lr=1.0)
    for batch in loader:
        step(example, private, optimizer, batch)
        beside.zero_grad()
        torch.autograd.backward(example.loss(plain, batch))
        beside.step()
    engine.get_epsilon(DELTA)
    return nn.ModuleList([model, plain])


def _chosen_epoch(example: Example, model: nn.Module, dataset: Any) -> dict[str, Tensor]:
    setup = private_setup(model, dataset)
    epochs = []
    for _ in range(5):
        loss = trained(example, setup)
        epochs.append((loss, {name: value.clone() for name, value in model.state_dict().items()}))
    return min(epochs[:-1], key=lambda epoch: epoch[0])[1]  # the last one would look like no choice


def _private_schedule(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    setup = private_setup(model, dataset)
    before = float("inf")
    for _ in range(8):
        loss = trained(example, setup)
        if loss > before:
            break
        before = loss
    return model


def _private_rate(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    setup = private_setup(model, dataset)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(setup[2].original_optimizer, patience=0)
    for _ in range(3):
        scheduler.step(trained(example, setup))
    return model


def _engine_anew(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    for _ in range(2):
        _plain(example, model, dataset)
        model = _copied(example, model)
    return model


def _copied(example: Example, model: nn.Module) -> nn.Module:
    model_copy = example.model()
    with torch.no_grad():
        for mine, source_parameter in zip(model_copy.parameters(), model.parameters(), strict=True):
            mine.copy_(source_parameter)
    return model_copy


PLANTED: dict[Pitfall, Train] = {
    Pitfall.EARLY_EPSILON: _early_epsilon,
    Pitfall.LARGE_DELTA: _large_delta,
    Pitfall.UNCOUNTED_STEPS: _uncounted,
    Pitfall.UNTAKEN_STEPS: _untaken,
    Pitfall.WRONG_RATE: _wrong_rate,
    Pitfall.WRONG_NOISE_COUNTED: _wrong_noise,
    Pitfall.NO_POISSON: partial(_plain, poisson_sampling=False),
    Pitfall.PARTIAL_BATCH: partial(_plain, poisson_sampling=False),
    Pitfall.OTHER_LOADER: _other_loader,
    Pitfall.FIXED_SAMPLE: _fixed_sample,
    Pitfall.REPEATED_BATCH: _repeated_batch,
    Pitfall.ACCUMULATION: _accumulation,
    Pitfall.EMPTY_SKIPPED: _empty_skipped,
    Pitfall.CUT_BATCH: _cut_batch,
    Pitfall.BATCH_CLIPPING: _batch_clipping,
    Pitfall.BATCH_NORM: _batch_norm,
    Pitfall.COUPLED: _with_layer(_BatchMean),
    Pitfall.BUFFERS: _with_layer(_RunningMean),
    Pitfall.OVER_NORM: _with_optimizer(_WideClipping),
    Pitfall.LAYER_CLIPPING: _with_optimizer(_LayerClipping),
    Pitfall.NO_NOISE: _with_optimizer(_noising(lambda like, _: torch.zeros(like.shape))),
    Pitfall.NOISE_FOLLOWS: _with_optimizer(_TrueSize),
    Pitfall.SMALL_NOISE: _with_optimizer(_noising(lambda like, _: 0.5 * torch.randn(like.shape))),
    Pitfall.NOISE_DISTRIBUTION: _with_optimizer(_noising(_uniform)),
    Pitfall.REPEATED_NOISE: _with_optimizer(_noising(_always_same)),
    Pitfall.SEEDED_NOISE: _seeded,
    Pitfall.TRAINED_BEFORE: _trained_before,
    Pitfall.UNWRAPPED: _unwrapped,
    Pitfall.OUTSIDE_OPTIMIZER: _outside_optimizer,
    Pitfall.MOVED_OUTSIDE: _moved_outside,
    Pitfall.FROZEN_MOVED: _frozen_moved,
    Pitfall.UNKNOWN_TENSORS: _unknown_tensors,
    Pitfall.BARE_OUTPUT: _plain_beside,
    Pitfall.CHOSEN_EPOCH: _chosen_epoch,
    Pitfall.PRIVATE_SCHEDULE: _private_schedule,
    Pitfall.PRIVATE_RATE: _private_rate,
    Pitfall.FRESH_ACCOUNTANT: _engine_anew,
    Pitfall.CLAIMED_EPSILON: _engine_anew,
}
"""Trainings with a pitfall, by its name. Private size is planted by 100 records, of which Opacus expects 20 a batch."""


def _with_parts(example: Example, model: nn.Module, dataset: Any) -> None:
    engine, private, optimizer, loader = private_setup(model, dataset)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=6, optimizer=optimizer) as batch_loader:
        trained(example, (engine, private, optimizer, batch_loader))


def _with_target(example: Example, model: nn.Module, dataset: Any) -> None:
    engine = PrivacyEngine(accountant="rdp")
    private, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        data_loader=DataLoader(dataset, batch_size=BATCH),
        target_epsilon=3.0,
        target_delta=DELTA,
        epochs=1,
        max_grad_norm=1.0,
    )
    trained(example, (engine, private, optimizer, loader))


def _with_ghosts(example: Example, model: nn.Module, dataset: Any) -> None:
    engine = PrivacyEngine(accountant="rdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private, optimizer, criterion, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
    )
    for batch in loader:
        optimizer.zero_grad()
        labels = batch["label"] if example.is_named else batch[1]
        criterion(private(example.inputs(batch)), labels).backward()
        optimizer.step()
    engine.get_epsilon(DELTA)


def _with_schedule(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    setup = private_setup(model, dataset)
    scheduler = torch.optim.lr_scheduler.StepLR(setup[2].original_optimizer, 1, 0.5)
    for _ in range(2):
        trained(example, setup)
        scheduler.step()
    return model


def _with_test_data(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    setup = private_setup(model, dataset)
    for _ in range(2):
        trained(example, setup)
        with torch.no_grad():
            for batch in DataLoader(example.dataset(99, 60), batch_size=25):
                example.loss(model, batch)
    return model


def _averaged_aside(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    engine, private, optimizer, loader = private_setup(model, dataset)
    average = [parameter.detach().clone() for parameter in model.parameters()]
    for batch in loader:
        step(example, private, optimizer, batch)
        for average_value, parameter in zip(average, model.parameters(), strict=True):
            average_value.mul_(0.9).add_(0.1 * parameter.detach())
    engine.get_epsilon(DELTA)
    return model


def _frozen(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    next(iter(model.parameters())).requires_grad_(False)
    trained_parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine = PrivacyEngine(accountant="rdp")
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(trained_parameters, lr=0.1),
        data_loader=DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    trained(example, (engine, private, optimizer, loader))
    return model


def _seeded_apart(example: Example, model: nn.Module, dataset: Any) -> nn.Module:
    torch.manual_seed(42)  # for the shuffling of public data, say
    torch.seed()
    return _plain(example, model, dataset)


HONEST: dict[str, Train] = {
    "plain": _plain,
    "two epochs": lambda example, model, dataset: _plain(example, model, dataset, epochs=2),
    "physical batches": _with_parts,
    "aimed at epsilon": _with_target,
    "ghost clipping": _with_ghosts,
    "Opacus' per-layer clipping": partial(_plain, clipping="per_layer", max_grad_norm=[0.5] * 4),
    "group normalisation": _with_layer(
        lambda: nn.Sequential(nn.Unflatten(1, (4, -1)), nn.GroupNorm(2, 4, affine=False), nn.Flatten())
    ),
    "dropout": _with_layer(lambda: nn.Dropout(0.3)),
    "falling learning rate": _with_schedule,
    "public test data": _with_test_data,
    "average kept aside": _averaged_aside,
    "frozen layer": _frozen,
    "seeded, then not": _seeded_apart,
    "exact accountant": lambda example, model, dataset: _plain(
        example, model, dataset, engine=PrivacyEngine(accountant="prv")
    ),
    "small samples": partial(_plain, batch=4),
}
"""Honest trainings, each named by its special feature."""
