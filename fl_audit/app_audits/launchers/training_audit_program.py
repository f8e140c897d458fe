"""Program that `fl-audit training` runs in a subprocess: it audits the function in a copy of the working directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_audit.app_audits.audit_results import training_result
from fl_audit.app_audits.black_box.working_copy import in_working_copy, own_copy
from fl_audit.app_audits.launchers.isolated_process import answer
from fl_audit.app_audits.launchers.training_audit_launcher import TrainingFunctionOptions
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.app_audits.page import write_training_page
from fl_audit.user_modules import import_function, search_last


def _audited(request: dict[str, Any], _: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Audit a training function in a copy of the working directory, and return the assessment as JSON values."""
    wishes = TrainingFunctionOptions(**request["wishes"])
    options = TrainingAuditOptions(
        wishes.rounds, wishes.calls, wishes.claim_epsilon, wishes.claim_delta, wishes.records_per_user
    )
    with in_working_copy(own_copy()):
        function = import_function(wishes.function, "training function")
        model, dataset = (
            None if name is None else import_function(name, value)()
            for name, value in ((wishes.model, "--model"), (wishes.data, "--data"))
        )
        done = audit_training(function, wishes.function, model, dataset, options, Path.cwd())
    result = training_result(done)
    if not request["out"]:
        return result.to_json()
    return result.to_json() | {"report": str(write_training_page(result, done, Path(request["out"])))}


if __name__ == "__main__":
    # A function of one's own is looked for where the user stands.
    search_last(Path.cwd())
    answer(_audited)
