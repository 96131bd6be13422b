"""Known mistakes of chapter 2, each as the code that makes it and the hint that a tutor would give."""

import math

import torch
from torch import nn

from autograder.registry import misconception
from transformer_lab.builtin import TokenEmbedding

PE, SHIFT, EMBED = "positional_encoding", "shift_matrix", "TransformerEmbedding"


def _interleave(angles):
    """Angles (L, D/2) → sine and cosine in turn (L, D)."""
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def _angles(seq_len, exponents, base=10000.0, first=0):
    """Positions times base^(−exponent), in float64: (L, D/2)."""
    positions = torch.arange(first, first + seq_len, dtype=torch.float64)[:, None]
    return positions * base ** -torch.as_tensor(exponents, dtype=torch.float64)


def _even(d_model):
    return torch.arange(0, d_model, 2, dtype=torch.float64)


def right(seq_len, d_model):
    """The correct table, from which some slips are derived."""
    return _interleave(_angles(seq_len, _even(d_model) / d_model)).float()


# ------------------------------------------------------------------------------------------------ positional_encoding


@misconception(
    PE,
    "doubled-exponent",
    "The exponent is doubled twice, so the frequencies fall twice as fast: your loop variable already steps by two; "
    "it is the 2i of the formula.",
)
def doubled_exponent(seq_len, d_model):
    return _interleave(_angles(seq_len, 2 * _even(d_model) / d_model)).float()


@misconception(
    PE,
    "exponent-not-doubled",
    "The frequencies fall too slowly: if your loop variable counts pairs (0, 1, 2, …), the exponent needs 2i, not i.",
)
def exponent_not_doubled(seq_len, d_model):
    return _interleave(_angles(seq_len, torch.arange(d_model // 2) / d_model)).float()


@misconception(
    PE,
    "unpaired-columns",
    "Every column has a frequency of its own: a sine and the cosine beside it must share one, so use 2·(j // 2) for column j.",
)
def unpaired_columns(seq_len, d_model):
    angles = _angles(seq_len, 2 * torch.arange(d_model) / d_model)
    even = torch.arange(d_model) % 2 == 0
    return torch.where(even, angles.sin(), angles.cos()).float()


@misconception(
    PE,
    "unpaired-columns",
    "Every column has a frequency of its own, 10000^(−j/d_model): a sine and the cosine beside it must share that of the sine.",
)
def unpaired_columns_slow(seq_len, d_model):
    angles = _angles(seq_len, torch.arange(d_model) / d_model)
    even = torch.arange(d_model) % 2 == 0
    return torch.where(even, angles.sin(), angles.cos()).float()


@misconception(PE, "wrong-base", "The wavelengths are too short: the base is 10000, and yours looks like 1000.")
def wrong_base(seq_len, d_model):
    return _interleave(_angles(seq_len, _even(d_model) / d_model, base=1000.0)).float()


@misconception(
    PE,
    "halves-not-interleaved",
    "All sines stand in the left half and all cosines in the right: they alternate, sine in column 2i and cosine in 2i+1.",
)
def halves_not_interleaved(seq_len, d_model):
    angles = _angles(seq_len, _even(d_model) / d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


@misconception(PE, "sine-and-cosine-swapped", "Sine and cosine have changed places: sine belongs in the even columns.")
def sine_and_cosine_swapped(seq_len, d_model):
    angles = _angles(seq_len, _even(d_model) / d_model)
    return torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(1).float()


@misconception(
    PE,
    "inverted-frequency",
    "The angles grow from pair to pair instead of shrinking: the position is divided by 10000^(2i/d_model), not multiplied.",
)
def inverted_frequency(seq_len, d_model):
    return _interleave(_angles(seq_len, -_even(d_model) / d_model)).float()


@misconception(
    PE,
    "inverted-frequency",
    "The angles grow from pair to pair instead of shrinking: the position is divided by 10000^(2i/d_model), not multiplied.",
)
def inverted_frequency_in_single_precision(seq_len, d_model):
    # At angles of a million the rounding of float32 shows, so the slip has other numbers there.
    rate = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    return _interleave(torch.arange(seq_len, dtype=torch.float32)[:, None] / rate)


@misconception(
    PE,
    "power-upside-down",
    "Base and exponent have changed places: it is 10000 to the power −2i/d_model, not the fraction to a power.",
)
def power_upside_down(seq_len, d_model):
    frequencies = (_even(d_model) / d_model) ** 1e-4
    return _interleave(torch.arange(seq_len, dtype=torch.float64)[:, None] * frequencies).float()


@misconception(
    PE,
    "positions-from-one",
    "Positions are counted from 1: the first row belongs to position 0 and reads 0, 1, 0, 1, …",
)
def positions_from_one(seq_len, d_model):
    return _interleave(_angles(seq_len, _even(d_model) / d_model, first=1)).float()


@misconception(
    PE,
    "integer-division",
    "All pairs turn at the same speed: the exponent is 0 everywhere, as integer division (//) makes it.",
)
def integer_division(seq_len, d_model):
    return _interleave(_angles(seq_len, torch.zeros(d_model // 2))).float()


@misconception(PE, "one-pair-only", "Only the first pair of columns is filled: loop over all d_model / 2 pairs.")
def one_pair_only(seq_len, d_model):
    table = torch.zeros(seq_len, d_model)
    table[:, :2] = right(seq_len, d_model)[:, :2]
    return table


@misconception(PE, "sines-only", "The odd columns hold sines as well: they need the cosine of the same angle.")
def sines_only(seq_len, d_model):
    return _angles(seq_len, _even(d_model) / d_model).sin().repeat_interleave(2, dim=1).float()


@misconception(
    PE, "cosine-columns-empty", "The odd columns are still zero: they need the cosine of the angle beside them."
)
def cosine_columns_empty(seq_len, d_model):
    table = right(seq_len, d_model)
    table[:, 1::2] = 0
    return table


@misconception(
    PE,
    "leading-batch-axis",
    "The table has a batch axis in front: return (seq_len, d_model), the sum broadcasts by itself.",
)
def leading_batch_axis(seq_len, d_model):
    return right(seq_len, d_model)[None]


@misconception(PE, "double-precision", "The values are right but float64: convert the finished table to float32.")
def double_precision(seq_len, d_model):
    return _interleave(_angles(seq_len, _even(d_model) / d_model))


@misconception(PE, "transposed", "The table lies on its side: positions are rows and features are columns.")
def transposed(seq_len, d_model):
    return right(seq_len, d_model).T.contiguous()


@misconception(
    PE,
    "axes-exchanged",
    "Lengths and widths have changed places: frequencies belong to the columns (d_model), positions to the rows (seq_len).",
)
def axes_exchanged(seq_len, d_model):
    pairs = torch.arange(seq_len) // 2 * 2
    angles = torch.arange(d_model)[:, None] * 10000.0 ** -(pairs.double() / seq_len)
    return torch.where(torch.arange(seq_len) % 2 == 0, angles.sin(), angles.cos()).float().T.contiguous()


@misconception(PE, "degrees", "The angles are taken in degrees: sine and cosine expect radians, so don't convert.")
def degrees(seq_len, d_model):
    return _interleave(torch.deg2rad(_angles(seq_len, _even(d_model) / d_model))).float()


@misconception(
    PE,
    "scaled-table",
    "The table itself is scaled by √d_model: only the token embedding is, the encoding stays within ±1.",
)
def scaled_table(seq_len, d_model):
    return right(seq_len, d_model) * math.sqrt(d_model)


@misconception(
    PE,
    "last-pair-reaches-the-base",
    "The last pair turns with frequency 1/10000: divide i by d_model / 2, the number of pairs, not by one less.",
)
def last_pair_reaches_the_base(seq_len, d_model):
    exponents = torch.arange(d_model // 2, dtype=torch.float64) / max(d_model // 2 - 1, 1)
    return _interleave(_angles(seq_len, exponents)).float()


# ------------------------------------------------------------------------------------------------------- shift_matrix


def _rotations(offset, d_model, sign_upper=1.0, exponents=None):
    exponents = _even(d_model) / d_model if exponents is None else exponents
    angles = offset * 10000.0**-exponents
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i, angle in enumerate(angles):
        cosine, sine = math.cos(angle), math.sin(angle)
        block = torch.tensor([[cosine, sign_upper * sine], [-sign_upper * sine, cosine]])
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    return matrix.float()


@misconception(
    SHIFT,
    "rotates-backwards",
    "It moves the other way: sine comes first in each pair, so the minus sign belongs in the lower left of each block.",
)
def rotates_backwards(offset, d_model):
    return _rotations(offset, d_model, sign_upper=-1.0)


@misconception(
    SHIFT,
    "one-speed-for-all-pairs",
    "Every pair is turned by the same angle: pair i turns by offset · 10000^(−2i/d_model).",
)
def one_speed_for_all_pairs(offset, d_model):
    return _rotations(offset, d_model, exponents=torch.zeros(d_model // 2, dtype=torch.float64))


@misconception(
    SHIFT,
    "shift-doubled-exponent",
    "The exponent is doubled twice: your loop variable already steps by two, so it is the 2i of the formula.",
)
def shift_doubled_exponent(offset, d_model):
    return _rotations(offset, d_model, exponents=2 * _even(d_model) / d_model)


@misconception(
    SHIFT,
    "shift-exponent-not-doubled",
    "The frequencies fall too slowly: if your loop variable counts pairs, the exponent needs 2i, not i.",
)
def shift_exponent_not_doubled(offset, d_model):
    return _rotations(offset, d_model, exponents=_even(d_model) / (2 * d_model))


@misconception(
    SHIFT,
    "only-forward",
    "Negative offsets move forward as well: the sign of the offset is lost (an absolute value, or a loop over range(offset)?).",
)
def only_forward(offset, d_model):
    return _rotations(abs(offset), d_model)


@misconception(
    SHIFT,
    "both-sines-positive",
    "A rotation has one sine with a minus sign in each block: both of yours have the same sign.",
)
def both_sines_positive(offset, d_model):
    matrix = _rotations(offset, d_model)
    for i in range(0, d_model, 2):
        matrix[i + 1, i] = matrix[i, i + 1]
    return matrix


@misconception(
    SHIFT,
    "shift-halves-not-interleaved",
    "The matrix fits a table with all sines left and all cosines right: here they alternate, so the blocks are 2 × 2.",
)
def shift_halves_not_interleaved(offset, d_model):
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
    return _rotations(offset, d_model)[order][:, order]


# ----------------------------------------------------------------------------------------------- TransformerEmbedding


class _Embedding(nn.Module):
    """The correct layer; each slip overrides the one line that it gets wrong."""

    persistent = False

    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = self.make_token(vocab_size, d_model, pad_id)
        self.dropout = nn.Dropout(dropout)
        self.make_table(right(max_len, d_model))

    def make_token(self, vocab_size, d_model, pad_id):
        return TokenEmbedding(vocab_size, d_model, pad_id)

    def make_table(self, table):
        self.register_buffer("table", table, persistent=self.persistent)

    def forward(self, token_ids):
        return self.dropout(self.add(self.token(token_ids), token_ids))

    def add(self, tokens, token_ids):
        return tokens + self.table[: token_ids.size(1)]


@misconception(
    EMBED, "no-positions", "The positions are missing from the sum: the output is the token embedding alone."
)
class NoPositions(_Embedding):
    def add(self, tokens, token_ids):
        return tokens


@misconception(
    EMBED,
    "scaled-twice",
    "The tokens are scaled by √d_model twice: the TokenEmbedding has done it already.",
)
class ScaledTwice(_Embedding):
    def add(self, tokens, token_ids):
        return tokens * math.sqrt(tokens.size(-1)) + self.table[: token_ids.size(1)]


@misconception(
    EMBED,
    "scaled-after-the-sum",
    "The sum is scaled by √d_model, positions included: only the tokens are scaled, and TokenEmbedding does it.",
)
class ScaledAfterTheSum(_Embedding):
    def add(self, tokens, token_ids):
        return (tokens + self.table[: token_ids.size(1)]) * math.sqrt(tokens.size(-1))


@misconception(
    EMBED,
    "positions-scaled-too",
    "The positions are scaled by √d_model with the tokens: scale only the tokens, which TokenEmbedding does.",
)
class PositionsScaledToo(_Embedding):
    def add(self, tokens, token_ids):
        return tokens + self.table[: token_ids.size(1)] * math.sqrt(tokens.size(-1))


@misconception(
    EMBED,
    "tokens-not-scaled",
    "The tokens are not scaled by √d_model: call self.token(token_ids), not its inner nn.Embedding.",
)
class TokensNotScaled(_Embedding):
    def add(self, tokens, token_ids):
        return self.token.embedding(token_ids) + self.table[: token_ids.size(1)]


@misconception(
    EMBED,
    "positions-along-the-batch",
    "Every token of a sentence gets the same position: the positions run along the batch axis; use token_ids.size(1).",
)
class PositionsAlongTheBatch(_Embedding):
    def add(self, tokens, token_ids):
        return tokens + self.table[: token_ids.size(0)][:, None]


@misconception(
    EMBED,
    "positions-counted-by-batch",
    "The table is cut to the size of the batch instead of the length: use token_ids.size(1).",
)
class PositionsCountedByBatch(_Embedding):
    def add(self, tokens, token_ids):
        return tokens + self.table[: token_ids.size(0)]


@misconception(
    EMBED, "whole-table", "The whole table of max_len positions is added: cut it to the length of the input."
)
class WholeTable(_Embedding):
    def add(self, tokens, token_ids):
        return tokens + self.table


@misconception(
    EMBED,
    "table-saved",
    "The table of positions is saved with the weights: register the buffer with persistent=False.",
)
class TableSaved(_Embedding):
    persistent = True


@misconception(
    EMBED,
    "table-learnt",
    "The table of positions is an nn.Parameter and would be trained: register it as a buffer instead.",
)
class TableLearnt(_Embedding):
    def make_table(self, table):
        self.table = nn.Parameter(table)


@misconception(
    EMBED,
    "table-learnt",
    "The table of positions would be learnt: it is a fixed table, kept in a buffer, not in an nn.Embedding.",
)
class TableInAnEmbedding(_Embedding):
    def make_table(self, table):
        self.table = nn.Embedding.from_pretrained(table, freeze=False).weight


@misconception(
    EMBED,
    "table-not-a-buffer",
    "The table of positions is no buffer, so it stays behind when the module moves to another device: in __init__, "
    "register_buffer(…, persistent=False).",
)
class TableInAPlainAttribute(_Embedding):
    def make_table(self, table):
        self.table = table


@misconception(
    EMBED, "no-dropout", "Dropout is never applied: it acts on the sum of token and position while training."
)
class NoDropout(_Embedding):
    def forward(self, token_ids):
        return self.add(self.token(token_ids), token_ids)


@misconception(
    EMBED,
    "dropout-before-the-sum",
    "Dropout acts on the tokens only: apply it to the sum of token and position.",
)
class DropoutBeforeTheSum(_Embedding):
    def forward(self, token_ids):
        return self.add(self.dropout(self.token(token_ids)), token_ids)


@misconception(
    EMBED,
    "dropout-in-evaluation",
    "Dropout also acts in evaluation mode: use an nn.Dropout module, or hand training=self.training to the function.",
)
class DropoutInEvaluation(_Embedding):
    def forward(self, token_ids):
        return nn.functional.dropout(self.add(self.token(token_ids), token_ids), self.dropout.p)


@misconception(
    EMBED,
    "keep-probability",
    "dropout is taken as the share to keep: it is the share to drop, which is what nn.Dropout expects.",
)
class KeepProbability(_Embedding):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__(vocab_size, d_model, max_len, 1 - dropout, pad_id)


@misconception(EMBED, "fixed-dropout", "The argument dropout is ignored: a fixed rate is used.")
class FixedDropout(_Embedding):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__(vocab_size, d_model, max_len, 0.1, pad_id)


@misconception(
    EMBED, "embedding-positions-from-one", "Positions are counted from 1: the first token gets row 0 of the table."
)
class PositionsFromOne(_Embedding):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__(vocab_size, d_model, max_len + 1, dropout, pad_id)

    def add(self, tokens, token_ids):
        return tokens + self.table[1 : token_ids.size(1) + 1]


@misconception(
    EMBED,
    "padding-without-position",
    "Padding positions get no encoding: add it everywhere, masks hide the padding later.",
)
class PaddingWithoutPosition(_Embedding):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__(vocab_size, d_model, max_len, dropout, pad_id)
        self.pad_id = pad_id

    def add(self, tokens, token_ids):
        positions = self.table[: token_ids.size(1)].expand_as(tokens)
        return tokens + (positions if self.pad_id is None else positions * (token_ids != self.pad_id)[..., None])


@misconception(
    EMBED,
    "embedding-doubled-exponent",
    "The exponent is doubled twice in the table of positions: use your positional_encoding, or mend it first.",
)
class DoubledExponentInside(_Embedding):
    def make_table(self, table):
        self.register_buffer("table", doubled_exponent(*table.shape), persistent=False)


@misconception(
    EMBED,
    "padding-forgotten",
    "pad_id is not handed on to TokenEmbedding, so the padding row is neither zero nor fixed.",
)
class PaddingForgotten(_Embedding):
    def make_token(self, vocab_size, d_model, pad_id):
        return TokenEmbedding(vocab_size, d_model)


@misconception(
    EMBED,
    "padding-zero-taken-for-none",
    "pad_id=0 is taken for no padding at all, because 0 counts as False: ask `is not None`, or hand pad_id on as it is.",
)
class PaddingZeroTakenForNone(_Embedding):
    def make_token(self, vocab_size, d_model, pad_id):
        return TokenEmbedding(vocab_size, d_model, pad_id or None)


@misconception(
    EMBED,
    "gradient-cut",
    "The token table receives no gradient: something freezes or detaches it (requires_grad, detach, .data, no_grad, NumPy).",
)
class GradientCut(_Embedding):
    def add(self, tokens, token_ids):
        return tokens.detach() + self.table[: token_ids.size(1)]
