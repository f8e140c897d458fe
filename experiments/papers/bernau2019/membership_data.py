"""The data sets of Bernau et al. 2019 and what stands in for them, with the size of the experiment on each."""

from typing import Any

from fl_audit.experiments.papers.bernau2019.hyperparameters import (
    CLASSES,
    COLLAB,
    HYPERPARAMETERS,
    LFW,
    PURCHASES,
    SKEWED,
    TEXAS,
    VALUES,
)
from fl_audit.experiments.papers.bernau2019.small_faces_network import SMALL_FACES
from fl_audit.experiments.papers.papers import PaperDataset, Settings

_HERE = __name__.rpartition(".")[0]
_FEW = (0, 4)  # the levels of the quick form
# Levels of the full form; Skewed Purchases and LFW have all of them with the fewest classes only.
_ALL = (0, 1, 2, 3, 4)
_SMALL: Settings = {"data.test-records": 300, "data.population-records": 200, "levels": _FEW, "parts": 1}


def _size(records: int, epochs: int, central_epochs: int, trials: int = 24, **settings: Any) -> Settings:
    """Return the size of the experiment on a data set.

    Half of the `records` are members on average. `epochs` are those without central DP, at most. `trials` is the number
    of target models of a run, which are each other's shadow models. `levels` are indices of the played values among the
    five epsilon_i and the five z, and `parts` is the number of runs of each setting, whose trials are pooled.
    """
    usual: Settings = {"data.test-records": 1000, "data.population-records": 500, "levels": _ALL, "parts": 2}
    size = {"data.records": records, "audit.trials": trials, "epochs": epochs, "central-epochs": central_epochs}
    return {**size, **usual, **settings}


def _quick(records: int, epochs: int, central_epochs: int, **extra: Any) -> Settings:
    """Return the size of the quick form."""
    return {"data.records": records, "epochs": epochs, "central-epochs": central_epochs, **_SMALL, **extra}


def _skewed(classes: int) -> PaperDataset:
    settings = {
        "data.name": f"{_HERE}.skewed:skewed_purchases",
        "data.loader-parameters": {"classes": classes, "generated-records": 10_000},
        "model.name": "dense-128",
        "classes": classes,
        "values": VALUES[SKEWED],
        "hyperparameters": HYPERPARAMETERS[SKEWED, classes],
        **_size(800, 40, 40, levels=_ALL if classes == 10 else _FEW),
    }
    return PaperDataset(
        SKEWED, f"Skewed Purchases, {classes} classes", settings, _quick(240, 12, 12) if classes == 10 else None
    )


_LOCATION_FOR_PURCHASES = PaperDataset(
    PURCHASES,
    "Location-30 for Purchases",
    {
        "data.name": "location30",
        "model.name": "dense-128",
        "classes": 30,
        "values": 446,
        "hyperparameters": HYPERPARAMETERS[PURCHASES, 50],
        **_size(800, 48, 40),
    },
    _quick(240, 10, 10),
    stands_in=True,
)
_LOCATION_FOR_TEXAS = PaperDataset(
    TEXAS,
    "Location-30 for Texas",
    {
        "data.name": "location30",
        "model.name": "dense-512-128",
        "classes": 30,
        "values": 446,
        # The rate of Table 3, .01, is Texas's with 6,169 features.
        "hyperparameters": HYPERPARAMETERS[TEXAS, 100]._replace(rate=0.001, central_rate=0.001),
        **_size(800, 20, 24),
    },
    stands_in=True,
)
_COLLAB = PaperDataset(
    COLLAB,
    "COLLAB",
    {
        "data.name": f"{_HERE}.collab:collab",
        "data.loader-parameters": {"graph-nodes": 64},
        "model.name": f"{_HERE}.graph_convolutions:dgcnn",
        "classes": 3,
        "values": 64,
        "hyperparameters": HYPERPARAMETERS[COLLAB, 3]._replace(rate=0.003, central_rate=0.003),
        **_size(400, 12, 12, levels=(0, 2, 4)),
        "data.population-records": 200,
        "data.test-records": 400,
    },
    _quick(80, 2, 2, **{"data.test-records": 50, "data.population-records": 50, "levels": (4,)}),
)


def _faces(people: int) -> PaperDataset:
    hyperparameters = HYPERPARAMETERS[LFW, people]
    assert hyperparameters.members is not None
    settings = {
        "data.name": f"{_HERE}.labeled_faces:lfw",
        "data.loader-parameters": {"classes": people},
        "model.name": SMALL_FACES,
        "classes": people,
        "values": 64 * 64,
        # A small network from random weights needs larger steps than the last layer of a trained one.
        "hyperparameters": hyperparameters._replace(rate=0.003, central_rate=0.003),
        **_size(2 * hyperparameters.members, 16, 10, levels=_ALL if people == 20 else _FEW),
        "data.test-records": 500,
        "data.population-records": 300,
    }
    small = {"data.test-records": 200, "data.population-records": 100}
    return PaperDataset(
        LFW,
        f"LFW at 64 x 64, {people} people",
        settings,
        _quick(240, 5, 5, **small) if people == 20 else None,
        remark="The weights of VGG-16 that were learned from faces cannot be had: a small network stands in for it on "
        "LFW",
    )


def _published(study: str, name: str, model: str, classes: int) -> PaperDataset:
    """Return a version of Texas or Purchases with the sizes of the paper."""
    hyperparameters = HYPERPARAMETERS[study, classes]
    assert hyperparameters.members is not None, study
    settings = {
        "data.name": f"{_HERE}.purchases_and_texas_loaders:{name}",
        "data.loader-parameters": {"classes": classes},
        "model.name": model,
        "classes": classes,
        "values": VALUES[study],
        "hyperparameters": hyperparameters,
        **_size(2 * hyperparameters.members, hyperparameters.epochs, hyperparameters.central_epochs),
    }
    return PaperDataset(study, f"{study}, {classes} classes", settings)


CANDIDATES: dict[str, tuple[tuple[PaperDataset, ...], ...]] = {
    TEXAS: (
        tuple(_published(TEXAS, "texas", "dense-512-128", classes) for classes in CLASSES[TEXAS]),
        (_LOCATION_FOR_TEXAS,),
    ),
    PURCHASES: (
        tuple(_published(PURCHASES, "purchases", "dense-128", classes) for classes in CLASSES[PURCHASES]),
        (_LOCATION_FOR_PURCHASES,),
    ),
    COLLAB: ((_COLLAB,),),
    LFW: (tuple(map(_faces, (20, 50))),),  # the archive has no 100 people with 20 images
    SKEWED: (tuple(map(_skewed, CLASSES[SKEWED])),),
}
"""The data sets that may be used for each data set of the paper, best first, each in one or several versions."""
