"""Known mistakes of chapter 5, each as the code that makes it and the hint that a tutor would give."""

import torch
import torch.nn.functional as F
from torch import nn

from autograder.registry import misconception

FFN = "PositionwiseFeedForward"


class _Network(nn.Module):
    """The correct network; each slip overrides the one line that it gets wrong."""

    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.linear2(self.drop(self.cut(self.linear1(x))))

    def cut(self, hidden):
        return torch.relu(hidden)

    def drop(self, hidden):
        return self.dropout(hidden)


# ---------------------------------------------------------------------------------------------------- the activation


@misconception(
    FFN,
    "no-activation",
    "Nothing stands between the two layers, so that they collapse into a single linear map: cut the hidden layer at 0.",
)
class NoActivation(_Network):
    def cut(self, hidden):
        return hidden


AFTER = (
    "activation-after-the-second-layer",
    "The result is cut at 0 instead of the hidden layer: ReLU stands between linear1 and linear2, and nothing after them.",
)


@misconception(FFN, *AFTER)
class ActivationAfterTheSecondLayer(_Network):
    def forward(self, x):
        return torch.relu(self.linear2(self.dropout(self.linear1(x))))


@misconception(
    FFN,
    "result-cut-too",
    "The result is cut at 0 as well as the hidden layer: nothing comes after linear2, and results may be negative.",
)
class ResultCutToo(_Network):
    def forward(self, x):
        return torch.relu(super().forward(x))


@misconception(
    FFN,
    "input-cut",
    "x itself is cut at 0: ReLU acts on the hidden layer, which is what linear1 gives, and x keeps its negative numbers.",
)
class InputCut(_Network):
    def forward(self, x):
        return self.linear2(self.dropout(self.linear1(torch.relu(x))))


@misconception(FFN, "input-cut", "x itself is cut at 0 as well: ReLU acts on the hidden layer only.")
class InputCutToo(_Network):
    def forward(self, x):
        return super().forward(torch.relu(x))


@misconception(
    FFN,
    "input-changed",
    "x itself is changed: relu_ and inplace=True write into the caller's tensor, which the residual path still needs.",
)
class InputChanged(_Network):
    def forward(self, x):
        return super().forward(x.relu_())


@misconception(
    FFN,
    "input-changed",
    "x itself is changed: relu_ and inplace=True write into the caller's tensor, which the residual path still needs.",
)
class InputOverwritten(_Network):
    def forward(self, x):
        result = super().forward(x)
        x.data.copy_(result.data)
        return result


GELU = ("gelu-for-relu", "That is GELU, the smooth cousin of later models: here the hidden layer is max(0, z), ReLU.")


@misconception(FFN, *GELU)
class GeluForRelu(_Network):
    def cut(self, hidden):
        return F.gelu(hidden)


@misconception(FFN, *GELU)
class RoundedGeluForRelu(_Network):
    def cut(self, hidden):
        return F.gelu(hidden, approximate="tanh")


LEAKY = ("leaky-relu", "Negative numbers pass, only smaller: ReLU makes every negative number of the hidden layer 0.")


@misconception(FFN, *LEAKY)
class LeakyRelu(_Network):
    def cut(self, hidden):
        return F.leaky_relu(hidden)


@misconception(FFN, *LEAKY)
class LeakierRelu(_Network):
    def cut(self, hidden):
        return F.leaky_relu(hidden, 0.1)


@misconception(FFN, *LEAKY)
class LeakiestRelu(_Network):
    def cut(self, hidden):
        return F.leaky_relu(hidden, 0.2)


OTHER = (
    "another-activation",
    "The function between the layers is not ReLU: the hidden layer is max(0, z) entry by entry.",
)


@misconception(FFN, *OTHER)
class Sigmoid(_Network):
    def cut(self, hidden):
        return torch.sigmoid(hidden)


@misconception(FFN, *OTHER)
class Tanh(_Network):
    def cut(self, hidden):
        return torch.tanh(hidden)


@misconception(FFN, *OTHER)
class Elu(_Network):
    def cut(self, hidden):
        return F.elu(hidden)


@misconception(FFN, *OTHER)
class Silu(_Network):
    def cut(self, hidden):
        return F.silu(hidden)


@misconception(FFN, *OTHER)
class Softplus(_Network):
    def cut(self, hidden):
        return F.softplus(hidden)


@misconception(FFN, *OTHER)
class Relu6(_Network):
    def cut(self, hidden):
        return F.relu6(hidden)


@misconception(FFN, *OTHER)
class SquaredRelu(_Network):
    def cut(self, hidden):
        return torch.relu(hidden).square()


@misconception(FFN, *OTHER)
class AbsoluteValue(_Network):
    def cut(self, hidden):
        return hidden.abs()


@misconception(FFN, *OTHER)
class Softmax(_Network):
    def cut(self, hidden):
        return hidden.softmax(-1)


@misconception(
    FFN,
    "cut-the-wrong-way",
    "What is positive becomes 0 and what is negative stays: ReLU is max(0, z), not min(0, z).",
)
class CutTheWrongWay(_Network):
    def cut(self, hidden):
        return hidden.clamp(max=0)


@misconception(
    FFN,
    "step-for-relu",
    "The hidden layer becomes 0 or 1: ReLU keeps the size of what is positive, z · (z > 0) and not (z > 0).",
)
class StepForRelu(_Network):
    def cut(self, hidden):
        return (hidden > 0).to(hidden.dtype)


# -------------------------------------------------------------------------------------------------------- the layers

RESIDUAL = (
    "residual-inside",
    "x is added to the result: the residual path stands outside of this piece, around it (chapter 6).",
)


@misconception(FFN, *RESIDUAL)
class ResidualInside(_Network):
    def forward(self, x):
        return x + super().forward(x)


@misconception(FFN, *RESIDUAL)
class ResidualAndDropoutInside(_Network):
    def forward(self, x):
        return x + self.dropout(self.linear2(torch.relu(self.linear1(x))))


NORM = ("norm-inside", "Something is normalised here: layer norm stands outside of this piece, around it (chapter 6).")


@misconception(FFN, *NORM)
class NormOfTheResult(_Network):
    def forward(self, x):
        return F.layer_norm(super().forward(x), (x.size(-1),))


@misconception(FFN, *NORM)
class NormAndResidual(_Network):
    def forward(self, x):
        return F.layer_norm(x + super().forward(x), (x.size(-1),))


@misconception(FFN, *NORM)
class NormOfTheInput(_Network):
    def forward(self, x):
        return super().forward(F.layer_norm(x, (x.size(-1),)))


BIASES = ("biases-left-out", "The biases are missing: each layer is Wz + b, as nn.Linear calculates by itself.")


@misconception(FFN, *BIASES)
class BiasesNotAdded(_Network):
    def forward(self, x):
        hidden = torch.relu(F.linear(x, self.linear1.weight))
        return F.linear(self.dropout(hidden), self.linear2.weight)


@misconception(FFN, *BIASES)
class FirstBiasNotAdded(_Network):
    def forward(self, x):
        return self.linear2(self.dropout(torch.relu(F.linear(x, self.linear1.weight))))


@misconception(FFN, *BIASES)
class SecondBiasNotAdded(_Network):
    def forward(self, x):
        return F.linear(self.dropout(torch.relu(self.linear1(x))), self.linear2.weight)


@misconception(FFN, *BIASES)
class LayersWithoutBias(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.linear1 = nn.Linear(d_model, d_ff, bias=False)
        self.linear2 = nn.Linear(d_ff, d_model, bias=False)


@misconception(FFN, *BIASES)
class SecondLayerWithoutBias(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.linear2 = nn.Linear(d_ff, d_model, bias=False)


@misconception(FFN, *BIASES)
class FirstLayerWithoutBias(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.linear1 = nn.Linear(d_model, d_ff, bias=False)


EXCHANGED = (
    "layers-exchanged",
    "The two layers have changed places: x goes through linear1, from D to d_ff, and the hidden layer through linear2.",
)


@misconception(FFN, *EXCHANGED)
class LayersCalledInTheWrongOrder(_Network):
    def forward(self, x):
        return self.linear1(self.dropout(torch.relu(self.linear2(x))))


@misconception(FFN, *EXCHANGED)
class NamesExchanged(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_ff, d_model, dropout)

    def forward(self, x):
        return self.linear1(self.dropout(torch.relu(self.linear2(x))))


@misconception(FFN, *EXCHANGED)
class SizesExchanged(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_ff, d_model, dropout)


@misconception(
    FFN,
    "weights-not-transposed",
    "nn.Linear keeps one row per output, so that the product is x @ weight.T: without the transpose it fits only where "
    "D = d_ff, and is wrong there.",
)
class WeightsNotTransposed(_Network):
    def forward(self, x):
        hidden = torch.relu(x @ self.linear1.weight + self.linear1.bias)
        return self.dropout(hidden) @ self.linear2.weight + self.linear2.bias


WIDTH = (
    "width-inside-fixed",
    "The width of the hidden layer is fixed: it is the argument d_ff, whatever d_model is; 4 · d_model is only usual.",
)


@misconception(FFN, *WIDTH)
class FourTimesAsWide(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, 4 * d_model, dropout)


@misconception(FFN, *WIDTH)
class AsWideAsThePapers(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, 2048, dropout)


@misconception(FFN, *WIDTH)
class AsWideAsTheToken(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_model, dropout)


@misconception(
    FFN,
    "second-layer-missing",
    "The hidden layer comes back, (…, d_ff): linear2 takes it to the width of the token again.",
)
class SecondLayerMissing(_Network):
    def forward(self, x):
        return self.dropout(torch.relu(self.linear1(x)))


@misconception(
    FFN,
    "layers-added",
    "W₂ is added instead of multiplied with: linear2 acts on the hidden layer.",
)
class LayersAdded(_Network):
    def forward(self, x):
        return torch.relu(self.linear1(x)) + self.linear2.weight.T + self.linear2.bias


@misconception(
    FFN,
    "leading-axes-lost",
    "The result has lost its leading axes: nn.Linear carries them along, so neither flatten nor reshape x.",
)
class LeadingAxesLost(_Network):
    def forward(self, x):
        return super().forward(x.reshape(-1, x.size(-1)))


@misconception(
    FFN,
    "batches-only",
    "Three axes are taken for granted: x may have any number of leading axes, and nn.Linear takes them as they come.",
)
class BatchesOnly(_Network):
    def forward(self, x):
        batch, length, _ = x.shape
        return super().forward(x.reshape(batch * length, -1)).view(batch, length, -1)


@misconception(
    FFN,
    "view-for-reshape",
    "view refuses a tensor whose numbers lie otherwise in memory, as after a transpose: leave the axes to nn.Linear.",
)
class ViewForReshape(_Network):
    def forward(self, x):
        return super().forward(x.view(-1, x.size(-1))).view(x.shape)


FROZEN = (
    "weights-fixed",
    "All weights of a new layer are alike, so that all hidden numbers learn the same: leave them as "
    "nn.Linear draws them.",
)


@misconception(FFN, *FROZEN)
class WeightsStartAtZero(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        for layer in (self.linear1, self.linear2):
            nn.init.zeros_(layer.weight)


@misconception(FFN, *FROZEN)
class WeightsStartAtOne(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        for layer in (self.linear1, self.linear2):
            nn.init.ones_(layer.weight)


# ----------------------------------------------------------------------------------------------------------- dropout


@misconception(
    FFN,
    "dropout-on-the-result",
    "Dropout acts on the result: it belongs between the ReLU and linear2, on the hidden layer.",
)
class DropoutOnTheResult(_Network):
    def forward(self, x):
        return self.dropout(self.linear2(torch.relu(self.linear1(x))))


@misconception(
    FFN,
    "dropout-on-the-input",
    "Dropout acts on x: it belongs between the ReLU and linear2, on the hidden layer.",
)
class DropoutOnTheInput(_Network):
    def forward(self, x):
        return self.linear2(torch.relu(self.linear1(self.dropout(x))))


TWICE = ("dropout-twice", "Dropout acts twice: on the hidden layer after the ReLU, and nowhere else.")


@misconception(FFN, *TWICE)
class DropoutOnTheResultToo(_Network):
    def forward(self, x):
        return self.dropout(super().forward(x))


@misconception(FFN, *TWICE)
class DropoutOnTheInputToo(_Network):
    def forward(self, x):
        return super().forward(self.dropout(x))


@misconception(
    FFN,
    "dropout-in-evaluation",
    "Dropout acts in evaluation mode: use an nn.Dropout module, or hand training=self.training to the function.",
)
class DropoutInEvaluation(_Network):
    def drop(self, hidden):
        return F.dropout(hidden, self.dropout.p)


@misconception(
    FFN,
    "dropout-in-evaluation",
    "Dropout acts in evaluation mode: use an nn.Dropout module, or hand training=self.training to the function.",
)
class DropoutInEvaluationOnly(_Network):
    def drop(self, hidden):
        return F.dropout(hidden, self.dropout.p, not self.training)


@misconception(
    FFN,
    "keep-probability",
    "dropout is taken as the share to keep: it is the share to drop, which is what nn.Dropout expects.",
)
class KeepProbability(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, 1 - dropout)


@misconception(FFN, "fixed-dropout", "The argument dropout is ignored: a fixed rate is used.")
class FixedDropout(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, 0.1)


@misconception(FFN, "fixed-dropout", "The argument dropout is ignored: a fixed rate is used.")
class DropoutByDefault(_Network):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, 0.5)


@misconception(FFN, "dropout-by-default", "Without the third argument the network drops: the default of dropout is 0.")
class DropoutGivenByDefault(_Network):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__(d_model, d_ff, dropout)


@misconception(
    FFN,
    "what-stays-is-not-scaled",
    "What dropout leaves is not scaled: divide it by 1 − p, so that the mean stays, as nn.Dropout does.",
)
class WhatStaysIsNotScaled(_Network):
    def drop(self, hidden):
        return F.dropout(hidden, self.dropout.p, self.training) * (1 - self.dropout.p if self.training else 1)


@misconception(
    FFN,
    "scaled-in-evaluation",
    "The hidden layer is scaled in evaluation: nn.Dropout scales in training, and leaves everything alone afterwards.",
)
class ScaledInEvaluation(_Network):
    def drop(self, hidden):
        return F.dropout(hidden, self.dropout.p, self.training) * (1 - self.dropout.p)


@misconception(
    FFN,
    "scaled-by-the-share-dropped",
    "What dropout leaves is divided by p: it is to be divided by the share that stays, 1 − p.",
)
class ScaledByTheShareDropped(_Network):
    def drop(self, hidden):
        rate = self.dropout.p
        return F.dropout(hidden, rate, self.training) * ((1 - rate) / rate if self.training and rate else 1)


DRAW = (
    "one-draw-for-all",
    "One draw serves all tokens, or all entries of a token: dropout draws for each entry of (…, d_ff) by itself.",
)


@misconception(FFN, *DRAW)
class OneDrawForAllTokens(_Network):
    def drop(self, hidden):
        return hidden * self.dropout(torch.ones_like(hidden[(0,) * (hidden.dim() - 1)]))


@misconception(FFN, *DRAW)
class OneDrawForAToken(_Network):
    def drop(self, hidden):
        return hidden * self.dropout(torch.ones_like(hidden[..., :1]))


@misconception(FFN, *DRAW)
class OneDrawForASentence(_Network):
    def drop(self, hidden):
        return hidden * self.dropout(torch.ones_like(hidden[:1] if hidden.dim() > 2 else hidden))


@misconception(FFN, *DRAW)
class WholeChannels(_Network):
    def drop(self, hidden):
        return F.dropout1d(hidden, self.dropout.p, self.training) if hidden.dim() in (2, 3) else self.dropout(hidden)


@misconception(
    FFN,
    "same-draw-in-every-call",
    "Every call drops the same entries: neither seed the generator nor keep the draw; dropout draws anew each time.",
)
class SameDrawInEveryCall(_Network):
    def drop(self, hidden):
        torch.default_generator.manual_seed(0)
        return self.dropout(hidden)


# --------------------------------------------------------------------------------------------------------- gradients

CUT = ("gradient-cut", "The way of the gradient is cut: something detaches it (detach, .data, no_grad, item or NumPy).")


@misconception(FFN, *CUT)
class InputDetached(_Network):
    def forward(self, x):
        return super().forward(x.detach())


@misconception(FFN, *CUT)
class HiddenLayerDetached(_Network):
    def cut(self, hidden):
        return torch.relu(hidden.detach())


@misconception(FFN, *CUT)
class WeightsDetached(_Network):
    def forward(self, x):
        hidden = torch.relu(F.linear(x, self.linear1.weight.data, self.linear1.bias.data))
        return F.linear(self.dropout(hidden), self.linear2.weight.data, self.linear2.bias.data)


@misconception(FFN, *CUT)
class NoGradient(_Network):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


# -------------------------------------------------------------------------------------------------- count_parameters

COUNT = "count_parameters"


def _linear(columns, rows):
    return rows * columns + rows


def _counts(
    sizes, *, embedding=None, attention=None, network=None, norm=None, attentions=3, networks=2, norms=5, layers=None
):
    """The right counts, with the numbers of one part put in another's place."""
    vocab_size, d_model, _, d_ff, num_layers = sizes
    layers = num_layers if layers is None else layers
    counts = {
        "embedding": vocab_size * d_model if embedding is None else embedding,
        "attention": layers * attentions * (4 * _linear(d_model, d_model) if attention is None else attention),
        "feed_forward": layers
        * networks
        * (_linear(d_model, d_ff) + _linear(d_ff, d_model) if network is None else network),
        "norm": layers * norms * (2 * d_model if norm is None else norm),
    }
    return counts | {"total": sum(counts.values())}


TABLES = (
    "several-tables",
    "The table is counted more than once: source, target and output share a single one of V rows.",
)


@misconception(COUNT, *TABLES)
def two_tables(*sizes):
    return _counts(sizes, embedding=2 * sizes[0] * sizes[1])


@misconception(COUNT, *TABLES)
def three_tables(*sizes):
    return _counts(sizes, embedding=3 * sizes[0] * sizes[1])


@misconception(
    COUNT,
    "output-bias",
    "A bias of V numbers is counted with the table: the output has none, it shares the table alone.",
)
def output_bias(*sizes):
    return _counts(sizes, embedding=sizes[0] * sizes[1] + sizes[0])


@misconception(
    COUNT, "table-with-bias", "The table is counted with a bias of D numbers: an embedding has rows, no bias."
)
def table_with_bias(*sizes):
    return _counts(sizes, embedding=sizes[0] * sizes[1] + sizes[1])


@misconception(
    COUNT,
    "attention-biases-forgotten",
    "The biases of the attention are missing: each of its four layers has D·D weights and D biases.",
)
def attention_biases_forgotten(*sizes):
    return _counts(sizes, attention=4 * sizes[1] ** 2)


@misconception(
    COUNT,
    "output-projection-forgotten",
    "The attention's fourth layer is missing: after w_q, w_k and w_v comes w_o.",
)
def output_projection_forgotten(*sizes):
    return _counts(sizes, attention=3 * _linear(sizes[1], sizes[1]))


@misconception(
    COUNT,
    "multiplied-by-heads",
    "The attention is counted for each head: the heads share the D columns of one projection, so their number changes "
    "nothing.",
)
def multiplied_by_heads(*sizes):
    return _counts(sizes, attention=4 * sizes[2] * _linear(sizes[1], sizes[1]))


@misconception(
    COUNT,
    "one-head-only",
    "The projections are counted for one head, D columns to D / H: all heads together take D to D.",
)
def one_head_only(*sizes):
    _, d_model, heads, _, _ = sizes
    width = d_model // heads
    return _counts(sizes, attention=3 * _linear(d_model, width) + _linear(width, d_model))


@misconception(
    COUNT,
    "one-head-only",
    "The projections are counted for one head, D columns to D / H: all heads together take D to D.",
)
def one_head_and_whole_output(*sizes):
    _, d_model, heads, _, _ = sizes
    return _counts(sizes, attention=3 * _linear(d_model, d_model // heads) + _linear(d_model, d_model))


@misconception(
    COUNT,
    "cross-attention-forgotten",
    "A decoder layer has two attentions, one to itself and one to the source: three for each pair of layers.",
)
def cross_attention_forgotten(*sizes):
    return _counts(sizes, attentions=2)


@misconception(
    COUNT,
    "cross-attention-forgotten",
    "A decoder layer has two attentions, each with a norm, and one more norm: three attentions and five norms for each pair "
    "of layers.",
)
def cross_attention_and_its_norm_forgotten(*sizes):
    return _counts(sizes, attentions=2, norms=4)


NETWORK = (
    "feed-forward-biases-forgotten",
    "The biases of the feed-forward network are missing: linear1 has d_ff of them, and linear2 has D.",
)


@misconception(COUNT, *NETWORK)
def feed_forward_biases_forgotten(*sizes):
    return _counts(sizes, network=2 * sizes[1] * sizes[3])


@misconception(
    COUNT,
    "all-biases-forgotten",
    "No bias is counted: a linear layer from n to m numbers has m · n weights and m biases, in attention and feed-forward.",
)
def all_biases_forgotten(*sizes):
    return _counts(sizes, attention=4 * sizes[1] ** 2, network=2 * sizes[1] * sizes[3])


BIAS = (
    "bias-of-the-wrong-width",
    "A bias has one number for each output of its layer: d_ff for linear1 and D for linear2.",
)


@misconception(COUNT, *BIAS)
def biases_as_wide_inside(*sizes):
    _, d_model, _, d_ff, _ = sizes
    return _counts(sizes, network=2 * _linear(d_model, d_ff))


@misconception(COUNT, *BIAS)
def biases_as_wide_outside(*sizes):
    _, d_model, _, d_ff, _ = sizes
    return _counts(sizes, network=2 * _linear(d_ff, d_model))


@misconception(
    COUNT, "one-linear-layer", "Only one layer of the feed-forward network is counted: it goes from D to d_ff and back."
)
def one_linear_layer(*sizes):
    return _counts(sizes, network=_linear(sizes[1], sizes[3]))


@misconception(
    COUNT,
    "norm-without-offset",
    "A norm is counted with D numbers: it has a gain and an offset, 2D.",
)
def norm_without_offset(*sizes):
    return _counts(sizes, norm=sizes[1])


@misconception(
    COUNT, "norm-of-one-number", "A norm is counted with two numbers: its gain and its offset are D numbers each."
)
def norm_of_one_number(*sizes):
    return _counts(sizes, norm=2)


NORMS = (
    "norms-miscounted",
    "There are two norms in an encoder layer and three in a decoder layer, one for each sub-layer: five for each pair.",
)


@misconception(COUNT, *NORMS)
def four_norms(*sizes):
    return _counts(sizes, norms=4)


@misconception(COUNT, *NORMS)
def six_norms(*sizes):
    return _counts(sizes, norms=6)


@misconception(COUNT, *NORMS)
def three_norms(*sizes):
    return _counts(sizes, norms=3)


@misconception(COUNT, *NORMS)
def two_norms(*sizes):
    return _counts(sizes, norms=2)


@misconception(
    COUNT,
    "final-norms-counted",
    "A norm behind the last encoder and the last decoder layer is counted: this model has none there.",
)
def final_norms_counted(*sizes):
    counts = _counts(sizes)
    return counts | {"norm": counts["norm"] + 4 * sizes[1], "total": counts["total"] + 4 * sizes[1]}


@misconception(
    COUNT,
    "encoder-only",
    "Only the encoder is counted: N decoder layers follow, with two attentions, one network and three norms each.",
)
def encoder_only(*sizes):
    return _counts(sizes, attentions=1, networks=1, norms=2)


@misconception(COUNT, "decoder-only", "Only the decoder is counted: N encoder layers come before it.")
def decoder_only(*sizes):
    return _counts(sizes, attentions=2, networks=1, norms=3)


@misconception(
    COUNT,
    "feed-forward-once-per-pair",
    "The feed-forward networks are counted N times: the encoder has N of them and the decoder N more.",
)
def feed_forward_once_per_pair(*sizes):
    return _counts(sizes, networks=1)


@misconception(COUNT, "layers-forgotten", "One layer of each kind is counted: there are num_layers of each.")
def layers_forgotten(*sizes):
    return _counts(sizes, layers=1)


@misconception(
    COUNT,
    "layers-shared-out",
    "num_layers is divided between encoder and decoder: each of them has num_layers layers.",
)
def layers_shared_out(*sizes):
    return _counts(sizes, layers=sizes[4] // 2)


@misconception(COUNT, "total-without-embedding", "The table is missing in the total: it is the sum of all four parts.")
def total_without_embedding(*sizes):
    counts = _counts(sizes)
    return counts | {"total": counts["total"] - counts["embedding"]}


@misconception(COUNT, "total-without-norms", "The norms are missing in the total: it is the sum of all four parts.")
def total_without_norms(*sizes):
    counts = _counts(sizes)
    return counts | {"total": counts["total"] - counts["norm"]}


@misconception(COUNT, "total-missing", "The dict has no total: it has five keys, the four parts and their sum.")
def total_missing(*sizes):
    counts = _counts(sizes)
    del counts["total"]
    return counts


@misconception(
    COUNT,
    "floats",
    "The numbers are floats, which are exact up to 2⁵³ only: use integers and // throughout, no /, 2.0 or float().",
)
def floats(*sizes):
    return {key: float(number) for key, number in _counts(sizes).items()}


@misconception(
    COUNT,
    "through-floats",
    "The integers went through floats on the way, which are exact up to 2⁵³ only: use // and integers throughout.",
)
def through_floats(*sizes):
    return {key: int(float(number)) for key, number in _counts(sizes).items()}


@misconception(COUNT, "total-only", "Only the total comes back: a dict with the four parts and the total is wanted.")
def total_only(*sizes):
    return _counts(sizes)["total"]
