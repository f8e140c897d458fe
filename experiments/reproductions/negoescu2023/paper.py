"""The figures of Negoescu et al. 2023."""

from collections.abc import Sequence
from dataclasses import replace

from experiments.reproductions.negoescu2023.estimators import figure_4, figure_5
from experiments.reproductions.negoescu2023.fits import figure_6
from experiments.reproductions.negoescu2023.landscapes import figure_1, figure_2
from experiments.reproductions.negoescu2023.ratios import figure_3
from experiments.reproductions.papers import Context, Extent, MadeItems, Paper, SingleItem, make_each

QUICK_WARNING = "Quick form: small samples and few repetitions. It shows that everything works, and proves little."


def make(items: Sequence[SingleItem], context: Context) -> MadeItems:
    """Make items, each on its own, and add a warning to the quick form.

    Parameters
    ----------
    items, context
        What is asked for, and where and how it is played.
    """
    warnings = (QUICK_WARNING,) if context.extent is Extent.QUICK else ()
    return replace(make_each(items, context), warnings=warnings)


PAPER = Paper(
    "negoescu2023",
    "Negoescu et al. 2023",
    "D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24.",
    (
        SingleItem("fig1", "Figure 1. Privacy and utility of a many-class task", figure_1),
        SingleItem("fig2", "Figure 2. Privacy and utility of Adult", figure_2),
        SingleItem("fig3", "Figure 3. Log ratios of Epsilon* over the FPR", figure_3),
        SingleItem("fig4", "Figure 4. Estimators where the laws of losses are identical", figure_4),
        SingleItem("fig5", "Figure 5. Estimators where the laws of losses move apart", figure_5),
        SingleItem("fig6", "Figure 6. Fits of normal mixtures to training losses", figure_6),
    ),
    make,
)
