"""Pitfalls as edits of public trainings: one line each, at places that every training with Opacus has."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fl_audit.app_audits.local_training.pitfalls import Pitfall
from tests.validation.public_trainings.copies import Edit


class Place(StrEnum):
    """A place in a training; a line is put there, or the text is replaced."""

    BEFORE = "before the engine is made"
    ARGUMENT = "the first argument of the engine"
    AFTER = "after the engine made its objects"
    BATCH = "after a batch is taken"
    GRADIENTS = "before a step"
    STEPPED = "after a step"
    EPSILON = "where epsilon is asked for"


@dataclass(frozen=True)
class Site:
    """A place in a copy."""

    file: str  # the end of its path
    at: str  # a text that stands there once
    indent: int = 0  # of the line
    is_before: bool = False  # whether the line goes before the text; elsewhere it goes after it


@dataclass(frozen=True)
class Sites:
    """All places of a training, and the names of its objects, in the file of the engine and in that of the loop."""

    places: Mapping[Place, Site]
    engine_names: Mapping[str, str]
    loop_names: Mapping[str, str]

    def edits(self, lines: Mapping[Place, str]) -> tuple[Edit, ...]:
        """Return the edits that put lines in places, with the module of the faults.

        The line of each place has names in braces.
        """
        edit_list = []
        for location, line in lines.items():
            site = self.places[location]
            is_outer = location in (Place.BEFORE, Place.ARGUMENT, Place.AFTER)
            filled_line = line.format(**(self.engine_names if is_outer else self.loop_names))
            if location is Place.ARGUMENT:
                by = f"{filled_line}, {site.at}"
            elif location is Place.EPSILON:
                by = filled_line
            else:
                put = f"{' ' * site.indent}{_IMPORTED}; {filled_line}\n"
                by = put + site.at if site.is_before else site.at + put
            edit_list.append(Edit(site.at, by, site.file))
        return tuple(edit_list)


_IMPORTED = "from tests.validation.public_trainings import plants"


def _kind(name: str) -> dict[Place, str]:
    return {Place.AFTER: f"{{optimizer}} = plants.rebuilt({{optimizer}}, '{name}')"}


PLANTED: dict[Pitfall, dict[Place, str]] = {
    Pitfall.EARLY_EPSILON: {
        Place.AFTER: "{loader} = plants.asking_early({loader}, {engine})",
        Place.EPSILON: "{engine}.early",
    },
    Pitfall.LARGE_DELTA: {Place.EPSILON: "{engine}.get_epsilon(delta=0.05)"},
    Pitfall.UNCOUNTED_STEPS: {Place.AFTER: "plants.counting_some({optimizer})"},
    Pitfall.UNTAKEN_STEPS: {Place.AFTER: "{engine}.accountant.step(noise_multiplier=1.0, sample_rate=0.2)"},
    Pitfall.WRONG_RATE: {
        Place.AFTER: "{optimizer}.attach_step_hook({engine}.accountant.get_optimizer_hook_fn(sample_rate=0.02))"
    },
    Pitfall.WRONG_NOISE_COUNTED: {
        Place.AFTER: "{optimizer}.attach_step_hook("
        "lambda _: {engine}.accountant.step(noise_multiplier=3.0, sample_rate=0.2))"
    },
    Pitfall.NO_POISSON: {Place.ARGUMENT: "poisson_sampling=False"},
    Pitfall.PARTIAL_BATCH: {Place.ARGUMENT: "poisson_sampling=False"},
    Pitfall.OTHER_LOADER: {Place.AFTER: "{loader} = plants.shuffled({loader})"},
    Pitfall.FIXED_SAMPLE: {Place.AFTER: "{loader}.batch_sampler.generator = torch.Generator().manual_seed(7)"},
    Pitfall.REPEATED_BATCH: {Place.AFTER: "{loader} = plants.twice({loader})"},
    Pitfall.ACCUMULATION: {Place.AFTER: "{loader} = plants.accumulating({loader}, {optimizer})"},
    Pitfall.CUT_BATCH: {Place.BATCH: "{inputs}, {labels} = {inputs}[:10], {labels}[:10]"},
    Pitfall.BATCH_CLIPPING: {Place.GRADIENTS: "plants.clipped_as_one({optimizer})"},
    Pitfall.COUPLED: {Place.BEFORE: "plants.coupled({model})"},
    Pitfall.BUFFERS: {Place.BEFORE: "plants.remembering({model})"},
    Pitfall.OVER_NORM: _kind("wide"),
    Pitfall.LAYER_CLIPPING: _kind("layers"),
    Pitfall.NO_NOISE: _kind("silent"),
    Pitfall.SMALL_NOISE: _kind("quiet"),
    Pitfall.NOISE_DISTRIBUTION: _kind("uniform"),
    Pitfall.REPEATED_NOISE: _kind("same"),
    Pitfall.SEEDED_NOISE: {Place.AFTER: "torch.manual_seed(42)"},
    Pitfall.TRAINED_BEFORE: {Place.BEFORE: "plants.trained_plainly({model}, {plain})"},
    Pitfall.UNWRAPPED: {Place.GRADIENTS: "{optimizer}.original_optimizer.step()"},
    Pitfall.OUTSIDE_OPTIMIZER: {Place.GRADIENTS: "plants.stepped_outside({model})"},
    Pitfall.MOVED_OUTSIDE: {Place.STEPPED: "plants.moved({model}, {inputs})"},
    Pitfall.FROZEN_MOVED: {Place.BEFORE: "plants.frozen({model})", Place.STEPPED: "plants.moved({model}, {inputs})"},
    Pitfall.PRIVATE_RATE: {Place.STEPPED: "plants.slowed({optimizer}, {model}, {inputs}, {labels})"},
}
"""The lines of each pitfall. Three more need none: a size that shows, a claim, and an engine that is made anew."""

_LOOP = "task.py"
_CLIENT = "client_app.py"
_MNIST = "mnist.py"
_ENGINE_NOISE = "noise_multiplier=noise_multiplier,\n        max_grad_norm=max_grad_norm,\n    )\n"
SITES = {
    "Opacus, mnist.py": Sites(
        {
            Place.BEFORE: Site(_MNIST, "            privacy_engine = PrivacyEngine(secure_mode=", 12, True),
            Place.ARGUMENT: Site(_MNIST, "noise_multiplier=args.sigma"),
            Place.AFTER: Site(_MNIST, "        for epoch in range(1, args.epochs + 1):\n", 8, True),
            Place.BATCH: Site(_MNIST, "        optimizer.zero_grad()\n", 8, True),
            Place.GRADIENTS: Site(_MNIST, "        optimizer.step()\n", 8, True),
            Place.STEPPED: Site(_MNIST, "        optimizer.step()\n", 8),
            Place.EPSILON: Site(_MNIST, "privacy_engine.accountant.get_epsilon(delta=args.delta)"),
        },
        {
            "model": "model",
            "optimizer": "optimizer",
            "loader": "train_loader",
            "engine": "privacy_engine",
            "plain": "train_loader",
        },
        {"model": "model", "optimizer": "optimizer", "engine": "privacy_engine", "inputs": "data", "labels": "target"},
    ),
    "Flower, examples/opacus": Sites(
        {
            Place.BEFORE: Site(_CLIENT, "    privacy_engine = PrivacyEngine(secure_mode=False)\n", 4, True),
            Place.ARGUMENT: Site(_CLIENT, _ENGINE_NOISE),
            Place.AFTER: Site(_CLIENT, "    epsilon = train(\n", 4, True),
            Place.BATCH: Site(_LOOP, "            optimizer.zero_grad()\n", 12, True),
            Place.GRADIENTS: Site(_LOOP, "            optimizer.step()\n", 12, True),
            Place.STEPPED: Site(_LOOP, "            optimizer.step()\n", 12),
            Place.EPSILON: Site(_LOOP, "privacy_engine.get_epsilon(delta=target_delta)"),
        },
        {
            "model": "model",
            "optimizer": "optimizer",
            "loader": "private_train_loader",
            "engine": "privacy_engine",
            "plain": "train_loader",
        },
        {"model": "net", "optimizer": "optimizer", "engine": "privacy_engine", "inputs": "images", "labels": "labels"},
    ),
}
"""The places of the two trainings into which pitfalls are planted."""
