"""The texts on scenarios of black-box trials: what each compares, and the usual fix of a leak that it finds.

The sentences stand in the templates `scenarios.md` and `update_provisos.md`.
"""

from functools import cache

from fl_audit.app_audits.black_box.scenario import Direction, OtherContributions, Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.claim_audit.trial_results import ScenarioTexts
from fl_audit.report.template_files import template_table, template_texts


@cache
def scenario_texts() -> dict[str, ScenarioTexts]:
    """Return the texts of every scenario, keyed by the scenario's name, from plain scenarios to special ones."""
    proviso = template_texts("update_provisos.md")["whole-app"]
    return {name: _texts_of(scenario, proviso) for name, scenario in BY_NAME.items()}


def _texts_of(scenario: Scenario, proviso: str) -> ScenarioTexts:
    words, fix = _words_and_fixes(scenario.stage.others)[scenario.plain_name]
    environment = scenario.stage.words
    # Whole updates can be clipped by the clients' own code. Those of few tensors are there to show what no code clips.
    has_proviso = scenario.is_beyond and scenario.present.direction in (Direction.FIRST, Direction.EVERY_TENSOR)
    return ScenarioTexts(f"{words}; {environment}" if environment else words, fix, proviso if has_proviso else "")


@cache
def _words_and_fixes(others: OtherContributions) -> dict[str, tuple[str, str]]:
    """Return the words and the fix of every plain scenario, keyed by its name, where other clients send `others`."""
    rows = template_table("scenarios.md", others=others.name)
    return {name: (words, fix) for name, words, fix in rows}
