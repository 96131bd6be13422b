"""Known mistakes of chapter 1, each as the code that makes it and the hint that a tutor would give."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from autograder.registry import misconception

LOOKUP, TOKEN = "one_hot_lookup", "TokenEmbedding"

# ----------------------------------------------------------------------------------------------------- one_hot_lookup


def _one_hot(ids, table):
    """(…) → (…, V) in the table's dtype."""
    return F.one_hot(ids, table.size(0)).to(table.dtype)


@misconception(LOOKUP, "counts-from-one", "Every id gets the row before its own: rows and ids are counted from 0.")
def counts_from_one(token_ids, table):
    return _one_hot((token_ids - 1) % table.size(0), table) @ table


@misconception(LOOKUP, "counts-from-one", "Every id gets the row before its own: rows and ids are counted from 0.")
def counts_from_one_without_a_zeroth(token_ids, table):
    classes = torch.arange(1, table.size(0) + 1)
    return (token_ids[..., None] == classes).to(table.dtype) @ table


@misconception(
    LOOKUP,
    "first-row-as-padding",
    "Id 0 is taken for padding: here row 0 is a row like any other, in its numbers and in its gradient.",
)
def first_row_left_out(token_ids, table):
    return table[token_ids] * (token_ids != 0)[..., None]


@misconception(
    LOOKUP,
    "first-row-as-padding",
    "Id 0 is taken for padding: here row 0 is a row like any other, in its numbers and in its gradient.",
)
def first_row_without_gradient(token_ids, table):
    return F.embedding(token_ids, table, padding_idx=0)


@misconception(
    LOOKUP,
    "classes-from-the-ids",
    "There are as many classes as the largest id asks for: the one-hot vectors have V entries, the number of the table's rows.",
)
def classes_from_the_ids(token_ids, table):
    return F.one_hot(token_ids).to(table.dtype) @ table


@misconception(
    LOOKUP,
    "classes-from-the-width",
    "The one-hot vectors have as many entries as a row: they need V, the number of rows, table.size(0).",
)
def classes_from_the_width(token_ids, table):
    return (token_ids[..., None] == torch.arange(table.size(1))).to(table.dtype) @ table


LAST_ROW = (
    "last-row-unreachable",
    "The last id finds no row of its own: there are V classes, 0 to V − 1, and arange(V) ends there by itself.",
)


@misconception(LOOKUP, *LAST_ROW)
def last_row_unreachable(token_ids, table):
    return (token_ids[..., None] == torch.arange(table.size(0) - 1)).to(table.dtype) @ table[:-1]


@misconception(LOOKUP, *LAST_ROW)
def last_row_taken_for_the_one_before(token_ids, table):
    return table[token_ids.clamp(max=table.size(0) - 2)]


@misconception(LOOKUP, "one-hot-returned", "The one-hot vectors themselves come back: multiply them with the table.")
def one_hot_returned(token_ids, table):
    return _one_hot(token_ids, table)


@misconception(
    LOOKUP,
    "bag-of-words",
    "The rows of a sequence are added to one: multiply before you sum anything, each id has a vector of its own.",
)
def bag_of_words(token_ids, table):
    return _one_hot(token_ids, table).sum(-2) @ table


@misconception(
    LOOKUP,
    "scaled",
    "The rows are multiplied by √D: that is the task of TokenEmbedding, here they stay as they are.",
)
def scaled(token_ids, table):
    return table[token_ids] * math.sqrt(table.size(1))


@misconception(
    LOOKUP,
    "stays-flat",
    "The ids are flattened and stay so: give the result their leading shape back, (…, D).",
)
def stays_flat(token_ids, table):
    return _one_hot(token_ids.reshape(-1), table) @ table


@misconception(
    LOOKUP,
    "batches-only",
    "It works for ids (B, L) only: a single id, a sequence or more axes fail. Work on the last axis and let the others be.",
)
def batches_only(token_ids, table):
    _batch, _length = token_ids.shape
    return _one_hot(token_ids, table) @ table


@misconception(
    LOOKUP,
    "axes-squeezed",
    "Axes of size 1 are lost: a batch of one sentence keeps its axis, so don't squeeze.",
)
def axes_squeezed(token_ids, table):
    return (_one_hot(token_ids, table) @ table).squeeze()


@misconception(
    LOOKUP,
    "always-float32",
    "The one-hot vectors are float32 whatever the table is, which a float64 table does not multiply with: take its dtype.",
)
def always_float32(token_ids, table):
    return F.one_hot(token_ids, table.size(0)).float() @ table


@misconception(
    LOOKUP,
    "integers-for-floats",
    "The one-hot vectors are integers, which don't multiply with a float table: bring them to the table's dtype.",
)
def integers_for_floats(token_ids, table):
    return F.one_hot(token_ids, table.size(0)) @ table


@misconception(
    LOOKUP,
    "integers-for-floats",
    "The table is cut down to integers: bring the one-hot vectors to the table's dtype, not the other way round.",
)
def rounded_to_integers(token_ids, table):
    return (F.one_hot(token_ids, table.size(0)) @ table.long()).to(table.dtype)


@misconception(
    LOOKUP,
    "softened",
    "A softmax of steep scores is no one-hot vector: a trace of every other row remains. 1 and 0 must be exact.",
)
def softened(token_ids, table):
    return (10 * _one_hot(token_ids, table)).softmax(-1) @ table


@misconception(
    LOOKUP,
    "gradient-cut",
    "No gradient reaches the table: something detaches it (detach, .data, no_grad, tolist or NumPy).",
)
def lookup_gradient_cut(token_ids, table):
    return _one_hot(token_ids, table) @ table.detach()


@misconception(
    LOOKUP,
    "gradient-averaged",
    "The gradient of a row is divided by how often its id occurs: the gradients of all places add up.",
)
def gradient_averaged(token_ids, table):
    return F.embedding(token_ids, table, scale_grad_by_freq=True)


# ----------------------------------------------------------------------------------------------------- TokenEmbedding


class _Token(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    def __init__(self, vocab_size, d_model, pad_id=None):
        super().__init__()
        self.d_model, self.pad_id = d_model, pad_id
        self.embedding = self.table(vocab_size, d_model, pad_id)

    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model, padding_idx=pad_id)

    def forward(self, token_ids):
        return self.rows(token_ids) * self.factor(token_ids)

    def rows(self, token_ids):
        return self.embedding(token_ids)

    def factor(self, token_ids):
        return math.sqrt(self.d_model)


NO_SCALE = (
    "no-scale",
    "The rows come back unscaled: multiply them by √d_model in forward, each time; scaling the new table once is lost as soon "
    "as a table is loaded.",
)


@misconception(TOKEN, *NO_SCALE)
class NoScale(_Token):
    def factor(self, token_ids):
        return 1.0


@misconception(TOKEN, "divided", "The rows are divided by √d_model: multiply them by it.")
class Divided(_Token):
    def factor(self, token_ids):
        return self.d_model**-0.5


@misconception(
    TOKEN, "scaled-by-the-width", "The rows are multiplied by d_model: once by its root, √d_model, is right."
)
class ScaledByTheWidth(_Token):
    def factor(self, token_ids):
        return self.d_model


@misconception(TOKEN, "scaled-by-the-vocabulary", "The factor is √V, from the number of rows: it is √d_model.")
class ScaledByTheVocabulary(_Token):
    def factor(self, token_ids):
        return math.sqrt(self.embedding.num_embeddings)


@misconception(TOKEN, "scaled-by-the-length", "The factor is √L, from the length of the sequence: it is √d_model.")
class ScaledByTheLength(_Token):
    def factor(self, token_ids):
        return math.sqrt(token_ids.size(-1))


@misconception(TOKEN, "whole-root", "The root of d_model is cut down to a whole number: keep it a float.")
class WholeRoot(_Token):
    def factor(self, token_ids):
        return math.isqrt(self.d_model)


@misconception(
    TOKEN,
    "scale-of-one-model",
    "The factor is √512, the paper's, whatever d_model is: take the root of the d_model that is given.",
)
class ScaleOfOneModel(_Token):
    def factor(self, token_ids):
        return math.sqrt(512)


@misconception(TOKEN, *NO_SCALE)
class BakedIn(_Token):
    def table(self, vocab_size, d_model, pad_id):
        embedding = super().table(vocab_size, d_model, pad_id)
        embedding.weight.data.mul_(math.sqrt(d_model))
        return embedding

    def factor(self, token_ids):
        return 1.0


@misconception(
    TOKEN,
    "weights-scaled-in-every-call",
    "Every call multiplies the stored table itself, so that it grows from call to call: scale the rows that come out.",
)
class WeightsScaledInEveryCall(_Token):
    def rows(self, token_ids):
        self.embedding.weight.data.mul_(math.sqrt(self.d_model))
        return super().rows(token_ids)

    def factor(self, token_ids):
        return 1.0


@misconception(
    TOKEN, "scaled-in-one-mode", "In evaluation mode the rows are not scaled: the factor belongs to both modes."
)
class ScaledInTrainingOnly(_Token):
    def factor(self, token_ids):
        return super().factor(token_ids) if self.training else 1.0


@misconception(
    TOKEN, "scaled-in-one-mode", "In training mode the rows are not scaled: the factor belongs to both modes."
)
class ScaledInEvaluationOnly(_Token):
    def factor(self, token_ids):
        return 1.0 if self.training else super().factor(token_ids)


@misconception(
    TOKEN,
    "gradient-cut",
    "No gradient reaches the table: something detaches the rows (detach, .data, no_grad or NumPy).",
)
class TokenGradientCut(_Token):
    def rows(self, token_ids):
        return super().rows(token_ids).detach()


@misconception(
    TOKEN,
    "scale-without-gradient",
    "The numbers are right, but the factor is missing from the gradient: scale the rows without detaching anything.",
)
class ScaleWithoutGradient(_Token):
    def forward(self, token_ids):
        rows = self.rows(token_ids)
        return rows + (rows * (math.sqrt(self.d_model) - 1)).detach()


@misconception(
    TOKEN,
    "table-frozen",
    "The table is frozen: from_pretrained does so unless told freeze=False. Make it with nn.Embedding(…).",
)
class TableFrozen(_Token):
    def table(self, vocab_size, d_model, pad_id):
        weight = super().table(vocab_size, d_model, pad_id).weight.detach()
        return nn.Embedding.from_pretrained(weight, padding_idx=pad_id)


@misconception(
    TOKEN,
    "gradient-averaged",
    "The gradient of a row is divided by how often its id occurs: leave scale_grad_by_freq off.",
)
class GradientAveraged(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model, padding_idx=pad_id, scale_grad_by_freq=True)


@misconception(TOKEN, "gradient-sparse", "The table's gradient is a sparse tensor: leave sparse off.")
class GradientSparse(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model, padding_idx=pad_id, sparse=True)


@misconception(
    TOKEN,
    "padding-forgotten",
    "pad_id is accepted and forgotten: nn.Embedding takes it as padding_idx, keeps that row zero and leaves it untrained.",
)
class PaddingForgotten(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model)


@misconception(
    TOKEN,
    "padding-row-trained",
    "The padding row is set to zero at the start, but training fills it: nn.Embedding with padding_idx does both.",
)
class PaddingRowTrained(_Token):
    def table(self, vocab_size, d_model, pad_id):
        embedding = nn.Embedding(vocab_size, d_model)
        if pad_id is not None:
            nn.init.zeros_(embedding.weight.data[pad_id])
        return embedding


@misconception(
    TOKEN,
    "padding-row-overwritten",
    "The table is drawn anew after nn.Embedding has emptied the padding row: empty it again, or leave the table as it is.",
)
class PaddingRowOverwritten(_Token):
    def table(self, vocab_size, d_model, pad_id):
        embedding = super().table(vocab_size, d_model, pad_id)
        nn.init.normal_(embedding.weight, std=d_model**-0.5)
        return embedding


@misconception(
    TOKEN, "padding-always-first", "Row 0 is the padding row whatever pad_id says: hand on the pad_id that is given."
)
class PaddingAlwaysFirst(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model, padding_idx=0)


@misconception(
    TOKEN,
    "no-padding-taken-for-zero",
    "With pad_id=None row 0 is treated as padding: then no row is special. None and 0 are two things.",
)
class NoPaddingTakenForZero(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model, padding_idx=pad_id or 0)


@misconception(
    TOKEN,
    "no-padding-taken-for-zero",
    "Without pad_id row 0 is treated as padding: its default is None, and then no row is special.",
)
class DefaultOfZero(_Token):
    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__(vocab_size, d_model, pad_id)


@misconception(
    TOKEN,
    "zero-taken-for-no-padding",
    "With pad_id=0 no row is padding: 0 counts as false, so compare with None (`is not None`).",
)
class ZeroTakenForNoPadding(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model, padding_idx=pad_id or None)


PADDING_IN_FORWARD = (
    "padding-in-forward",
    "The padding is emptied in forward: nn.Embedding with padding_idx makes its row zero at the start and leaves it untrained, "
    "and forward has nothing to do.",
)


@misconception(TOKEN, *PADDING_IN_FORWARD)
class PaddingMaskedOut(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model)

    def forward(self, token_ids):
        vectors = super().forward(token_ids)
        return vectors if self.pad_id is None else vectors * (token_ids != self.pad_id)[..., None]


@misconception(TOKEN, *PADDING_IN_FORWARD)
class PaddingMaskedOutTwice(_Token):
    def forward(self, token_ids):
        vectors = super().forward(token_ids)
        return vectors if self.pad_id is None else vectors * (token_ids != self.pad_id)[..., None]


@misconception(TOKEN, *PADDING_IN_FORWARD)
class PaddingRowEmptiedInForward(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model)

    def rows(self, token_ids):
        if self.pad_id is not None:
            self.embedding.weight.data[self.pad_id] = 0
        return super().rows(token_ids)


@misconception(
    TOKEN,
    "dropout-in-evaluation",
    "Numbers are dropped at random in every call: there is no dropout here, and F.dropout is active unless told otherwise.",
)
class DropoutInEvaluation(_Token):
    def forward(self, token_ids):
        return F.dropout(super().forward(token_ids), 0.1)


@misconception(TOKEN, "dropout-while-training", "In training, numbers are dropped at random: there is no dropout here.")
class DropoutWhileTraining(_Token):
    def forward(self, token_ids):
        return F.dropout(super().forward(token_ids), 0.1, self.training)


@misconception(
    TOKEN, "scale-saved", "The factor is saved with the table: keep a plain number, or a buffer with persistent=False."
)
class ScaleSaved(_Token):
    def __init__(self, vocab_size, d_model, pad_id=None):
        super().__init__(vocab_size, d_model, pad_id)
        self.register_buffer("scale", torch.tensor(math.sqrt(d_model)))


SCALE_LEARNT = ("scale-learnt", "The factor is an nn.Parameter, which training would change: it is a constant.")


@misconception(TOKEN, *SCALE_LEARNT)
class ScaleLearnt(_Token):
    def __init__(self, vocab_size, d_model, pad_id=None):
        super().__init__(vocab_size, d_model, pad_id)
        self.scale = nn.Parameter(torch.tensor(math.sqrt(d_model)))

    def factor(self, token_ids):
        return self.scale


@misconception(
    TOKEN,
    "sizes-exchanged",
    "The table has d_model rows of V numbers: nn.Embedding takes the number of rows first, then their width.",
)
class SizesExchanged(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(d_model, vocab_size, padding_idx=pad_id)


@misconception(
    TOKEN,
    "axes-squeezed",
    "Axes of size 1 are lost: one sentence or one token keeps its axis, so don't squeeze.",
)
class TokenAxesSqueezed(_Token):
    def forward(self, token_ids):
        return super().forward(token_ids).squeeze()


@misconception(
    TOKEN,
    "batches-only",
    "It works for ids (B, L) only: a sequence alone or more axes fail. Leave the leading axes to nn.Embedding.",
)
class TokenBatchesOnly(_Token):
    def forward(self, token_ids):
        _batch, _length = token_ids.shape
        return super().forward(token_ids)


@misconception(
    TOKEN,
    "rows-shortened",
    "Long rows are shortened, in the stored table too: leave max_norm off.",
)
class RowsShortened(_Token):
    def table(self, vocab_size, d_model, pad_id):
        return nn.Embedding(vocab_size, d_model, padding_idx=pad_id, max_norm=1.0)


# An error in setting the parameters names the class, and learners' classes are called like the piece.
SizesExchanged.__name__ = TOKEN
