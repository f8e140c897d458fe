"""Define the names for dissimilarities, neighbours and partitions that a configuration may contain."""

from enum import StrEnum

IMPUTE = "impute"
"""Value of the setting `missing` with which missing values are filled."""


class Dissimilarity(StrEnum):
    """Dissimilarity of two records, the measure by which they are compared.

    The first four compare flattened features. EUCLIDEAN and MANHATTAN are distances, HAMMING is the share of features
    that differ, and COSINE is 1 minus the cosine of the angle. SSIM is 1 minus the structural similarity of two images,
    shape (h, w) or (channels, h, w), with pixels in [0, 1].
    """

    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"
    HAMMING = "hamming"
    COSINE = "cosine"
    SSIM = "ssim"


class UsersAcrossClients(StrEnum):
    """Treatment of users whose records are at several clients.

    REFUSE raises an error with the number of such users. FIRST moves all records of such a user to the client that has
    the first of them.
    """

    REFUSE = "refuse"
    FIRST = "first"


class Task(StrEnum):
    """Kind of the label: the class of a record (CLASSIFICATION), or a quantity (REGRESSION)."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class PictureOrSequence(StrEnum):
    """Meaning of the two axes of a record: height and width (PICTURE), or steps and features (SEQUENCE)."""

    PICTURE = "picture"
    SEQUENCE = "sequence"


Measure = Dissimilarity | str  # a dissimilarity, or the name `package.module:name` of the user's own


class NeighbourChoice(StrEnum):
    """Rule that chooses the unit by which D and D' differ, if the configuration does not name the unit.

    The unit is the one most or least dissimilar to the others, a random one, or a crafted record in the place of a
    random one. With CRAFTED_OPPOSITE, D' has a second crafted record in this place.
    """

    MOST_DISSIMILAR = "most-dissimilar"
    LEAST_DISSIMILAR = "least-dissimilar"
    RANDOM = "random"
    CRAFTED = "crafted"
    CRAFTED_OPPOSITE = "crafted-opposite"


RANKED = (NeighbourChoice.MOST_DISSIMILAR, NeighbourChoice.LEAST_DISSIMILAR)
"""The choices that rank all neighbours, so that the second, third and further ones can be chosen too."""


class PartitionScheme(StrEnum):
    """Scheme that divides the records among the clients.

    IID: at random, equal sizes. DIRICHLET: class shares drawn from a Dirichlet distribution. PATHOLOGICAL: a few
    classes for each client. SHARD: for each client a few blocks of the records sorted by label. LINEAR, SQUARE,
    EXPONENTIAL: at random, with sizes that grow with the client's number i as i, i^2 and e^i. NATURAL: every owner of
    records is a client.
    """

    IID = "iid"
    DIRICHLET = "dirichlet"
    PATHOLOGICAL = "pathological"
    SHARD = "shard"
    LINEAR = "linear"
    SQUARE = "square"
    EXPONENTIAL = "exponential"
    NATURAL = "natural"
