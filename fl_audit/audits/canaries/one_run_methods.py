"""Names and assumptions of the methods that bound epsilon from the canaries of one run."""

from enum import StrEnum


class OneRunMethod(StrEnum):
    """A method that bounds epsilon from the scores and coins of the canaries of one run.

    * TRADE_OFF counts right guesses of coins, after Mahloujifar et al. 2024.
    * STEINKE counts right guesses of coins, after Steinke et al. 2023.
    * SHIFT uses the standardised difference of the mean scores. For normal scores the bound is exact, by the noncentral
      t distribution.
    * COSINES uses the mean cosine between the release and the canaries that are in, after Andrew et al. 2023.
    """

    TRADE_OFF = "trade-off"
    STEINKE = "steinke"
    SHIFT = "shift"
    COSINES = "cosines"

    @property
    def assumption(self) -> str:
        """The assumptions under which the bound of this method is valid, in sentences."""
        return _ASSUMPTIONS[self]

    @property
    def is_for_any_mechanism(self) -> bool:
        """Whether the bound is valid for any mechanism, even if it sometimes reveals many coins at once."""
        return self.guesses

    @property
    def guesses(self) -> bool:
        """Whether the bound uses only the number of right guesses, and not the scores themselves."""
        return self in (OneRunMethod.TRADE_OFF, OneRunMethod.STEINKE)


_COINS = "The coins are independent and fair, and the number of guesses was fixed before the scores were seen"
_ASSUMPTIONS = {
    OneRunMethod.TRADE_OFF: (
        f"{_COINS}; nothing of the mechanism is assumed for epsilon. An epsilon may be read off mu only where the "
        "mechanism is Gaussian."
    ),
    OneRunMethod.STEINKE: f"{_COINS}; nothing of the mechanism is assumed.",
    OneRunMethod.SHIFT: (
        "The coins are independent and fair; scores are normal with the same spread whether a canary is in or not, "
        "and independent of each other: so it is with Gaussian noise along random directions. Not valid for other "
        "mechanisms."
    ),
    OneRunMethod.COSINES: (
        "Scores are cosines of random directions with one release of Gaussian noise: normal, and N(0, 1/dimension) for "
        "directions that nobody sent. Not valid for other mechanisms."
    ),
}
