"""The commands that carry out many runs: `sweep` over a grid of settings, and `reproduce` for a paper."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fl_audit.atomic_files import write_text
from fl_audit.cli import options
from fl_audit.cli.interrupts import flags_of, printing_continuation
from fl_audit.errors import require
from fl_audit.experiments.papers.reproduction_names import item_names, require_known
from fl_audit.privacy.accounting_enums import TrainingCount
from fl_audit.released_model.star_methods import PARAMETRIC_CUT, cut_text
from fl_audit.runs.config_file import load_values
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.option_declarations import argument, option, switch
from fl_audit.runs.progress import runs_progress_bar
from fl_audit.runs.terminal import console as console_for
from fl_audit.runs.terminal import print_table
from fl_audit.runs.verbosity import is_quiet, printable
from fl_audit.value_checks import choice
from fl_audit.words import number_text

if TYPE_CHECKING:
    from fl_audit.experiments.papers.item_results import ItemResult
    from fl_audit.runs.cluster.ray_options import RayOptions
    from fl_audit.runs.sweeps.grid import Point
    from fl_audit.runs.sweeps.selection import SelectionRule
    from fl_audit.runs.sweeps.sweep import SweepResults


def sweep(
    config: Annotated[Path, argument("CONFIG.toml", "Configuration that every point starts from.")],
    over: Annotated[
        list[str] | None, option("SECTION.KEY=V,V,...", "A setting and its values; may be repeated.")
    ] = None,
    baseline_over: Annotated[
        list[str] | None,
        option(
            "SECTION.KEY=V,V,...", "Also without privacy: no clipping, no noise, over these values; may be repeated."
        ),
    ] = None,
    set_: options.SetOption = None,
    out: Annotated[Path | None, option("DIR", "Output directory.  [default: runs/sweep-NAME-TIME]")] = None,
    utility: Annotated[
        str | None, option("METRIC", "Utility of a model: a metric of the runs.  [default: their headline]")
    ] = None,
    private_selection: Annotated[
        bool,
        switch(
            "--private-selection",
            "Train a secret random number of points, each drawn from the grid, and publish the best alone, which "
            "spends less than all together.",
        ),
    ] = False,
    distribution: Annotated[
        str | None,
        option(
            "NAME",
            f"With --private-selection: distribution of the number, one of {', '.join(TrainingCount)}.  [default: "
            f"{TrainingCount.GEOMETRIC}]",
            among=TrainingCount,
        ),
    ] = None,
    mean_trainings: Annotated[
        int | None,
        option("N", "With --private-selection: mean of the number, at least 2.  [default: the points of the grid]"),
    ] = None,
    engine: options.EngineOption = Engine.RAY.value,
    ray_address: options.AddressOption = None,
    data_dir: options.DataDirOption = None,
) -> None:
    """Play every combination of some settings, and draw the landscape of privacy and utility.

    A point of the landscape is the run of one combination. With --engine ray many points run at the same time, with
    --engine local one after the other. With --private-selection no landscape is drawn.

    Points that are finished in --out are used again. The same command therefore continues an interrupted sweep, and a
    command with further values runs only the new points.
    """

    chosen = options.engine_for(engine, ray_address)
    # A mistake in the configuration is answered before what takes seconds to import.
    points = _all_points(config, over or [], baseline_over or [], set_ or [], data_dir)
    rule = _selection_rule(private_selection, distribution, mean_trainings, bool(baseline_over), len(points))
    run = points[0].config.run
    directory = out or Path("runs") / f"sweep-{config.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    title = f"Landscape of {config.stem}"

    from fl_audit.runs.sweeps.sweep import RUNS, SELECTION, run_sweep

    def way_on() -> list[str] | None:
        if not (directory / RUNS).is_dir() and not (directory / SELECTION).is_file():
            return None
        # A sweep stores no configuration of its own, and who typed a seed knows it: without it the command is another.
        repeated = (("--over", over), ("--baseline-over", baseline_over), ("--set", set_))
        words = [word for flag, texts in repeated for text in texts or [] for word in (flag, text)]
        where = engine if chosen is Engine.LOCAL else None
        flags = flags_of(out=directory, utility=utility, engine=where, ray_address=ray_address, data_dir=data_dir)
        chosen_rule = flags_of(distribution=distribution, mean_trainings=mean_trainings)
        selecting = [] if rule is None else ["--private-selection", *chosen_rule]
        return ["sweep", str(config), *words, *flags, *selecting]

    from fl_audit.runs.cluster.ray_options import RayOptions

    if rule is not None:
        with printing_continuation(way_on):
            _select(points, directory, rule, RayOptions.of(run, ray_address), utility, chosen, config.stem)
        return
    with printing_continuation(way_on):
        sweep_results = run_sweep(
            points, directory, RayOptions.of(run, ray_address), utility, runs_progress_bar, title, chosen
        )
    _show(sweep_results, directory, title)


def _selection_rule(
    is_private: bool, distribution: str | None, mean: int | None, has_baselines: bool, points: int
) -> "SelectionRule | None":
    """Return how the number of trainings is drawn; None without a private selection."""
    if not is_private:
        lacking = distribution is None and mean is None
        require(lacking, "--distribution and --mean-trainings without --private-selection: accepted are both with it")
        return None
    require(not has_baselines, "--baseline-over with --private-selection: accepted are private points alone")
    count = TrainingCount.GEOMETRIC if distribution is None else choice(TrainingCount, "--distribution", distribution)

    from fl_audit.runs.sweeps.selection import SelectionRule

    return SelectionRule(count, max(2, points) if mean is None else mean)


def _select(
    points: "tuple[Point, ...]",
    directory: Path,
    rule: "SelectionRule",
    ray: "RayOptions",
    metric: str | None,
    engine: Engine,
    name: str,
) -> None:
    """Carry out a private selection, and print and write what may be published of it."""
    from fl_audit.runs.sweeps.selection import (
        PUBLISH,
        SELECTED,
        ledger_command,
        outcome_text,
        page_path,
        run_selection,
        selection_page,
        selection_rows,
    )

    selection = run_selection(points, directory, rule, ray, metric, runs_progress_bar, engine)
    title = f"Private selection of {name}"
    write_text(page_path(directory), selection_page(selection, title))
    notes = (*([f"warning: {selection.warning}"] if selection.warning else []), outcome_text(selection), PUBLISH)
    print_table(("what", "result"), selection_rows(selection), printable(title), notes=notes)
    print(f"line of the ledger: {ledger_command(selection)}")
    print(f"may be published: {directory / SELECTED}")


def _all_points(
    config: Path, over: list[str], baseline_over: list[str], overrides: list[str], data_dir: Path | None
) -> "tuple[Point, ...]":

    values = load_values(config, overrides, str(data_dir) if data_dir else None)

    from fl_audit.runs.sweeps.grid import baselines, grid, parse_axis

    points = grid(values, [parse_axis(text) for text in over])
    return points + baselines(values, [parse_axis(text) for text in baseline_over]) if baseline_over else points


def _show(results: "SweepResults", directory: Path, title: str) -> None:
    from fl_audit.runs.sweeps.page import (
        STAR_CAUTION,
        better_than_no_privacy_texts,
        chance_text,
        claimed_text,
        claims_text,
        fit_text,
        selection_texts,
        sweep_page,
    )

    write_text(directory / "sweep.html", sweep_page(results, title))
    rows = []
    for row in results.points.sort_values("epsilon_star").itertuples():
        claimed = [claimed_text(value) for value in (row.epsilon, row.gdp_mu)]
        mark = "*" if row.on_frontier else ""
        rows.append((str(row.settings), *claimed, number_text(row.utility), number_text(row.epsilon_star), mark))
    columns = ("setting", "claimed epsilon", "claimed mu", results.utility, "Epsilon*", "frontier")
    counting = f"Epsilon*: {cut_text(PARAMETRIC_CUT)}"
    notes = (
        *selection_texts(results),
        *better_than_no_privacy_texts(results),
        *claims_text(results),
        counting,
        fit_text(results),
        f"{STAR_CAUTION}{chance_text(results)}",
    )
    print_table(columns, rows, printable(title), notes=notes)
    print(f"models: {directory / 'models.parquet'}")
    print(f"page: {directory / 'sweep.html'}")


def reproduce(
    name: Annotated[str, argument("NAME", "A paper, or an item such as negoescu2023-fig4.", among=item_names())],
    data_dir: options.DataDirOption = None,
    out: Annotated[Path | None, option("DIR", "Output directory.  [default: runs/reproduce-NAME]")] = None,
    quick: Annotated[
        bool, switch("--quick", "Few trials, small samples: minutes instead of hours, wide intervals.")
    ] = False,
    engine: Annotated[
        str | None, option("ray|local", "Where clients run.  [default: here, a run on every core]", among=Engine)
    ] = None,
    ray_address: options.AddressOption = None,
) -> None:
    """Compute a table or figure of a paper again, beside what is printed or what theory says.

    Finished runs in --out are used again, and interrupted runs are continued. NAME is a paper, or a paper with one of
    its items, such as bernau2019-fig3. Bernau et al. 2019: bernau2019 with table2, table3, fig3 to fig7, or claims.
    Bernau et al. 2021: bernau2021 with table2, table3, fig1 to fig9, or claims. Negoescu et al. 2023: negoescu2023 with
    fig1 to fig6, or claims.
    """

    require_known(name)
    chosen = None if engine is None else choice(Engine, "--engine", engine)

    from fl_audit.experiments.papers.papers import ComputeExtent, ReproductionOptions

    extent = ComputeExtent.QUICK if quick else ComputeExtent.FULL
    directory = out or Path("runs") / f"reproduce-{name}{'-quick' if quick else ''}"
    console = console_for(stderr=True)
    context = ReproductionOptions(
        directory,
        data_dir,
        extent,
        chosen,
        runs_progress_bar,
        lambda line: None if is_quiet() else console.print(line, highlight=False),
        ray_address,
    )

    def way_on() -> list[str] | None:
        flags = flags_of(out=directory, data_dir=data_dir, engine=engine, ray_address=ray_address)
        return ["reproduce", name, *(["--quick"] if quick else []), *flags] if directory.is_dir() else None

    from fl_audit.experiments.papers.reproduce import reproduce

    with printing_continuation(way_on):
        paper, paper_results, page = reproduce(name, context)
    rows = [(paper.name_of(item), *map(str, _counts(result))) for item, result in paper_results.results]
    print_table(("item", "rows", "printed", "of these differ", "theory", "of these missed"), rows)
    for item, result in paper_results.results:
        if result.finding:
            print(f"{paper.name_of(item)}: {result.finding}.")
    for line in paper_results.left_out:
        print(line)
    print(f"page: {page}")


def _counts(result: "ItemResult") -> tuple[int, ...]:
    """Return five counts of a result for the command's table, one for each column of numbers.

    They count the rows; the numbers that the paper prints, and those of them that differ from ours; the numbers that
    theory predicts, and those of them that our results miss.
    """
    computed, differing = result.computed
    printed = (
        result.comparable_rows("published") + computed,
        len(result.outside_sentences("published")) + len(differing),
    )
    return len(result.frame), *printed, result.comparable_rows("theory"), len(result.outside_sentences("theory"))
