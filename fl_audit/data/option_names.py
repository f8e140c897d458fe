"""Names that a configuration uses for data: dissimilarities, neighbours and partitions."""

from enum import StrEnum


class Dissimilarity(StrEnum):
    """Measure of how far two records lie apart.

    EUCLIDEAN and MANHATTAN are distances, HAMMING is the share of features that differ, COSINE is 1 - the cosine of
    the angle between them, all on flattened features. SSIM is 1 - the structural similarity of two images, (h, w) or
    (channels, h, w) in [0, 1].
    """

    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"
    HAMMING = "hamming"
    COSINE = "cosine"
    SSIM = "ssim"


class UsersAcrossClients(StrEnum):
    """Treatment of users whose records lie at several clients.

    REFUSE raises an error with the number of such users. FIRST gives all records of a user to the client that has the
    first of them.
    """

    REFUSE = "refuse"
    FIRST = "first"


class RecordAxes(StrEnum):
    """Meaning of the two axes of a record in an archive.

    For PICTURE they are height and width, for SEQUENCE steps and features.
    """

    PICTURE = "picture"
    SEQUENCE = "sequence"


Measure = Dissimilarity | str  # a dissimilarity, or the name `package.module:name` of the user's own


class NeighbourChoice(StrEnum):
    """Rule that chooses the unit by which D and D' differ, if the configuration does not name it."""

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
    classes per client. SHARD: a few blocks of the records sorted by label. LINEAR, SQUARE, EXPONENTIAL: at random, with
    sizes that grow with the client's number i as i, i^2 and e^i. NATURAL: every owner of records is a client.
    """

    IID = "iid"
    DIRICHLET = "dirichlet"
    PATHOLOGICAL = "pathological"
    SHARD = "shard"
    LINEAR = "linear"
    SQUARE = "square"
    EXPONENTIAL = "exponential"
    NATURAL = "natural"
