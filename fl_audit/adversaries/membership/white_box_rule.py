"""What is chosen before a white-box attack: what the attack network is shown, its size, and how it learns."""

from dataclasses import dataclass
from enum import StrEnum

from fl_audit.errors import require


class WhiteBoxPart(StrEnum):
    """What the attack network is shown of a target.

    GRADIENT: of the loss in weight and bias of the last dense layer. ACTIVATIONS: of the last hidden layer. OUTPUT:
    log-probabilities of all classes. LOSS: the cross-entropy, as it is and as the log-odds of the label that it stands
    for. LABEL: the class, one-hot.
    """

    GRADIENT = "gradient"
    ACTIVATIONS = "activations"
    OUTPUT = "output"
    LOSS = "loss"
    LABEL = "label"


AUTHORS_PARTS = frozenset({WhiteBoxPart.GRADIENT, WhiteBoxPart.OUTPUT, WhiteBoxPart.LOSS, WhiteBoxPart.LABEL})
"""What the code of Bernau et al. 2019 shows it."""


@dataclass(frozen=True)
class WhiteBoxRule:
    """What is chosen before the attack."""

    # What the network is shown, one part or more. Each has a branch of two layers.
    parts: frozenset[WhiteBoxPart] = AUTHORS_PARTS
    # How many linear maps of a class's row of the gradient are learned, the same for all classes, 1 or more. With as
    # many as the row has entries the branch is a dense layer on the whole gradient.
    filters: int = 8
    branch: tuple[int, int] = (32, 16)  # widths of the two layers of a branch
    trunk: tuple[int, ...] = (32,)  # widths of the hidden layers that all branches lead to
    steps: int = 200  # steps of Adam, 1 or more; each sees all learning examples
    # Learning rate, above 0, of layers with up to 16 inputs; wider ones learn at rate x 16 / inputs. Adam moves all
    # weights alike, and a branch of a thousand inputs would otherwise drown that of the loss.
    rate: float = 0.01
    decay: float = 0.01  # weight decay (AdamW), 0 or more
    # Share of a branch's inputs that is left out in a step, from 0 to below 1; the loss's branch keeps all.
    dropout: float = 0.8
    seed: int = 0  # of initial weights and dropout

    def __post_init__(self) -> None:
        require(len(self.parts) > 0, "no parts are shown to the attack network: accepted is one or more")
        for part in self.parts:
            accepted = f"accepted are {', '.join(WhiteBoxPart)}"
            require(part in set(WhiteBoxPart), f"part {part!r} is unknown: {accepted}")
        whole = {"filters": self.filters, "steps": self.steps, "smallest width": min(self.branch + self.trunk)}
        for name, value in whole.items():
            require(value >= 1, f"{name} is {value}: accepted are whole numbers from 1")
        require(self.rate > 0, f"rate is {self.rate}: accepted are numbers above 0")
        require(self.decay >= 0, f"decay is {self.decay}: accepted are numbers from 0")
        require(0 <= self.dropout < 1, f"dropout is {self.dropout}: accepted are numbers from 0 to below 1")
