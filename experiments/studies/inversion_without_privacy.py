"""Study of images reconstructed by gradient inversion without privacy, next to those of the attack authors' code."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fl_audit.array_types import Floats, Floats32
from fl_audit.audits.reconstruction.image_attacks import (
    DescentSettings,
    PopulationImages,
    drawn_pictures,
    images_by_descent,
)
from fl_audit.audits.reconstruction.reconstruction_metrics import (
    ReconstructionQuality,
    image_similarity,
    in_order_of_true_images,
)
from fl_audit.audits.reconstruction.update_function import UpdateFunction
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.experiments.studies.study_runs import arrays_of_script
from fl_audit.learning.local_training import LocalSchedule, local_batches
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.randomness import Purpose, generator

OTHERS = 999
"""Number of candidate images besides each true one, and of images that the attacker has."""

_REFERENCE_SCRIPT = """
import sys

import inversefed
import numpy as np
import torch

from fl_audit.experiments.studies.study_runs import arrays_of_script
from fl_audit.learning.models import ModelSpec, build_model

torch.set_num_threads(1)
torch.manual_seed(0)
told = np.load(sys.argv[1])
shape = tuple(int(one) for one in told["shape"])
model = build_model(ModelSpec(str(told["model"]), shape, int(told["classes"])))
parameters = list(model.parameters())
sizes = [one.numel() for one in parameters]
with torch.no_grad():
    for one, flat in zip(parameters, torch.from_numpy(told["start"]).split(sizes)):
        one.copy_(flat.reshape(one.shape))
config = {
    "signed": True, "boxed": True, "cost_fn": "sim", "indices": "def", "weights": "equal", "lr": 0.1, "optim": "adam",
    "restarts": 1, "max_iterations": int(told["iterations"]), "total_variation": float(told["smoothness"]),
    "init": "randn", "filter": "none", "lr_decay": True, "scoring_choice": "loss",
}
drawn = []
for seen, label in zip(told["seen"], told["labels"]):
    gradient = [flat.reshape(one.shape) for one, flat in zip(parameters, torch.from_numpy(seen).split(sizes))]
    attack = inversefed.GradientReconstructor(model, (torch.zeros(()), torch.ones(())), dict(config))
    drawn.append(attack.reconstruct(gradient, torch.tensor([int(label)]), img_shape=shape)[0].numpy())
np.savez(sys.argv[2], drawn=np.stack(drawn))
"""
"""The authors' code on the same gradients, at the same number of steps: signed Adam, cosine, total variation, box."""


class InvertedUpdateSetting(NamedTuple):
    """A kind of update to invert: data set, model and batch size; updates are neither clipped nor noisy."""

    data: str  # name of a data set of pictures
    model: str  # name of a model, at its first weights
    batch: int = 1  # pictures behind an update
    is_local: bool = False  # whether it is what two epochs of local training move, in place of one gradient

    def __str__(self) -> str:
        shared = "two epochs of local training" if self.is_local else "one gradient"
        return f"{self.data}, {self.model}, {shared} of {self.batch}"


_FACES = "fl_audit.experiments.papers.bernau2019.labeled_faces:lfw"
SETTINGS = tuple(
    InvertedUpdateSetting(data, model, batch, is_local)
    for data, model in (("mnist", "dense-128"), ("mnist", "mnist-cnn"), (_FACES, "dense-128"))
    for batch, is_local in ((1, False), (4, False), (16, False), (4, True))
)
COMPARED = (InvertedUpdateSetting("mnist", "mnist-cnn"), InvertedUpdateSetting("mnist", "dense-128"))
"""Settings that are also compared with the reference."""


class _InversionProblem(NamedTuple):
    shared: UpdateFunction
    true: torch.Tensor  # (owners, batch, *shape)
    labels: torch.Tensor  # (owners, batch)
    seen: torch.Tensor  # (owners, parameters)
    candidates: Floats32  # (OTHERS, *shape)
    others: PopulationImages
    classes: int


def _scene(setting: InvertedUpdateSetting, directory: str | None, pictures: int) -> _InversionProblem:
    pool = load_source(DataSpec(setting.data, directory)).pool
    owners = pictures // setting.batch
    order = generator(0, Purpose.DRAWING).permutation(len(pool))
    true = pool.take(order[: owners * setting.batch])
    beside, had = (pool.take(order[-(index + 1) * OTHERS : len(pool) - index * OTHERS]) for index in (0, 1))
    # Grey pictures have one channel, as the model reads them.
    shape = true.shape if len(true.shape) == 3 else (1, *true.shape)
    spec = ModelSpec(setting.model, shape, pool.classes)
    model = StackedModel.of(spec)
    start = initial_models(spec, 0, [0])[0].detach()
    shared = UpdateFunction(model, start)
    if setting.is_local:
        schedule = LocalSchedule(0.01, max(1, setting.batch // 2), epochs=2)
        batches = local_batches(setting.batch, schedule, generator(0, Purpose.LOCAL_ORDER))
        shared = UpdateFunction(model, start, schedule=schedule, batches=batches)
    features = torch.from_numpy(true.features.copy()).reshape(owners, setting.batch, *shape)
    labels = torch.from_numpy(true.labels).reshape(owners, setting.batch)
    images = PopulationImages(torch.from_numpy(had.features.reshape(-1, *shape)), torch.from_numpy(had.labels))
    tensor = shared.of_many(features, labels)
    return _InversionProblem(
        shared, features, labels, tensor, beside.features.reshape(-1, *shape), images, pool.classes
    )


def quality(
    setting: InvertedUpdateSetting, directory: str | None, pictures: int, descent: DescentSettings
) -> ReconstructionQuality:
    """Return how similar the attack's reconstructions are to the true images, over several updates of one kind."""
    scene = _scene(setting, directory, pictures)
    draw = generator(0, Purpose.DRAWING, round=1)
    tensor = drawn_pictures(scene.shared, scene.seen, setting.batch, 0.0, scene.others, draw, descent)
    return _likeness(scene, tensor.numpy())


def _likeness(problem: _InversionProblem, images: Floats32) -> ReconstructionQuality:
    true = problem.true.numpy()
    ordered = in_order_of_true_images(true, images)
    return image_similarity(true.reshape(-1, *true.shape[2:]), ordered.reshape(-1, *true.shape[2:]), problem.candidates)


def beside_reference(
    setting: InvertedUpdateSetting,
    directory: str | None,
    pictures: int,
    descent: DescentSettings,
    interpreter: str,
    reference: Path,
) -> tuple[Floats, Floats]:
    """Return the PSNR in dB of each reconstructed image, shape (pictures,), by our attack and by the authors' code."""
    scene = _scene(setting, directory, pictures)
    draw = generator(0, Purpose.DRAWING, round=1)
    ours = images_by_descent(scene.shared, scene.seen, scene.labels, draw, descent).numpy()
    measures = {
        "seen": scene.seen.numpy(),
        "labels": scene.labels[:, 0].numpy(),
        "start": scene.shared.start.numpy(),
        "shape": scene.true.shape[2:],
        "classes": scene.classes,
        "model": setting.model,
        "iterations": descent.iterations,
        "smoothness": descent.smoothness,
    }
    path = os.pathsep.join(map(str, (Path(__file__).resolve().parents[2], reference)))
    written = arrays_of_script(
        interpreter, _REFERENCE_SCRIPT, measures, "the reference", os.environ | {"PYTHONPATH": path}
    )
    theirs = np.asarray(written["drawn"], dtype=np.float32)
    return _likeness(scene, ours).psnr, _likeness(scene, theirs).psnr
