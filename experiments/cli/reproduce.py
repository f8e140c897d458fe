"""The command that computes a paper's tables and figures again."""

from pathlib import Path
from typing import Annotated

from experiments.cli.interrupts import goes_on_with, options
from experiments.cli.options import AddressOption, DataDirOption, argument, option, print_table, require_engine, switch
from experiments.names import Engine
from experiments.reproductions.names import item_names, require_known
from experiments.talk import is_quiet


def reproduce(
    name: Annotated[str, argument("NAME", "A paper, or an item such as negoescu2023-fig4.", among=item_names())],
    data_dir: DataDirOption = None,
    out: Annotated[Path | None, option("--out", "DIR", "Output directory.  [default: runs/reproduce-NAME]")] = None,
    quick: Annotated[
        bool, switch("--quick", "Few worlds, small samples: minutes instead of hours, wide intervals.")
    ] = False,
    engine: Annotated[
        str | None,
        option("--engine", "ray|local", "Where clients run.  [default: here, a run on every core]", among=Engine),
    ] = None,
    minutes: Annotated[
        float,
        option(
            "--minutes",
            None,
            "Bernau et al. 2019: minutes within which worlds are added where claims lack them.",
            min=1,
        ),
    ] = 65.0,
    ray_address: AddressOption = None,
) -> None:
    """Compute a table or figure of a paper again, beside what is printed or what theory says.

    Finished runs in --out are used, interrupted ones go on. Bernau et al. 2019: bernau2019 (all), or bernau2019- with
    table2, table3, fig3 to fig7, or claims. Bernau et al. 2021: bernau2021 (all), or bernau2021- with table2, table3,
    fig1 to fig9, or claims. Negoescu et al. 2023: negoescu2023 (all), or negoescu2023- with
    fig1 to fig6, or claims; its models are trained as points of a sweep, over Ray.
    """
    require_known(name)
    chosen = None if engine is None else require_engine(engine)
    from rich.console import Console

    from experiments.reproductions.papers import Context, Extent
    from experiments.reproductions.reproduce import reproduce as compute
    from experiments.runs.progress import runs_progress_bar

    extent = Extent.QUICK if quick else Extent.FULL
    directory = out or Path("runs") / f"reproduce-{name}{'-quick' if quick else ''}"
    console = Console(stderr=True)
    context = Context(
        directory, data_dir, extent, chosen, runs_progress_bar,
        lambda line: None if is_quiet() else console.print(line, highlight=False), minutes, ray_address,
    )  # fmt: skip

    def way_on() -> list[str] | None:
        flags = options(out=directory, data_dir=data_dir, engine=engine, minutes=minutes, ray_address=ray_address)
        return ["reproduce", name, *(["--quick"] if quick else []), *flags] if directory.is_dir() else None

    with goes_on_with(way_on):
        paper, made, page = compute(name, context)
    rows = []
    for item, result in made.results:
        computed, alike = result.computed
        printed = result.compared + computed
        counts = (printed, len(result.differences) + computed - alike)
        of_theory = (result.held_against_theory, len(result.theory_misses))
        rows.append((paper.name_of(item), *map(str, (len(result.frame), *counts, *of_theory))))
    print_table(("item", "rows", "printed", "of these differ", "theory", "of these missed"), rows)
    for line in made.left_out:
        print(line)
    print(f"page: {page}")
