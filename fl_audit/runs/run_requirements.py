"""Requirements of a run on its data, its model and the rounding of its releases, which are checked before it begins."""

from math import sqrt

import numpy as np

from fl_audit.audits.audit import ReleaseQueryKind
from fl_audit.audits.registry import audit_of
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.local_dpsgd import private_steps, rounding_of_update
from fl_audit.federation.observed_rounds import refuse_blurred, refuse_blurred_updates
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.optimizers import inversion_error
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import InsiderView
from fl_audit.runs.image_reconstruction import require_drawable


def require_runnable(plan: RunPlan) -> None:
    """Check that a planned run can begin with its data, model and settings.

    Raises `InputError` if the data cannot be read, the model cannot be evaluated, or images cannot be reconstructed as
    configured.
    """
    federation = load_federation(plan.federation)
    audit = plan.config.audit
    audit_of(plan.federation).require_evaluable(federation, audit.epsilon_star, audit.membership)
    require_drawable(plan)
    _require_seen_releases(federation)


def _require_seen_releases(federation: LoadedFederation) -> None:
    """Raise `InputError` if the rounding of 32-bit models hides releases even where the noise is largest.

    The insider, who knows the noise of every round, refuses by the same rule.
    """
    public = federation.public
    query = audit_of(public).query(public)
    if query is ReleaseQueryKind.NOTHING or not public.mechanism.adds_noise:
        return
    template = federation.model.template
    device = federation.training.features.device
    models = ParameterLayout.of(template).flatten(dict(template.named_parameters())).unsqueeze(0).to(device)
    smallest, largest = _noise_scales(federation)
    if query is ReleaseQueryKind.LOG_ODDS and public.mechanism.noise.origin is NoiseOrigin.TRAINING:
        refuse_blurred_updates(rounding_of_update(models).numpy() / smallest)
    if public.view is InsiderView.MODEL and public.mechanism.knows_llr:
        error = inversion_error(public.mechanism.optimizer, models, public.mechanism.denominator, public.rounds)
        refuse_blurred(error.numpy() / largest)


def _noise_scales(federation: LoadedFederation) -> tuple[float, float]:
    """Return the smallest and largest standard deviation of the noise in a round."""
    mechanism = federation.public.mechanism
    if mechanism.noise.origin is NoiseOrigin.TRAINING:
        # A server adds none: what the steps of the clients add up to, of the fewest and of the most of them.
        sizes = [len(shard) for shard in federation.shards]
        steps = private_steps(mechanism)
        spread = [sqrt(steps.update_variance(records)) for records in sizes]
        return min(spread), sqrt(sum(deviation**2 for deviation in spread))
    smallest, largest = mechanism.server_scale(np.array([0.0, mechanism.global_sensitivity]))
    return float(smallest), float(largest)
