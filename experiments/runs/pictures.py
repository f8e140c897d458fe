"""What an attacker could draw of the records of a run: at its own noise, and at more and less of it."""

import math
from collections.abc import Callable

import numpy as np

from experiments.runs.plan import AuditPlan
from fl_audit.adjacency import Unit
from fl_audit.adversaries.inversion.attack import MOST_OTHERS, OtherPictures, require_pictures
from fl_audit.adversaries.inversion.descent import USUAL, Descent
from fl_audit.adversaries.inversion.shared import SharedUpdate
from fl_audit.errors import require
from fl_audit.evidence.inversion import Drawn, Level, Victims, drawings
from fl_audit.game.game import Game, load_game
from fl_audit.game.initial_weights import starting_models
from fl_audit.mechanisms.contribution import RecordGradients
from fl_audit.privacy.gaussian import gdp_mu
from fl_audit.privacy.reconstruction import against_its_absence
from fl_audit.randomness import Purpose, generator

EPSILONS = (math.inf, 100.0, 10.0, 1.0)
"""What the run's own promise is shown beside."""
DRAWING_STEPS = USUAL.iterations
"""Only without noise is a picture sought; with it, it is worked out."""
_SECONDS = 120.0


def require_drawable(plan: AuditPlan) -> None:
    """Refuse a run that asks for pictures and has none, or no promise about single records.

    Raises
    ------
    InputError
        With the reason.
    """
    pictures, public = plan.config.audit.pictures, plan.public
    if pictures is None:
        return
    game, law = load_game(public), public.law
    features = game.training.features
    asked = f"pictures = {pictures}"
    of_records = law.unit is Unit.RECORD and isinstance(law.contribution, RecordGradients)
    require(of_records, f"{asked} with the promise of clients: accepted is strategy 'dp-fedsgd', about records")
    bounded = plan.guarantee is not None and plan.guarantee.reconstruction_bound(0.5) is not None
    require(bounded, f"{asked} and nothing is promised to every record: accepted are promises of global sensitivity")
    plain = public.randomiser is None and game.core is None
    require(plain, f"{asked} of records that are randomised, or read by a frozen core: accepted are neither")
    require(pictures <= len(features), f"{asked} of {len(features)} records: accepted are at most all of them")
    require_pictures(game.model.feature_shape, float(features.min()), float(features.max()))


def drawn_by(plan: AuditPlan, on_step: Callable[[int], None] = lambda done: None) -> Drawn:
    """Return what an attacker draws of the first records of D, from releases at the first weights of world 0.

    Parameters
    ----------
    plan
        Of which `require_drawable` holds.
    on_step
        Told one for every step of the search, of which there are at most `DRAWING_STEPS`.
    """
    game, audit = load_game(plan.public), plan.config.audit
    assert audit.pictures is not None, "pictures are asked for"
    start = starting_models(game, plan.config.model.initial, plan.config.model.seed, [0])[0].to(game.public.device)
    shared = SharedUpdate(game.model, start, game.public.law.clipping_norm)
    candidates = game.test.features[: MOST_OTHERS - 1]
    victims = Victims(game.training.features[: audit.pictures], game.training.labels[: audit.pictures], candidates)
    levels, own = _levels(plan, len(candidates) + 1)
    descent = Descent(seconds=_SECONDS if audit.pictures_time_limit is None else audit.pictures_time_limit)
    found = drawings(shared, victims, _others(game), levels, _draws(game), descent, lambda _: on_step(1))
    return Drawn(victims.pictures.cpu().numpy(), tuple(found), levels.index(own))


def _others(game: Game) -> OtherPictures:
    return OtherPictures(game.population.features[:MOST_OTHERS], game.population.labels[:MOST_OTHERS])


def _levels(plan: AuditPlan, candidates: int) -> tuple[list[Level], Level]:
    """Return the levels of noise from none to most, and the run's own."""
    promise = plan.guarantee
    assert promise is not None, "something is promised"
    alone = against_its_absence(promise.claim)
    halves = alone.noise_multiplier != promise.claim.noise_multiplier
    bound = promise.reconstruction_bound(1 / candidates)
    assert bound is not None, "every record is promised something"
    # Who does not know in which rounds the record took part adds them all up: a share of them holds it.
    own = Level(promise.epsilon, alone.full_participation_mu * alone.sampling_rate, bound)
    ladder = [
        Level.gaussian(epsilon, gdp_mu(epsilon, promise.delta) / (2 if halves else 1), candidates)
        if math.isfinite(epsilon)
        else Level(epsilon, math.inf, 1.0)
        for epsilon in EPSILONS
    ]
    return sorted([*ladder, own], key=lambda one: -one.mu), own


def _draws(game: Game) -> Callable[[int], np.random.Generator]:
    return lambda number: generator(game.public.data_seed, Purpose.DRAWING, round=number)
