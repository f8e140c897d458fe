"""The command `check`, which checks a run before it begins."""

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from rich.text import Text

from fl_audit.cli import options
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.option_declarations import switch
from fl_audit.runs.progress import at_work
from fl_audit.runs.run_start import loading_text
from fl_audit.runs.terminal import console
from fl_audit.user_modules import title_of_named
from fl_audit.value_checks import choice
from fl_audit.words import is_certainty, number_text, percent, plural

if TYPE_CHECKING:
    from fl_audit.audits.canaries.canary_detection_limit import CanaryDetectionLimit
    from fl_audit.runs.planned_run_check import PlannedRunCheckResult
    from fl_audit.runs.time_probe import TimeAndMemoryEstimate

_MEGABYTE = 2**20


def check(
    config: options.ConfigArgument,
    set_: options.SetOption = None,
    engine: options.EngineOption = Engine.RAY.value,
    data_dir: options.DataDirOption = None,
    no_probe: Annotated[
        bool,
        switch("--no-probe", "Play nothing: no estimate of time and memory, and a rough one of the needed trials."),
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show what a run would guarantee, detect and cost, before it is played; write nothing.

    The command loads the data, builds the model, accounts the guarantee, and says how small a breach of the guarantee
    the run could detect. It also trains a few rounds in this process, to estimate time and memory, and plays up to 200
    trials where these are quick, to say how many trials a verdict needs.
    """
    chosen = choice(Engine, "--engine", engine)

    settings = load_config(config, set_ or [], str(data_dir) if data_dir else None)

    with at_work("getting ready"):
        from fl_audit.runs.planned_run_check import check_json, check_plan
        from fl_audit.runs.planning import plan_run

    with at_work(loading_text(settings)):
        plan = plan_run(settings)
    with at_work("looking at the model" if no_probe else "playing a few rounds, to see how long they take"):
        check_result = check_plan(plan, not no_probe, chosen)
    if as_json:
        options.print_json(check_json(check_result))
        return

    table = Table(title=Text(str(config)), show_header=False)
    table.add_column("what", style="bold", no_wrap=True)
    table.add_column("finding")
    for row in _rows(check_result, chosen):
        table.add_row(*map(Text, row))
    console().print(table)


def _rows(check_result: "PlannedRunCheckResult", engine: Engine) -> Iterator[tuple[str, str]]:

    plan = check_result.plan
    federation = check_result.federation
    dataset = check_result.dataset
    features = int(dataset.pool.features[0].size)
    of = f"{plural(features, 'number')} in {plural(federation.classes, 'class', 'classes')}"
    records = f"{plural(plan.federation.records, 'record')} of {of}"
    tested = plural(len(federation.test.labels), "test record")
    apart = f"{tested}, {len(federation.population.labels):,} in the population sample"
    yield "Data", f"{plan.federation.data.title}, {records}; {apart}"
    shards = [len(shard) for shard in federation.shards]
    ends = f"the smallest holds {plural(min(shards), 'record')}, the largest {max(shards):,}"
    yield "Clients", f"{plan.federation.clients}, partition {plan.federation.partition}; {ends}"

    from fl_audit.data.column_encoding import column_lines

    if dataset.columns:
        yield "Read", dataset.description
        yield "Columns", "\n".join(column_lines(dataset.columns))
    for caution in check_result.cautions:
        yield "Look at", caution.text
    trials = plan.config.audit.trials
    batch = plan.trials_per_batch
    together = "" if trials == 1 else f", {'all' if batch >= trials else f'{batch:,}'} at a time"
    played = f"{plural(trials, 'trial')} of {plural(plan.federation.rounds, 'round')}{together}"
    yield (
        "Model",
        f"{title_of_named(plan.federation.model)}, {plural(federation.model.layout.size, 'parameter')}; {played}",
    )
    yield "Guarantee", _guarantee(check_result)
    yield "Limit of detection", _limit_of_detection(check_result)
    if check_result.limits is not None and plan.federation.mechanism.has_measurable_noise:
        yield "Trials needed", _trials_needed(check_result)
    size = check_result.footprint.total
    amount = f"{max(1, round(size / 10**6)):,} MB" if size < 10**9 else f"{size / 10**9:,.1f} GB"
    yield "Writes", f"about {amount}"
    if check_result.probe is not None:
        yield "Takes", _takes(check_result.probe, engine)


def _guarantee(check_result: "PlannedRunCheckResult") -> str:

    guarantee = check_result.plan.guarantee
    if guarantee is None:
        return "none, so there is nothing that the run could be held to"
    multiplier = guarantee.noise_multiplier

    from fl_audit.report.mechanism_messages import multiplied_text

    multiplied = multiplied_text(check_result.plan.federation.mechanism)
    noise = "" if multiplier is None else f"noise multiplier {number_text(multiplier)}, over {multiplied}; "

    from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values

    values = guarantee_values(guarantee.epsilon, guarantee.claims)
    beliefs = f"beliefs of at most {percent(guarantee.belief_bound)}"
    if is_certainty(guarantee.belief_bound):
        beliefs = "no limit on beliefs"
    return (
        f"{noise}{guarantee_line(values)}; {beliefs}, an advantage of at most "
        f"{percent(guarantee.advantage_bound_exact)}"
    )


def _limit_of_detection(check_result: "PlannedRunCheckResult") -> str:

    limits = check_result.limits
    mechanism = check_result.plan.federation.mechanism
    if check_result.canaries is not None:
        return _limit_of_canaries(check_result.canaries)
    if limits is None:
        return "nothing, for no insider holds a guarantee against what is released"
    trials = _trials_find(check_result.plan.config.audit.trials)
    if not mechanism.knows_llr:
        return (
            f"{trials} a breach only as far as their scores separate, and nobody knows how far they would under "
            "less noise: the verdict can be violated or inconclusive, and not consistent"
        )
    unit = mechanism.unit
    assert limits.noise_short is not None, "log-odds that are exact tell of the noise along the record"
    remark = "" if limits.noise_short_in_all is None else f" ({percent(limits.noise_short_in_all)} in all parameters)"
    signal = ""
    if check_result.signal is not None:
        times = number_text(check_result.signal.limit, 3)
        signal = f", or a {unit} that counts {times} times, if its contributions are as long as the clipping norm"

    from fl_audit.verdict.declared_tests import DETECTION_POWER

    return (
        f"with probability {DETECTION_POWER:g}, {trials} noise that is "
        f"{percent(limits.noise_short)} short along the {unit}{remark}, which makes an epsilon of "
        f"{number_text(limits.limit_of_detection, 3)}{signal}"
    )


def _limit_of_canaries(limit: "CanaryDetectionLimit") -> str:
    from fl_audit.verdict.declared_tests import DETECTION_POWER
    from fl_audit.verdict.noise_estimate import BREACH

    power = DETECTION_POWER
    breach = f"{BREACH:g}"
    showing = "the canaries show no breach"
    if isfinite(limit.limit_of_detection):
        showing = (
            f"with probability {power:g}, the canaries show an epsilon of {number_text(limit.limit_of_detection, 3)}"
        )

    from fl_audit.audits.canaries.canary_detection_limit import canaries_needed_text

    if limit.rounds_needed is None:
        return f"{showing}. {canaries_needed_text(limit)}"
    needed = plural(limit.rounds_needed, "round")
    return (
        f"{showing}. It takes {needed} until they show {breach} times the guarantee; before, a verdict is inconclusive"
    )


def _trials_needed(check_result: "PlannedRunCheckResult") -> str:
    """Return how many trials a conclusive verdict needs, and for what."""

    limits = check_result.limits
    needed = check_result.trials_for_conclusive_verdict
    assert limits is not None, "only limits of detection tell how many trials are needed"

    from fl_audit.verdict.noise_estimate import BREACH

    breach = f"{BREACH:g} times"
    if needed is None:
        return f"no number of trials finds a breach of {breach} the guarantee: the verdict can only be inconclusive"
    of_noise = f"a breach of {breach} the guarantee that lies in the size of the noise alone"
    if check_result.signal is None:
        return f"{needed:,}, to find {of_noise}"
    unit = check_result.plan.federation.mechanism.unit
    basis = "as a pilot run shows" if check_result.pilot is not None else "an estimate without a pilot run"
    return (
        f"about {needed:,} to find a {unit} that counts {breach} ({basis}), and {limits.trials_needed:,} to find "
        f"{of_noise}. With fewer trials the verdict may be inconclusive"
    )


def _trials_find(count: int) -> str:
    return f"{plural(count, 'trial')} {'finds' if count == 1 else 'find'}"


def _takes(estimate: "TimeAndMemoryEstimate", engine: Engine) -> str:
    where = f"in {plural(estimate.processes, 'process', 'processes')}"
    if engine is Engine.RAY:
        where += ", beside those of Ray itself"
    return (
        f"about {_duration(estimate.command_seconds)} for the whole command, its start and the report included, and "
        f"{estimate.memory / _MEGABYTE:,.0f} MB {where}: an estimate from "
        f"{plural(estimate.rounds, 'round')} of {plural(estimate.trials, 'trial')} on the local engine, "
        f"where the training takes {_duration(estimate.seconds)}. Attacks at the end are not in it."
    )


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
