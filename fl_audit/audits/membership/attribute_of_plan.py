"""The attribute (a table column) whose values the attacks of a run guess."""

from fl_audit.audits.membership.attacks.registry import attacks_named
from fl_audit.data.attribute_to_infer import AttributeToInfer, choose_attribute
from fl_audit.data.catalogue import load_source
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.run_plan import RunPlan


def attribute_of(plan: RunPlan, federation: LoadedFederation) -> AttributeToInfer | None:
    """Return the attribute to guess, with the frequency of each value; None if no configured attack guesses one.

    `federation`: The frequencies are counted in its population sample, on which no model is trained.
    """
    audit = plan.config.audit
    if not any(attack.guesses_values for attack in attacks_named(audit.attacks)):
        return None
    source = load_source(federation.public.data)
    return choose_attribute(source, federation.population_records, str(audit.attribute))
