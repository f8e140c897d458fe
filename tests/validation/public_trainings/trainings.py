"""Public trainings as functions `train(model, dataset)`: each calls the code of its copy as its own program would."""

import contextlib
import copy
import importlib
import io
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import flwr_datasets.partitioner  # noqa: F401  # before there is a stand-in for torchvision, for which it looks
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict, UserConfig
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fl_audit.strategies.flower_grids import make_messages_for
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID
from tests.validation.faulty_mechanisms.private_trainings import Pictures
from tests.validation.public_trainings.copies import Edit, among_modules, module_of, stand_in, without_pictures

BATCH, RECORDS = 20, 98
Train = Callable[[nn.Module, Any], Any]


@dataclass(frozen=True)
class PublicTraining:
    """A public training."""

    name: str
    folder: str  # of the clone, below the folder of copies
    source: str  # the repository and commit
    file: str  # the file without which it is skipped, in the clone
    open_in: Callable[[Path, Sequence[Edit]], tuple[Train, nn.Module]]  # the function, and a model for it
    data: Callable[[int], Dataset[Any]]  # a data set of so many records of the right shape
    records: int = RECORDS
    rounds: int = 1  # rounds of its program

    def missing(self, copies: Path) -> str:
        """Return why it cannot be played; empty where it can.

        `copies` is the folder of clones.
        """
        path = copies / self.folder / self.file
        return "" if path.exists() else f"{path} is not there: clone {self.source}"

    def opened(self, copies: Path, edits: Sequence[Edit] = ()) -> tuple[Train, nn.Module]:
        """Return the training function and a model.

        `copies` is the folder of the clones, of which one is edited.
        """
        return self.open_in(copies / self.folder, edits)


def _pictures(channels: int, side: int) -> Callable[[int], Dataset[Any]]:
    def made(records: int) -> TensorDataset:
        source = torch.Generator().manual_seed(0)
        labels = torch.randint(10, (records,), generator=source)
        return TensorDataset(torch.randn(records, channels, side, side, generator=source), labels)

    return made


def _named_pictures(records: int) -> Pictures:
    return Pictures(*_pictures(3, 32)(records).tensors)  # type: ignore[attr-defined]


@contextlib.contextmanager
def _as_program(*words: str) -> Iterator[None]:
    """Let code run as a program with words on its command line, in a folder of its own, silently."""
    logging.disable(logging.WARNING)
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        patch.object(sys, "argv", ["program", *words]),
        quiet[0],
        quiet[1],
    ):
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _mnist(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    beside = without_pictures()
    module = module_of(clone / "examples/mnist.py", "public_mnist", edits, beside)
    held_out = _pictures(1, 28)(30)

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        datasets: Any = beside["torchvision.datasets"]
        datasets.MNIST = lambda *_, train, **__: dataset if train else held_out
        with patch.object(module, "SampleConvNet", lambda: model), _as_program("--device=cpu", f"-b{BATCH}", "-n1"):
            module.main()
        return model

    return train, module.SampleConvNet()


def _cifar(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    module = module_of(clone / "examples/cifar10.py", "public_cifar", edits, without_pictures())
    held_out = _pictures(3, 32)(30)
    words = ("--device=cpu", f"--batch-size={BATCH}", "--epochs=1", "--workers=0")

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        def cifar(*_: Any, train: bool, **__: Any) -> Any:
            return dataset if train else held_out

        with patch.multiple(module, CIFAR10=cifar, convnet=lambda num_classes: model), _as_program(*words):
            module.main()
        return model

    return train, module.convnet(10)


def _flower_modules(folder: Path, edits: Sequence[Edit]) -> tuple[ModuleType, ModuleType]:
    beside = without_pictures()
    task = module_of(folder / "task.py", "opacus_fl.task", edits, beside)
    package = stand_in("opacus_fl", __path__=[str(folder)], task=task)
    beside |= {"opacus_fl": package, "opacus_fl.task": task}
    return module_of(folder / "client_app.py", "opacus_fl.client_app", edits, beside), task


def _flower(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    module, task = _flower_modules(clone / "examples/opacus/opacus_fl", edits)
    held_out = DataLoader(_named_pictures(30), 20)
    settings = {"target-delta": 1e-3, "max-grad-norm": 1.0}

    def train(model: nn.Module, dataset: Any) -> dict[str, Tensor]:
        node_config = UserConfig({"partition-id": 0, "num-partitions": 2})
        state = RecordDict()
        context = Context(
            run_id=RUN_ID, node_id=FIRST_NODE, node_config=node_config, state=state, run_config=UserConfig(settings)
        )
        make_messages_for(RUN_ID, 1)
        message = Message(RecordDict({"arrays": ArrayRecord(model.state_dict())}), FIRST_NODE, "train")
        loaders = DataLoader(dataset, BATCH, shuffle=True), held_out
        make_messages_for(RUN_ID, FIRST_NODE)
        with patch.object(module, "load_data", lambda **_: loaders), _as_program():
            reply = module.app(message, context)
        make_messages_for(RUN_ID, 1)
        state_dict: dict[str, Tensor] = reply.content["arrays"].to_torch_state_dict()
        return state_dict

    return train, task.Net()


def _flower_2024(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    module, task = _flower_modules(clone / "examples/opacus/opacus_fl", edits)

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        client = module.FlowerClient(DataLoader(dataset, BATCH, shuffle=True), None, 1e-3, 1.0, 1.0)
        weights = [value.detach().numpy().copy() for value in model.state_dict().values()]
        with _as_program():
            sent, _, _ = client.fit(weights, {})
        for value, came in zip(model.state_dict().values(), sent, strict=True):
            value.copy_(torch.from_numpy(came))
        return model

    return train, task.Net()


def _e2e(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    beside = without_pictures()
    path = clone / "framework/e2e/e2e-opacus/e2e_opacus/client_app.py"
    beside["torchvision.datasets"].CIFAR10 = lambda *_, **__: _pictures(3, 32)(3000)  # type: ignore[attr-defined]
    module = module_of(path, "e2e_opacus.client_app", edits, beside)

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        with patch.object(module, "trainloader", DataLoader(dataset, BATCH)), _as_program():
            client = module.FlowerClient(model)
            client.fit([value.numpy().copy() for value in client.model.state_dict().values()], {})
        return model

    return train, module.Net()


def _pfllib(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    datasets = list[Any]()
    data_utils = stand_in("utils.data_utils", read_client_data=lambda *_, **__: datasets[-1])
    beside = {"utils": stand_in("utils", __path__=[]), "utils.data_utils": data_utils}
    beside["utils.privacy"] = module_of(clone / "system/utils/privacy.py", "utils.privacy", edits)
    path = clone / "system/flcore/clients"
    base = module_of(path / "clientbase.py", "flcore.clients.clientbase", edits, beside)
    beside |= {"flcore": stand_in("flcore", __path__=[]), "flcore.clients": stand_in("flcore.clients", __path__=[])}
    beside["flcore.clients.clientbase"] = base
    module = module_of(path / "clientavg.py", "flcore.clients.clientavg", edits, beside)
    settings: dict[str, Any] = {
        "algorithm": "FedAvg",
        "dataset": "own",
        "device": "cpu",
        "save_folder_name": "",
        "num_classes": 10,
        "batch_size": BATCH,
        "local_learning_rate": 0.005,
        "local_epochs": 1,
        "privacy": True,
        "dp_sigma": 1.0,
        "learning_rate_decay": False,
        "learning_rate_decay_gamma": 0.99,
    }

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        datasets.append(dataset)
        arguments = SimpleNamespace(**settings, model=model)
        slow = {"train_slow": False, "send_slow": False}
        # Its constructor seeds torch, once and long before a round.
        with torch.random.fork_rng(devices=[]):
            client = module.clientAVG(arguments, 0, len(dataset), 30, **slow)
        with _as_program():
            client.train()
        trained_model: nn.Module = client.model
        return trained_model

    return train, nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


class _Settings(dict[str, Any]):
    """Settings that are read by name and by key, as those of omegaconf."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __deepcopy__(self, memo: Any) -> "_Settings":
        return _Settings(self)


def _appfl(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    beside = {"wandb": stand_in("wandb"), "omegaconf": stand_in("omegaconf", DictConfig=_Settings)}
    path = clone / "appfl"
    private = module_of(path / "privacy/opacus_dp.py", "appfl.privacy.opacus_dp", edits)
    unused = ("laplace_mechanism_output_perturb", "gaussian_mechanism_output_perturb", "SecureAggregator")
    private_ones = {"make_private_with_opacus": private.make_private_with_opacus}
    privacy = stand_in("appfl.privacy", **private_ones, **dict.fromkeys(unused))
    utils = stand_in(
        "appfl.misc.utils",
        parse_device_str=lambda device: ({"device_type": "cpu"}, device),
        apply_model_device=lambda model, *_: model,
    )
    memory = stand_in(
        "appfl.misc.memory_utils",
        extract_model_state_optimized=lambda model, **_: copy.deepcopy(model.state_dict()),
        safe_inplace_operation=None,
        optimize_memory_cleanup=lambda *_, **__: None,
    )
    names = ("appfl", "appfl.algorithm", "appfl.algorithm.trainer", "appfl.misc")
    beside |= {name: stand_in(name, __path__=[]) for name in names}
    beside |= {"appfl.privacy": privacy, "appfl.misc.utils": utils, "appfl.misc.memory_utils": memory}
    base = module_of(path / "algorithm/trainer/base_trainer.py", "appfl.algorithm.trainer.base_trainer", edits, beside)
    beside["appfl.algorithm.trainer.base_trainer"] = base
    path = path / "algorithm/trainer/vanilla_trainer.py"
    module = module_of(path, "appfl.algorithm.trainer.vanilla_trainer", edits, beside)

    def train(model: nn.Module, dataset: Any) -> dict[str, Tensor]:
        settings = _Settings(
            mode="epoch",
            num_local_epochs=1,
            optim="SGD",
            optim_args=_Settings(lr=0.1),
            device="cpu",
            use_dp=True,
            dp_mechanism="opacus",
            dp_config=_Settings(noise_multiplier=1.0, max_grad_norm=1.0),
            train_batch_size=BATCH,
        )
        logger = SimpleNamespace(**dict.fromkeys(("log_title", "set_title", "log_content", "info"), lambda *_: None))
        trainer = module.VanillaTrainer(
            model=model,
            loss_fn=nn.CrossEntropyLoss(),
            metric=lambda true, guessed: 0.0,
            train_dataset=dataset,
            train_configs=settings,
            logger=logger,
        )
        trainer.train()
        return {name.removeprefix("_module."): value for name, value in trainer.model_state.items()}

    return train, nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def _nvflare(clone: Path, edits: Sequence[Edit]) -> tuple[Train, nn.Module]:
    folder = clone / "examples/hello-world/hello-dp"
    rounds = 2
    client = stand_in("nvflare.client", init=lambda: None, system_info=lambda: {"site_name": "site-1"})
    client.FLModel = SimpleNamespace  # type: ignore[attr-defined]
    writer = SimpleNamespace(add_scalar=lambda **_: None)
    names = ("nvflare", "nvflare.app_common", "nvflare.app_common.abstract")
    beside = {name: stand_in(name, __path__=[]) for name in names}
    beside["nvflare"].client = client  # type: ignore[attr-defined]
    beside |= {
        "nvflare.client": client,
        "nvflare.client.tracking": stand_in("tracking", SummaryWriter=lambda: writer),
        "nvflare.app_common.abstract.fl_model": stand_in("fl_model", ParamsType=SimpleNamespace(DIFF="diff")),
        "model": module_of(folder / "model.py", "model", edits),
    }
    module = module_of(folder / "client.py", "hello_dp.client", edits, beside)

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        numbers = [dataset[index] for index in range(len(dataset))]
        features = SimpleNamespace(values=torch.stack([example[0] for example in numbers]).numpy())
        labels = SimpleNamespace(values=torch.stack([example[1] for example in numbers]).numpy())
        bunch = SimpleNamespace(data=features, target=labels)
        begun = list[int]()

        def receive() -> SimpleNamespace:
            begun.append(len(begun))
            state = {name.removeprefix("_module."): value.clone() for name, value in model.state_dict().items()}
            return SimpleNamespace(params=state, current_round=begun[-1], total_rounds=rounds)

        calls: dict[str, Any] = {"is_running": lambda: len(begun) < rounds, "receive": receive, "send": lambda _: None}
        with (
            patch.multiple(module, fetch_openml=lambda *_, **__: bunch, TabularMLP=lambda **_: model),
            patch.multiple(client, create=True, **calls),
            _as_program(f"--batch_size={BATCH}", "--n_clients=1"),
        ):
            module.main()
        return model

    return train, beside["model"].TabularMLP(29, [64, 32], 2)


def _rows(records: int) -> TensorDataset:
    source = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(records, 29, generator=source), torch.randint(2, (records,), generator=source))


def _fl4health(clone: Path, edits: Sequence[Edit], rounds: int = 1) -> tuple[Train, nn.Module]:
    module_names = ("torchmetrics", "wandb", "wandb.wandb_run")
    beside = {
        name: stand_in(name, __path__=[], Metric=object, Run=object, __getattr__=_any_class) for name in module_names
    }
    with among_modules(beside), patch.object(sys, "path", [str(clone), *sys.path]):
        base = importlib.import_module("fl4health.clients.instance_level_dp_client")
    network = module_of(clone / "examples/models/cnn_model.py", "fl4health_cnn_model", edits)
    held_out = DataLoader(_pictures(3, 32)(30), BATCH)
    config: dict[str, Any] = {
        "current_server_round": 1,
        "local_epochs": 1,
        "batch_size": BATCH,
        "clipping_bound": 1.0,
        "noise_multiplier": 1.0,
    }

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        class Client(base.InstanceLevelDpClient):  # type: ignore[name-defined]
            def get_data_loaders(self, _: Any) -> Any:
                return DataLoader(dataset, BATCH, shuffle=True), held_out

            def get_model(self, _: Any) -> nn.Module:
                return model

            def get_optimizer(self, _: Any) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)

            def get_criterion(self, _: Any) -> nn.Module:
                return nn.CrossEntropyLoss()

        with _as_program():
            client = Client(Path(), [], torch.device("cpu"), client_name="reviewed")
            sent = [value.numpy().copy() for value in model.state_dict().values()]
            # A program has one client for all rounds, which makes its engine in the first of them.
            for server_round in range(1, rounds + 1):
                sent, _, _ = client.fit(sent, config | {"current_server_round": server_round})
        return model

    return train, network.Net()


def _any_class(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


_FLOWER = "github.com/adap/flower"
TRAININGS = (
    PublicTraining(
        "Opacus, mnist.py",
        "opacus",
        "github.com/pytorch/opacus at 4d0ebc84613d",
        "examples/mnist.py",
        _mnist,
        _pictures(1, 28),
    ),
    PublicTraining(
        "Opacus, cifar10.py",
        "opacus",
        "github.com/pytorch/opacus at 4d0ebc84613d",
        "examples/cifar10.py",
        _cifar,
        _pictures(3, 32),
    ),
    PublicTraining(
        "Flower, examples/opacus",
        "flower",
        f"{_FLOWER} at fdef7afb1dca",
        "examples/opacus/opacus_fl/client_app.py",
        _flower,
        _named_pictures,
        rounds=3,
    ),
    PublicTraining(
        "Flower, examples/opacus of 2024",
        "flower-2024",
        f"{_FLOWER} at 74d64dd0e2",
        "examples/opacus/opacus_fl/client_app.py",
        _flower_2024,
        _named_pictures,
        rounds=3,
    ),
    PublicTraining(
        "Flower, e2e-opacus",
        "flower",
        f"{_FLOWER} at fdef7afb1dca",
        "framework/e2e/e2e-opacus/e2e_opacus/client_app.py",
        _e2e,
        _pictures(3, 32),
    ),
    PublicTraining(
        "PFLlib, clientAVG",
        "pfllib",
        "github.com/TsingZ0/PFLlib at 2b077c16adac",
        "system/flcore/clients/clientavg.py",
        _pfllib,
        _pictures(1, 28),
        rounds=3,
    ),
    PublicTraining(
        "APPFL, VanillaTrainer",
        "appfl",
        "package appfl 1.12.0",
        "appfl/algorithm/trainer/vanilla_trainer.py",
        _appfl,
        _pictures(1, 28),
    ),
    PublicTraining(
        "NVFlare, hello-dp",
        "nvflare",
        "github.com/NVIDIA/NVFlare at f3b7c1bffdfe",
        "examples/hello-world/hello-dp/client.py",
        _nvflare,
        _rows,
        records=122,
    ),
    PublicTraining(
        "FL4Health, InstanceLevelDpClient",
        "fl4health",
        "github.com/VectorInstitute/FL4Health at ce141b95d251",
        "fl4health/clients/instance_level_dp_client.py",
        _fl4health,
        _pictures(3, 32),
    ),
    PublicTraining(
        "FL4Health, InstanceLevelDpClient, one client in three rounds",
        "fl4health",
        "github.com/VectorInstitute/FL4Health at ce141b95d251",
        "fl4health/clients/instance_level_dp_client.py",
        partial(_fl4health, rounds=3),
        _pictures(3, 32),
    ),
)
