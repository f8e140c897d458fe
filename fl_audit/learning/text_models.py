"""The built-in text model, a classifier of mean token embeddings."""

from torch import Tensor, nn

_EMBEDDED = 16  # length of the embedding vector of a token


class MeanEmbeddingClassifier(nn.Module):
    """A text classifier: the mean of the embeddings of all tokens that are not padding, followed by a dense layer."""

    def __init__(self, tokens: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, _EMBEDDED)
        self.head = nn.Linear(_EMBEDDED, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits (n, classes) for token ids and their attention mask (0 for padding), both (n, tokens)."""
        weights = attention_mask.unsqueeze(2).to(self.head.weight.dtype)
        summed = (self.embedding(input_ids) * weights).sum(1)
        logits: Tensor = self.head(summed / weights.sum(1).clamp(min=1.0))
        return logits
