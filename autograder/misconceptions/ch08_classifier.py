"""Known mistakes of chapter 8, each as the code that makes it and the hint that a tutor would give."""

import copy
import math

import torch
from torch import nn

from autograder.registry import misconception
from transformer_lab.builtin import positional_encoding

# --------------------------------------------------------------------------------------------------- masked_mean_pool

POOL = "masked_mean_pool"


def mean_of_real(hidden, mask):
    """The correct mean, (B, D)."""
    real = mask.unsqueeze(-1)
    return hidden.masked_fill(~real, 0.0).sum(1) / real.sum(1).clamp(min=1)


def _sum_of_real(hidden, mask):
    return hidden.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)


@misconception(
    POOL,
    "padding-averaged",
    "The mean runs over padding too, so that it depends on the longest row of the batch: leave padding out of sum and count.",
)
def padding_averaged(hidden, mask):
    return hidden.mean(1)


@misconception(POOL, "sum-for-mean", "That is the sum over the real tokens: divide it by their number.")
def sum_for_mean(hidden, mask):
    return _sum_of_real(hidden, mask)


@misconception(
    POOL, "sum-of-everything", "That is the sum over all tokens, padding too: the mean over real ones is wanted."
)
def sum_of_everything(hidden, mask):
    return hidden.sum(1)


@misconception(
    POOL,
    "padding-counted",
    "The sum leaves padding out, but it is divided by L: divide by the number of real tokens of the row, mask.sum(1).",
)
def padding_counted(hidden, mask):
    return (hidden * mask.unsqueeze(-1)).mean(1)


@misconception(
    POOL,
    "padding-added",
    "Padding is added to the sum, though it is not counted: what the model leaves there is not 0, so mask it.",
)
def padding_added(hidden, mask):
    return hidden.sum(1) / mask.sum(1, keepdim=True)


@misconception(POOL, "first-position", "That is the first position alone: the mean over all real tokens is wanted.")
def first_position(hidden, mask):
    return hidden[:, 0]


@misconception(
    POOL, "last-position", "That is the last position alone, which is padding in short rows: the mean is wanted."
)
def last_position(hidden, mask):
    return hidden[:, -1]


@misconception(POOL, "last-real-token", "That is one token, the last one by the count: the mean over all is wanted.")
def last_by_the_count(hidden, mask):
    return hidden[torch.arange(len(hidden)), mask.sum(1) - 1]


@misconception(POOL, "maximum", "That is the largest number of each feature: the mean is wanted.")
def maximum(hidden, mask):
    return hidden.masked_fill(~mask.unsqueeze(-1), -math.inf).amax(1)


INVERTED = "That is the mean of the padding: True marks real tokens, and they are to be averaged."


@misconception(POOL, "mask-inverted", INVERTED)
def mask_inverted(hidden, mask):
    return mean_of_real(hidden, ~mask)


@misconception(POOL, "mask-inverted", INVERTED)
def mask_inverted_without_care(hidden, mask):
    hide = (~mask).unsqueeze(-1)
    return (hidden * hide).sum(1) / hide.sum(1)


@misconception(
    POOL, "over-the-features", "The mean runs over the features: it runs over the tokens, axis 1, and leaves (B, D)."
)
def over_the_features(hidden, mask):
    real = mask.unsqueeze(-1)
    return (hidden * real).sum(-1) / real.sum(1)


@misconception(
    POOL, "over-the-features", "The mean runs over the features: it runs over the tokens, axis 1, and leaves (B, D)."
)
def mean_over_the_features(hidden, mask):
    return hidden.mean(-1)


@misconception(POOL, "over-the-batch", "The mean runs over the rows of the batch: it runs over the tokens, axis 1.")
def over_the_batch(hidden, mask):
    return (hidden * mask.unsqueeze(-1)).sum(0) / mask.sum(0).unsqueeze(-1).clamp(min=1)


@misconception(
    POOL,
    "one-count-for-all",
    "The sums are divided by the number of real tokens of the whole batch: each row has its own.",
)
def one_count_for_all(hidden, mask):
    return _sum_of_real(hidden, mask) / mask.sum()


@misconception(
    POOL, "average-count", "The sums are divided by the average number of real tokens: each row is divided by its own."
)
def average_count(hidden, mask):
    return _sum_of_real(hidden, mask) / (mask.sum() / len(mask))


@misconception(
    POOL, "longest-count", "The sums are divided by the length of the longest row: each row is divided by its own."
)
def longest_count(hidden, mask):
    return _sum_of_real(hidden, mask) / mask.sum(1).max()


@misconception(
    POOL, "one-mean-for-the-batch", "The real tokens of all rows are averaged together: each row has a mean of its own."
)
def one_mean_for_the_batch(hidden, mask):
    return hidden[mask].mean(0).expand(len(hidden), -1)


@misconception(POOL, "first-row-for-all", "The first row's mask serves all rows: each has its own.")
def first_row_for_all(hidden, mask):
    return mean_of_real(hidden, mask[:1].expand_as(mask))


@misconception(
    POOL,
    "counts-from-the-left",
    "The real tokens are counted and as many taken from the left: padding may stand anywhere, use the mask itself.",
)
def counts_from_the_left(hidden, mask):
    lengths = mask.sum(1, keepdim=True)
    return mean_of_real(hidden, torch.arange(mask.size(1)) < lengths)


@misconception(
    POOL, "root-of-the-count", "The sum is divided by the root of the count: that is another pooling, a mean is wanted."
)
def root_of_the_count(hidden, mask):
    return _sum_of_real(hidden, mask) / mask.sum(1, keepdim=True).sqrt()


@misconception(
    POOL, "count-off-by-one", "The count is one too large: divide by the number of real tokens, nothing added."
)
def count_off_by_one(hidden, mask):
    return _sum_of_real(hidden, mask) / (mask.sum(1, keepdim=True) + 1)


@misconception(
    POOL,
    "filled-with-infinity",
    "Padding is filled with −∞, as scores are before a softmax: in a sum it must be 0.",
)
def filled_with_infinity(hidden, mask):
    return hidden.masked_fill(~mask.unsqueeze(-1), -math.inf).sum(1) / mask.sum(1, keepdim=True)


@misconception(POOL, "axis-kept", "The axis of the tokens is still there, with length 1: the result is (B, D).")
def axis_kept(hidden, mask):
    return mean_of_real(hidden, mask).unsqueeze(1)


@misconception(
    POOL, "squeezed", "squeeze() takes every axis of length 1 away, also B or D: the result is always (B, D)."
)
def squeezed(hidden, mask):
    return mean_of_real(hidden, mask).squeeze()


@misconception(POOL, "changed-in-place", "hidden is changed in place, and with it the caller's tensor: make a new one.")
def changed_in_place(hidden, mask):
    hidden[~mask] = 0
    return hidden.sum(1) / mask.sum(1, keepdim=True)


@misconception(POOL, "changed-in-place", "hidden is changed in place, and with it the caller's tensor: make a new one.")
def multiplied_in_place(hidden, mask):
    hidden *= mask.unsqueeze(-1)
    return hidden.sum(1) / mask.sum(1, keepdim=True)


@misconception(POOL, "gradient-cut", "No gradient comes back: detach, .data, no_grad or NumPy cuts it.")
def gradient_cut(hidden, mask):
    return mean_of_real(hidden.detach(), mask)


# ------------------------------------------------------------------------------------------------------------ Encoder

ENCODER = "Encoder"


class _Encoder(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, x, mask=None):
        return self.end(self.stack(x, mask))

    def stack(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def end(self, x):
        return x if self.norm is None else self.norm(x)


@misconception(
    ENCODER, "x-not-carried-on", "Every layer gets the x of the beginning: each gets what the one before it returned."
)
class XNotCarriedOn(_Encoder):
    def stack(self, x, mask):
        for layer in self.layers:
            output = layer(x, mask)
        return output


@misconception(ENCODER, "order-reversed", "The layers run from the last to the first: the order is that of the list.")
class OrderReversed(_Encoder):
    def stack(self, x, mask):
        for layer in reversed(self.layers):
            x = layer(x, mask)
        return x


@misconception(
    ENCODER, "one-layer-for-all", "The first layer is run again and again: each layer of the list has its turn."
)
class OneLayerForAll(_Encoder):
    def stack(self, x, mask):
        for _ in self.layers:
            x = self.layers[0](x, mask)
        return x


@misconception(ENCODER, "first-layer-only", "Only the first layer runs: is the return inside the loop?")
class FirstLayerOnly(_Encoder):
    def stack(self, x, mask):
        return self.layers[0](x, mask)


@misconception(ENCODER, "last-layer-left-out", "The last layer never runs: the loop ends one too early.")
class LastLayerLeftOut(_Encoder):
    def stack(self, x, mask):
        for layer in self.layers[:-1]:
            x = layer(x, mask)
        return x


@misconception(ENCODER, "first-layer-left-out", "The first layer never runs: lists begin at 0.")
class FirstLayerLeftOut(_Encoder):
    def stack(self, x, mask):
        for layer in self.layers[1:]:
            x = layer(x, mask)
        return x


@misconception(
    ENCODER, "x-added", "x is added to what the layers return: the residual paths are inside the layers, not here."
)
class XAdded(_Encoder):
    def stack(self, x, mask):
        for layer in self.layers:
            x = x + layer(x, mask)
        return x


@misconception(
    ENCODER, "outputs-added-up", "The outputs of the layers are added up: the last layer's output is the result."
)
class OutputsAddedUp(_Encoder):
    def stack(self, x, mask):
        total = torch.zeros_like(x)
        for layer in self.layers:
            x = layer(x, mask)
            total = total + x
        return total


@misconception(
    ENCODER, "every-output-returned", "The outputs of all layers come back as a list: the last one alone is the result."
)
class EveryOutputReturned(_Encoder):
    def forward(self, x, mask=None):
        outputs = []
        for layer in self.layers:
            x = layer(x, mask)
            outputs.append(x)
        outputs[-1] = self.end(x)
        return outputs


@misconception(
    ENCODER, "mask-not-handed-on", "No layer gets the mask, so that padding is read: it is the second argument of each."
)
class MaskNotHandedOn(_Encoder):
    def stack(self, x, mask):
        for layer in self.layers:
            x = layer(x)
        return x


@misconception(
    ENCODER, "mask-to-the-first-only", "Only the first layer gets the mask: padding is read by the others. All get it."
)
class MaskToTheFirstOnly(_Encoder):
    def stack(self, x, mask):
        for layer in self.layers:
            x, mask = layer(x, mask), None
        return x


@misconception(
    ENCODER, "mask-to-the-last-only", "Only the last layer gets the mask: padding is read by the others. All get it."
)
class MaskToTheLastOnly(_Encoder):
    def stack(self, x, mask):
        for place, layer in enumerate(self.layers, start=1):
            x = layer(x, mask if place == len(self.layers) else None)
        return x


@misconception(ENCODER, "mask-inverted", "The mask is turned round on its way: the layers get it as it is.")
class MaskInverted(_Encoder):
    def stack(self, x, mask):
        return super().stack(x, None if mask is None else ~mask)


@misconception(ENCODER, "mask-with-more-axes", "The mask gets further axes: it already has those of heads and queries.")
class MaskWithMoreAxes(_Encoder):
    def stack(self, x, mask):
        return super().stack(x, None if mask is None else mask[:, None, None])


def _mask_required(self, x, mask):
    return _Encoder.forward(self, x, mask)


_mask_required.__qualname__ = "Encoder.forward"  # Python names the function in its TypeError


@misconception(ENCODER, "mask-has-no-default", "forward must work without a mask: give it the default None.")
class MaskHasNoDefault(_Encoder):
    forward = _mask_required


@misconception(ENCODER, "norm-forgotten", "The norm is never called: it follows the last layer.")
class NormForgotten(_Encoder):
    def end(self, x):
        return x


@misconception(
    ENCODER, "norm-after-every-layer", "The norm is called after every layer: once, behind the last, is right."
)
class NormAfterEveryLayer(_Encoder):
    def forward(self, x, mask=None):
        for layer in self.layers:
            x = self.end(layer(x, mask))
        return x


@misconception(
    ENCODER, "norm-before-every-layer", "The norm is called before every layer: once, behind the last, is right."
)
class NormBeforeEveryLayer(_Encoder):
    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(self.end(x), mask)
        return x


@misconception(ENCODER, "norm-at-the-beginning", "The norm comes before the first layer: it follows the last one.")
class NormAtTheBeginning(_Encoder):
    def forward(self, x, mask=None):
        return self.stack(self.end(x), mask)


@misconception(
    ENCODER, "norm-at-both-ends", "The norm is called before the first layer too: once, behind the last, is right."
)
class NormAtBothEnds(_Encoder):
    def forward(self, x, mask=None):
        return self.end(self.stack(self.end(x), mask))


@misconception(ENCODER, "norm-called-twice", "The norm is called twice at the end: once is right.")
class NormCalledTwice(_Encoder):
    def end(self, x):
        return super().end(super().end(x))


@misconception(ENCODER, "norm-added", "What the norm returns is added to x: it is the result, and nothing is added.")
class NormAdded(_Encoder):
    def end(self, x):
        return x if self.norm is None else x + self.norm(x)


@misconception(
    ENCODER, "norm-taken-for-granted", "norm may be None, and then nothing is called: ask whether there is one."
)
class NormTakenForGranted(_Encoder):
    def end(self, x):
        return self.norm(x)


@misconception(
    ENCODER,
    "layers-in-a-plain-list",
    "The layers stand in a plain list, where PyTorch does not find their parameters: use nn.ModuleList.",
)
class LayersInAPlainList(_Encoder):
    def __init__(self, layers, norm=None):
        super().__init__([], norm)
        del self.layers
        self.layers = list(layers)


@misconception(
    ENCODER, "layers-under-another-name", "The layers are kept under another name: the attribute is called layers."
)
class LayersUnderAnotherName(_Encoder):
    def __init__(self, layers, norm=None):
        super().__init__(layers, norm)
        self.blocks = self.layers
        del self.layers

    def stack(self, x, mask):
        for layer in self.blocks:
            x = layer(x, mask)
        return x


@misconception(ENCODER, "norm-under-another-name", "The norm is kept under another name: the attribute is called norm.")
class NormUnderAnotherName(_Encoder):
    def __init__(self, layers, norm=None):
        super().__init__(layers)
        self.final_norm = norm

    def end(self, x):
        return x if self.final_norm is None else self.final_norm(x)


@misconception(
    ENCODER, "layers-copied", "The layers are copied, so that the given ones learn nothing: use the objects themselves."
)
class LayersCopied(_Encoder):
    def __init__(self, layers, norm=None):
        super().__init__([copy.deepcopy(layer) for layer in layers], norm)


@misconception(
    ENCODER,
    "first-layer-copied",
    "The first layer is copied for all places, as nn.TransformerEncoder does: the list holds the layers, take them.",
)
class FirstLayerCopied(_Encoder):
    def __init__(self, layers, norm=None):
        super().__init__([copy.deepcopy(layers[0]) for _ in layers], norm)


@misconception(ENCODER, "gradient-cut", "No gradient comes back through the layers: detach, .data or no_grad cuts it.")
class EncoderGradientCut(_Encoder):
    def stack(self, x, mask):
        for layer in self.layers:
            x = layer(x.detach(), mask)
        return x


@misconception(ENCODER, "gradient-cut", "No gradient comes back through the layers: detach, .data or no_grad cuts it.")
class EncoderWithoutGradient(_Encoder):
    def forward(self, x, mask=None):
        with torch.no_grad():
            return super().forward(x, mask)


# ------------------------------------------------------------------------------------------------- SequenceClassifier

CLASSIFIER = "SequenceClassifier"


class _Classifier(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__()
        self.embed, self.encoder = embed, encoder
        self.head = nn.Linear(d_model, num_classes)

    def forward(self, inputs, mask):
        return self.end(self.pool(self.encode(self.embed(inputs), mask), mask))

    def encode(self, x, mask):
        return self.encoder(x, mask[:, None, None])

    def pool(self, hidden, mask):
        return mean_of_real(hidden, mask)

    def end(self, pooled):
        return self.head(pooled)


@misconception(
    CLASSIFIER,
    "encoder-without-mask",
    "The encoder gets no mask, so that tokens read padding: hand the mask on as (B, 1, 1, L).",
)
class EncoderWithoutMask(_Classifier):
    def encode(self, x, mask):
        return self.encoder(x)


AXES = "The encoder's mask lacks axes: it is (B, 1, 1, L), so that it closes keys for all heads and queries."


@misconception(CLASSIFIER, "mask-axes-missing", AXES)
class MaskAsItCame(_Classifier):
    def encode(self, x, mask):
        return self.encoder(x, mask)


@misconception(CLASSIFIER, "mask-axes-missing", AXES)
class MaskWithOneAxis(_Classifier):
    def encode(self, x, mask):
        return self.encoder(x, mask[:, None])


@misconception(
    CLASSIFIER, "closes-queries", "The encoder's mask closes queries, (B, 1, L, 1): it closes keys, (B, 1, 1, L)."
)
class ClosesQueries(_Classifier):
    def encode(self, x, mask):
        return self.encoder(x, mask[:, None, :, None])


@misconception(
    CLASSIFIER,
    "queries-and-keys",
    "The encoder's mask has a row for each query, (B, 1, L, L): it closes keys for all alike, (B, 1, 1, L).",
)
class QueriesAndKeys(_Classifier):
    def encode(self, x, mask):
        return self.encoder(x, (mask[:, :, None] & mask[:, None, :])[:, None])


@misconception(
    CLASSIFIER, "encoder-mask-inverted", "The encoder's mask is turned round: True marks what may be attended to."
)
class EncoderMaskInverted(_Classifier):
    def encode(self, x, mask):
        return self.encoder(x, ~mask[:, None, None])


@misconception(CLASSIFIER, "encoder-mask-in-numbers", "The encoder's mask holds numbers: it is boolean, as it came.")
class EncoderMaskInNumbers(_Classifier):
    def encode(self, x, mask):
        return self.encoder(x, mask[:, None, None].float())


@misconception(
    CLASSIFIER,
    "padding-averaged",
    "Padding enters the mean, where the encoder leaves vectors too: average the real tokens, by masked_mean_pool.",
)
class PaddingAveraged(_Classifier):
    def pool(self, hidden, mask):
        return hidden.mean(1)


@misconception(
    CLASSIFIER, "mask-not-used", "The mask is used nowhere: the encoder needs it, and the mean needs it too."
)
class MaskNotUsed(PaddingAveraged):
    def encode(self, x, mask):
        return self.encoder(x)


@misconception(CLASSIFIER, "sum-for-mean", "The real tokens are added up: the head gets their mean.")
class SumForMean(_Classifier):
    def pool(self, hidden, mask):
        return _sum_of_real(hidden, mask)


@misconception(
    CLASSIFIER, "padding-counted", "The sum over the real tokens is divided by L: divide by the number of real tokens."
)
class PaddingCounted(_Classifier):
    def pool(self, hidden, mask):
        return (hidden * mask.unsqueeze(-1)).mean(1)


@misconception(
    CLASSIFIER, "pooling-mask-inverted", "The mean is that of the padding: hand the mask on as it is, True = real."
)
class PoolingMaskInverted(_Classifier):
    def pool(self, hidden, mask):
        return mean_of_real(hidden, ~mask)


@misconception(
    CLASSIFIER, "first-position", "The head gets the first token alone: it gets the mean over all real ones."
)
class FirstPosition(_Classifier):
    def pool(self, hidden, mask):
        return hidden[:, 0]


@misconception(
    CLASSIFIER, "last-position", "The head gets the last position alone: it gets the mean over the real tokens."
)
class LastPosition(_Classifier):
    def pool(self, hidden, mask):
        return hidden[:, -1]


@misconception(CLASSIFIER, "maximum", "The head gets each feature's maximum: it gets the mean over the real tokens.")
class Maximum(_Classifier):
    def pool(self, hidden, mask):
        return hidden.masked_fill(~mask.unsqueeze(-1), -math.inf).amax(1)


@misconception(
    CLASSIFIER, "no-pooling", "There are logits for every token: average the tokens before or after the head."
)
class NoPooling(_Classifier):
    def pool(self, hidden, mask):
        return hidden


@misconception(
    CLASSIFIER,
    "softmax-inside",
    "forward ends with a softmax: return the logits, as the loss makes the probabilities itself.",
)
class SoftmaxInside(_Classifier):
    def end(self, pooled):
        return super().end(pooled).softmax(-1)


@misconception(
    CLASSIFIER, "softmax-over-the-batch", "A softmax runs over the rows of the batch: return the logits as they are."
)
class SoftmaxOverTheBatch(_Classifier):
    def end(self, pooled):
        return super().end(pooled).softmax(0)


@misconception(
    CLASSIFIER, "log-softmax-inside", "forward ends with a log-softmax: return the logits, the loss does the rest."
)
class LogSoftmaxInside(_Classifier):
    def end(self, pooled):
        return super().end(pooled).log_softmax(-1)


@misconception(CLASSIFIER, "sigmoid-inside", "forward ends with a sigmoid: return the logits as the head gives them.")
class SigmoidInside(_Classifier):
    def end(self, pooled):
        return super().end(pooled).sigmoid()


@misconception(
    CLASSIFIER, "classes-for-logits", "forward returns the most likely class: return a number for each class, (B, C)."
)
class ClassesForLogits(_Classifier):
    def end(self, pooled):
        return super().end(pooled).argmax(-1)


@misconception(
    CLASSIFIER, "activation-before-the-head", "A ReLU cuts the mean before the head: nothing comes between them."
)
class ActivationBeforeTheHead(_Classifier):
    def end(self, pooled):
        return super().end(pooled.relu())


@misconception(
    CLASSIFIER, "activation-before-the-head", "A tanh bends the mean before the head: nothing comes between them."
)
class TanhBeforeTheHead(_Classifier):
    def end(self, pooled):
        return super().end(pooled.tanh())


@misconception(
    CLASSIFIER,
    "scaled-again",
    "The vectors are multiplied by √D: the embedding did that, and nothing is to be done here.",
)
class ScaledAgain(_Classifier):
    def encode(self, x, mask):
        return super().encode(x * math.sqrt(x.size(-1)), mask)


@misconception(
    CLASSIFIER,
    "positions-added",
    "A table of positions is added to the vectors: that is the embedding's to do, or not.",
)
class PositionsAdded(_Classifier):
    def encode(self, x, mask):
        width = x.size(-1) + x.size(-1) % 2
        return super().encode(x + positional_encoding(x.size(1), width)[:, : x.size(-1)], mask)


@misconception(CLASSIFIER, "encoder-not-called", "The encoder is never called: it stands between embedding and mean.")
class EncoderNotCalled(_Classifier):
    def encode(self, x, mask):
        return x


@misconception(
    CLASSIFIER, "padding-guessed", "Padding is taken to be where the inputs are 0: the mask says where it is."
)
class PaddingGuessed(_Classifier):
    def forward(self, inputs, mask):
        return super().forward(inputs, inputs != 0)


@misconception(CLASSIFIER, "squeezed", "squeeze() takes the axis of a batch of one away: the logits are always (B, C).")
class Squeezed(_Classifier):
    def end(self, pooled):
        return super().end(pooled).squeeze()


@misconception(CLASSIFIER, "head-without-bias", "The head has no bias: nn.Linear has one unless it is told not to.")
class HeadWithoutBias(_Classifier):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__(embed, encoder, d_model, num_classes)
        self.head = nn.Linear(d_model, num_classes, bias=False)


@misconception(
    CLASSIFIER, "head-under-another-name", "The head is kept under another name: the attribute is called head."
)
class HeadUnderAnotherName(_Classifier):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__(embed, encoder, d_model, num_classes)
        self.classifier = self.head
        del self.head

    def end(self, pooled):
        return self.classifier(pooled)


@misconception(
    CLASSIFIER,
    "parts-under-other-names",
    "The parts are kept under other names: the attributes are called embed, encoder and head.",
)
class PartsUnderOtherNames(_Classifier):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__(embed, encoder, d_model, num_classes)
        self.embedding = self.embed
        del self.embed

    def forward(self, inputs, mask):
        return self.end(self.pool(self.encode(self.embedding(inputs), mask), mask))


@misconception(
    CLASSIFIER, "encoder-cut-off", "No gradient comes back to encoder and embedding: something detaches the vectors."
)
class EncoderCutOff(_Classifier):
    def end(self, pooled):
        return super().end(pooled.detach())


@misconception(
    CLASSIFIER, "embedding-cut-off", "No gradient comes back to the embedding: something detaches its vectors."
)
class EmbeddingCutOff(_Classifier):
    def encode(self, x, mask):
        return super().encode(x.detach(), mask)
