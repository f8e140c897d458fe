"""Stored models of a run: their parameters, by the names of the model's state dictionary.

Batches of trials store each model as one row of numbers. `model.safetensors` holds the final model of trial 0 by name,
and so says how a row is divided.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from safetensors.torch import save_file
from torch import Tensor, nn

from fl_audit.array_files import open_tensors, read_tensors
from fl_audit.atomic_files import atomic_file
from fl_audit.errors import InputError, require
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.model_initialisation import model_template
from fl_audit.learning.stacked_layers import ParameterLayout

MOST_KEPT_SCALARS = 2**28
"""Most numbers in the final models, or in the releases, that a run keeps without being asked: a gigabyte."""
MODEL = "model.safetensors"
"""Name of the file in a run directory with the final model of trial 0, by the names of its state dictionary."""
MODELS = "models"
TRIALS = "trials"
"""Names of the tensors in files of final models: models (trials, parameters), and the numbers of their trials."""
_PARAMETERS = "parameters"  # metadata of MODEL: for each trained parameter, in order of a row, its names


def checkpoint_name(round_number: int) -> str:
    """Return the name of the tensor that holds the model after a round."""
    return f"round-{round_number}"


def write_model(plan: RunPlan, directory: Path) -> None:
    """Write the final model of trial 0 of a run to `model.safetensors`, from the models of its trial batches.

    The file holds the whole state dictionary of the module that the factory makes, frozen parameters and buffers
    included. Of the built-in `vgg16` it holds the head alone.
    """
    template = model_template(load_federation(plan.federation).spec)
    layout = ParameterLayout.of_trained(template)
    names = _names_of_parameters(template)
    tensors = _constants(template) | _by_name(_final_row(directory, 0), layout.shapes, names)
    with atomic_file(directory / MODEL) as file:
        # Tensors that share memory are refused: parameters with two names are written twice.
        save_file(
            {name: value.detach().clone().contiguous() for name, value in tensors.items()},
            file,
            metadata={"format": "pt", _PARAMETERS: json.dumps(names)},
        )


def read_model(directory: Path, trial: int = 0, round_number: int | None = None) -> dict[str, Tensor]:
    """Return the parameters of a stored model by name; raise `InputError` if the run did not store it.

    `round_number`: None for the model after the last round.
    """
    path = directory / MODEL
    with open_tensors(path) as file:
        names = [list(names) for names in json.loads(file.metadata()[_PARAMETERS])]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if trial == 0 and round_number is None:
        return tensors
    shapes = [tuple(tensors[first].shape) for first, *_ in names]
    row = _final_row(directory, trial) if round_number is None else _checkpoint_row(directory, trial, round_number)
    return tensors | _by_name(row, shapes, names)


def are_final_models_kept(trials: int, parameters: int) -> bool:
    """Return whether a run keeps the final models of all trials, and not that of trial 0 alone: up to a gigabyte."""
    return trials * parameters <= MOST_KEPT_SCALARS


def final_models(directory: Path) -> dict[int, Tensor]:
    """Return the stored final models of a run, each as one row of numbers, float32 (parameters,), keyed by trial.

    Where those of all trials take more than a gigabyte, there is that of trial 0 alone. `StackedModel` takes rows of
    this form.
    """
    models = dict[int, Tensor]()
    for path in sorted((directory / "public").glob("models-batch-*.safetensors")):
        tensors = read_tensors(path)
        models |= dict(zip(tensors[TRIALS].tolist(), tensors[MODELS], strict=True))
    require(len(models) > 0, f"{directory} holds no final models: accepted is the directory of a finished run")
    return dict(sorted(models.items()))


def _names_of_parameters(module: nn.Module) -> list[list[str]]:
    """Return for each trained parameter its names in the state dictionary: several if layers share it."""
    names_by_place = dict[int, list[str]]()
    for name, value in module.state_dict(keep_vars=True).items():
        names_by_place.setdefault(id(value), []).append(name)
    trained = ((name, value) for name, value in module.named_parameters() if value.requires_grad)
    return [names_by_place.get(id(value), [name]) for name, value in trained]


def _constants(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen parameters and the buffers in the state dictionary of a module."""
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor) and not value.requires_grad}


def _by_name(row: Tensor, shapes: Sequence[tuple[int, ...]], names: list[list[str]]) -> dict[str, Tensor]:
    """Divide a row into the parameters of a model, keyed by each of their names."""
    layout = ParameterLayout(tuple(first for first, *_ in names), tuple(shapes))
    values = layout.of_one(row)
    return {name: values[first] for first, *further_names in names for name in (first, *further_names)}


def _final_row(directory: Path, trial: int) -> Tensor:
    """Return the final model of a trial, float32 (parameters,)."""
    for path in sorted((directory / "public").glob("models-batch-*.safetensors")):
        with open_tensors(path) as file:  # a batch of large models is not read for one of them
            if trial in (trials := file.get_tensor(TRIALS).tolist()):
                row_index = trials.index(trial)
                return cast(Tensor, file.get_slice(MODELS)[row_index : row_index + 1][0])
    raise InputError(
        f"{directory} holds no final model of trial {trial}: accepted are trials of the run, and where their models "
        "take more than a gigabyte, trial 0 alone"
    )


def _checkpoint_row(directory: Path, trial: int, round_number: int) -> Tensor:
    """Return the model of trial 0 after a round, float32 (parameters,)."""
    require(trial == 0, f"trial is {trial} and round is {round_number}: accepted with a round is trial 0")
    tensors = dict[str, Tensor]()
    for path in (directory / "public").glob("checkpoints-batch-*.safetensors"):
        tensors |= read_tensors(path)
    name = checkpoint_name(round_number)
    stored = sorted(int(key.rpartition("-")[2]) for key in tensors)
    accepted = (
        f"accepted are {', '.join(map(str, stored))}" if stored else "set checkpoint-every in [run] to store some"
    )
    require(name in tensors, f"{directory} holds no model after round {round_number}: {accepted}")
    return tensors[name]
