"""The command `gate`, which holds the results of audits against a site's policy."""

from pathlib import Path
from typing import Annotated

import typer

from fl_audit.cli.options import JsonOption, print_json
from fl_audit.cli.sign import require_library
from fl_audit.runs.exit_statuses import VIOLATED
from fl_audit.runs.option_declarations import argument
from fl_audit.words import plural


def gate(
    policy: Annotated[Path, argument("POLICY.toml", "The site's rules: its largest epsilon, who has to sign.")],
    results: Annotated[list[Path], argument("RESULT...", "Directories of audits, with their signed statements.")],
    as_json: JsonOption = False,
) -> None:
    """Hold the results of audits, and the site's ledger, against the site's policy; status 4 if a rule is not met.

    The command prints one line for each rule. A value that a result does not say is "not known", and fails unless the
    policy allows it.
    """
    require_library()

    from fl_audit.runs.policy_judgement import judge_ledger, judge_result
    from fl_audit.runs.site_policy import answers_json, read_policy

    site_policy = read_policy(policy)
    answers = {str(directory): judge_result(site_policy, directory) for directory in results}
    ledger = judge_ledger(site_policy, policy.parent)
    if ledger:
        answers["ledger"] = ledger
    failed = [answer for some in answers.values() for answer in some if not answer.is_passed]
    if as_json:
        print_json({"passes": not failed, "answers": answers_json(answers)})
    else:
        for name, some in answers.items():
            for answer in some:
                print(f"{name}: {answer.rule}: {answer.standing}: {answer.text}")
        print(f"fails: {plural(len(failed), 'rule')} not met" if failed else "passes: every rule is met")
    if failed:
        raise typer.Exit(VIOLATED)
