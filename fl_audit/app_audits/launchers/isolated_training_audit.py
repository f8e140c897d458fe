"""Audit of a training function in a subprocess, in a copy of the working directory."""

from pathlib import Path
from typing import Any

from fl_audit.app_audits.audit_results import training_result
from fl_audit.app_audits.black_box.working_copy import in_working_copy, own_copy
from fl_audit.app_audits.launchers.isolated_process import Tell
from fl_audit.app_audits.launchers.training_audit_launcher import TrainingFunctionOptions
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.app_audits.page import write_training_page
from fl_audit.user_modules import import_function, search_last


def audit_users_training(request: dict[str, Any], _: Tell) -> dict[str, Any]:
    """Audit a training function in a copy of the working directory, and return the assessment as JSON values."""
    # A function of one's own is looked for where the user stands.
    search_last(Path.cwd())
    options = TrainingFunctionOptions(**request["options"])
    audit_options = TrainingAuditOptions(
        options.rounds, options.calls, options.claim_epsilon, options.claim_delta, options.records_per_user
    )
    with in_working_copy(own_copy()):
        function = import_function(options.function, "training function")
        model, dataset = (
            None if name is None else import_function(name, value)()
            for name, value in ((options.model, "--model"), (options.data, "--data"))
        )
        done = audit_training(function, options.function, model, dataset, audit_options, Path.cwd())
    result = training_result(done)
    if not request["out"]:
        return result.to_json()
    return result.to_json() | {"report": str(write_training_page(result, done, Path(request["out"])))}
