"""Known mistakes of chapter 9, each as the code that makes it and the hint that a tutor would give."""

import math
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn

from autograder.registry import misconception

# ------------------------------------------------------------------------------------------------------ shift_targets

SHIFT = "shift_targets"
NOT_SHIFTED = "Input and labels are the same columns: the model has only to repeat what it reads. Shift them by one."


@misconception(SHIFT, "not-shifted", NOT_SHIFTED)
def not_shifted(target_ids):
    return target_ids, target_ids


@misconception(SHIFT, "not-shifted", NOT_SHIFTED)
def both_inputs(target_ids):
    return target_ids[:, :-1], target_ids[:, :-1]


@misconception(SHIFT, "not-shifted", NOT_SHIFTED)
def both_labels(target_ids):
    return target_ids[:, 1:], target_ids[:, 1:]


@misconception(
    SHIFT, "shifted-backwards", "The two are exchanged: the input is all but the last, the labels all but the first."
)
def shifted_backwards(target_ids):
    return target_ids[:, 1:], target_ids[:, :-1]


@misconception(
    SHIFT, "labels-rolled", "Rolled labels end with <bos>: cut the input's last column and the labels' first."
)
def labels_rolled(target_ids):
    return target_ids, torch.roll(target_ids, -1, dims=1)


@misconception(
    SHIFT, "last-column-kept", "The input keeps its last column, behind which there is nothing to say: cut it off."
)
def last_column_kept(target_ids):
    return target_ids, target_ids[:, 1:]


@misconception(SHIFT, "shifted-by-two", "Shifted by two: the label of each token is the very next one.")
def shifted_by_two(target_ids):
    return target_ids[:, :-2], target_ids[:, 2:]


@misconception(SHIFT, "wrong-axis", "The sentences are shifted against each other: cut along axis 1, the tokens.")
def wrong_axis(target_ids):
    return target_ids[:-1], target_ids[1:]


@misconception(SHIFT, "bos-twice", "A further <bos> is put in front: target_ids begin with one already.")
def bos_twice(target_ids):
    return torch.cat([target_ids[:, :1], target_ids[:, :-1]], dim=1), target_ids


@misconception(
    SHIFT, "input-changed", "target_ids are changed in place, and with them the caller's: leave them as they are."
)
def input_changed(target_ids):
    inputs = target_ids[:, :-1].clone()
    target_ids[:, 0] = 0
    return inputs, target_ids[:, 1:]


# --------------------------------------------------------------------------------------- label_smoothed_cross_entropy

LOSS = "label_smoothed_cross_entropy"


def _parts(logits, targets, pad_id):
    """Of the real tokens: log p of every class, −log p of the right one, and the mean of −log p over all."""
    real = targets != pad_id
    logits, targets = logits[real], targets[real]
    log_p = logits.log_softmax(-1)
    return log_p, -log_p.gather(1, targets[:, None]).squeeze(1), -log_p.mean(-1)


def _each(logits, targets, pad_id, smoothing):
    _, right, even = _parts(logits, targets, pad_id)
    return (1 - smoothing) * right + smoothing * even


@misconception(LOSS, "softmax-twice", "A softmax is taken before the loss, which takes its own: hand over the logits.")
def softmax_twice(logits, targets, pad_id, smoothing=0.0):
    return F.cross_entropy(logits.softmax(-1), targets, ignore_index=pad_id, label_smoothing=smoothing)


@misconception(LOSS, "padding-in-the-mean", "The sum is divided by all tokens, padding too: divide by the real ones.")
def padding_in_the_mean(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, smoothing).sum() / len(targets)


@misconception(LOSS, "padding-counted", "Padding is a class to be predicted like others: leave its tokens out.")
def padding_counted(logits, targets, pad_id, smoothing=0.0):
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


OTHERS = "The smoothed part goes to other classes than all V: every class gets s/V, the right one and padding too."


@misconception(LOSS, "smoothed-over-the-others", OTHERS)
def smoothed_over_the_others(logits, targets, pad_id, smoothing=0.0):
    log_p, right, _ = _parts(logits, targets, pad_id)
    others = -(log_p.sum(-1) + right) / (log_p.size(1) - 1)
    return ((1 - smoothing) * right + smoothing * others).mean()


@misconception(LOSS, "smoothed-over-the-others", OTHERS)
def smoothed_without_padding(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    log_p, targets = logits[real].log_softmax(-1), targets[real]
    wanted = torch.full_like(log_p, smoothing / (log_p.size(1) - 2))
    wanted.scatter_(1, targets[:, None], 1.0 - smoothing)
    wanted[:, pad_id] = 0.0
    return -(wanted * log_p).sum(-1).mean()


@misconception(LOSS, "smoothing-inverted", "The right class gets s and the rest 1 − s: it is the other way round.")
def smoothing_inverted(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, 1 - smoothing).mean()


@misconception(LOSS, "summed", "That is the sum over the tokens: their mean is wanted.")
def summed(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, smoothing).sum()


@misconception(LOSS, "sign-lost", "The sign is lost: the loss is −log p, which is positive.")
def sign_lost(logits, targets, pad_id, smoothing=0.0):
    return -_each(logits, targets, pad_id, smoothing).mean()


@misconception(
    LOSS, "mean-over-classes", "The mean runs over the classes too: sum over the classes, average the tokens."
)
def mean_over_classes(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, smoothing).mean() / logits.size(1)


def _wanted(log_p, targets, smoothing):
    wanted = torch.full_like(log_p, smoothing / log_p.size(1))
    return wanted.scatter_add_(1, targets[:, None], torch.full_like(log_p[:, :1], 1.0 - smoothing))


@misconception(
    LOSS, "probabilities-for-logarithms", "kl_div takes logarithms of probabilities and was given probabilities."
)
def probabilities_for_logarithms(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    p = logits[real].softmax(-1)
    return F.kl_div(p, _wanted(p, targets[real], smoothing), reduction="batchmean")


@misconception(
    LOSS, "divergence-for-entropy", "That is the divergence, whose smallest value is 0: the cross-entropy is wanted."
)
def divergence_for_entropy(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    log_p = logits[real].log_softmax(-1)
    return F.kl_div(log_p, _wanted(log_p, targets[real], smoothing), reduction="batchmean")


UNSTABLE = "The logarithm of a softmax is −∞, NaN or cut off for large logits: take log_softmax, or logsumexp."


def _with(log_p, targets, pad_id, smoothing):
    real = targets != pad_id
    log_p, targets = log_p[real], targets[real]
    right, even = -log_p.gather(1, targets[:, None]).squeeze(1), -log_p.mean(-1)
    return ((1 - smoothing) * right + smoothing * even).mean()


@misconception(LOSS, "unstable-logarithm", UNSTABLE)
def unstable_logarithm(logits, targets, pad_id, smoothing=0.0):
    return _with(torch.log(logits.exp() / logits.exp().sum(-1, keepdim=True)), targets, pad_id, smoothing)


@misconception(LOSS, "unstable-logarithm", UNSTABLE)
def logarithm_of_softmax(logits, targets, pad_id, smoothing=0.0):
    return _with(logits.softmax(-1).log(), targets, pad_id, smoothing)


@misconception(LOSS, "unstable-logarithm", UNSTABLE)
def logarithm_with_something_tiny(logits, targets, pad_id, smoothing=0.0):
    return _with(torch.log(logits.softmax(-1) + 1e-9), targets, pad_id, smoothing)


@misconception(LOSS, "padding-id-fixed", "0 is taken for padding, whatever pad_id is.")
def padding_id_fixed(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, 0, smoothing).mean()


@misconception(LOSS, "smoothing-ignored", "smoothing has no effect: the target is softened by it.")
def smoothing_ignored(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, 0.0).mean()


@misconception(LOSS, "smoothing-fixed", "It is smoothed by 0.1, whatever smoothing is.")
def smoothing_fixed(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, 0.1).mean()


@misconception(LOSS, "smoothing-by-default", "Without a word about it nothing is smoothed: the default is 0.")
def smoothing_by_default(logits, targets, pad_id, smoothing=0.1):
    return _each(logits, targets, pad_id, smoothing).mean()


@misconception(
    LOSS, "right-class-not-lowered", "The even part is added, and the right class keeps all: it keeps 1 − s."
)
def right_class_not_lowered(logits, targets, pad_id, smoothing=0.0):
    _, right, even = _parts(logits, targets, pad_id)
    return (right + smoothing * even).mean()


@misconception(
    LOSS, "softmax-over-tokens", "The softmax runs over the tokens: it runs over the classes, the last axis."
)
def softmax_over_tokens(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    return _with(logits[real].log_softmax(0), targets[real], pad_id, smoothing)


@misconception(
    LOSS, "even-part-summed", "The even part is a sum over the classes: each class gets s/V, so it is the mean."
)
def even_part_summed(logits, targets, pad_id, smoothing=0.0):
    log_p, right, _ = _parts(logits, targets, pad_id)
    return ((1 - smoothing) * right - smoothing * log_p.sum(-1)).mean()


@misconception(LOSS, "bits-for-nats", "Logarithms to base 2: take natural ones.")
def bits_for_nats(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, smoothing).mean() / math.log(2)


@misconception(LOSS, "perplexity-for-loss", "That is the exponential of the loss, the perplexity.")
def perplexity_for_loss(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, smoothing).mean().exp()


@misconception(LOSS, "no-gradient", "A plain number comes back, with which nothing can be trained: return the tensor.")
def no_gradient(logits, targets, pad_id, smoothing=0.0):
    return _each(logits, targets, pad_id, smoothing).mean().item()


# ------------------------------------------------------------------------------------------------------------ noam_lr

NOAM = "noam_lr"


@misconception(NOAM, "max-for-min", "The larger of the two is taken: it is the smaller one, min.")
def max_for_min(step, d_model, warmup):
    return d_model**-0.5 * max(step**-0.5, step * warmup**-1.5)


EXPONENT = "The warm-up term has another exponent: it is step · warmup^−1.5, so that both terms meet at warmup."


@misconception(NOAM, "warmup-exponent", EXPONENT)
def warmup_root(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-0.5)


@misconception(NOAM, "warmup-exponent", EXPONENT)
def warmup_linear(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step / warmup)


@misconception(NOAM, "width-multiplied", "It is multiplied by √D: wider models get smaller steps, D^−0.5.")
def width_multiplied(step, d_model, warmup):
    return d_model**0.5 * min(step**-0.5, step * warmup**-1.5)


@misconception(NOAM, "width-missing", "The factor D^−0.5 is missing.")
def width_missing(step, d_model, warmup):
    return min(step**-0.5, step * warmup**-1.5)


@misconception(NOAM, "width-without-root", "It is divided by D: by √D is right.")
def width_without_root(step, d_model, warmup):
    return min(step**-0.5, step * warmup**-1.5) / d_model


@misconception(NOAM, "no-decay", "It stays at its peak: behind the warm-up it falls as 1/√step.")
def no_decay(step, d_model, warmup):
    return d_model**-0.5 * min(warmup**-0.5, step * warmup**-1.5)


@misconception(NOAM, "no-warm-up", "It falls from the first step on: the warm-up is missing.")
def no_warm_up(step, d_model, warmup):
    return (d_model * step) ** -0.5


@misconception(NOAM, "flat-warm-up", "It is constant until the warm-up ends: it rises in proportion to step.")
def flat_warm_up(step, d_model, warmup):
    return (d_model * max(step, warmup)) ** -0.5


@misconception(NOAM, "scaled-to-one", "It is scaled so that its peak is 1: the factor is D^−0.5.")
def scaled_to_one(step, d_model, warmup):
    return warmup**0.5 * min(step**-0.5, step * warmup**-1.5)


@misconception(
    NOAM, "decay-starts-again", "The decay counts from the end of the warm-up: it counts from the first step."
)
def decay_starts_again(step, d_model, warmup):
    if step < warmup:
        return d_model**-0.5 * step * warmup**-1.5
    return (d_model * warmup * (1 + step - warmup)) ** -0.5


@misconception(NOAM, "bracket-slip", "A bracket closes too early: warmup^−1.5 belongs to the second term of min alone.")
def bracket_slip(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step) * warmup**-1.5


@misconception(NOAM, "steps-from-zero", "The steps are counted from 0: the first step is 1.")
def steps_from_zero(step, d_model, warmup):
    return _rate(step + 1, d_model, warmup)


@misconception(
    NOAM, "steps-from-two", "That is the rate of the step before: the first step is 1, and its rate is not 0."
)
def steps_from_two(step, d_model, warmup):
    return 0.0 if step == 1 else _rate(step - 1, d_model, warmup)


@misconception(NOAM, "decay-without-root", "It falls as 1/step: 1/√step is right.")
def decay_without_root(step, d_model, warmup):
    return (d_model * warmup) ** -0.5 * min(step / warmup, warmup / step)


def _rate(step, d_model, warmup):
    """The correct rate."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


# ------------------------------------------------------------------------------------------------------------ Decoder

DECODER = "Decoder"


class _Decoder(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    def __init__(self, layers, norm=None):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        return self.end(self.stack(x, memory, target_mask, memory_mask))

    def stack(self, x, memory, target_mask, memory_mask):
        for layer in self.layers:
            x = self.step(layer, x, memory, target_mask, memory_mask)
        return x

    def step(self, layer, x, memory, target_mask, memory_mask):
        return layer(x, memory, target_mask, memory_mask)

    def end(self, x):
        return x if self.norm is None else self.norm(x)


@misconception(DECODER, "masks-exchanged", "The masks are exchanged: target_mask comes first, memory_mask second.")
class MasksExchanged(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return layer(x, memory, memory_mask, target_mask)


@misconception(
    DECODER, "memory-mask-not-handed-on", "memory_mask reaches no layer, so that the source's padding is read."
)
class MemoryMaskNotHandedOn(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return layer(x, memory, target_mask)


@misconception(DECODER, "target-mask-not-handed-on", "target_mask reaches no layer, so that the future is read.")
class TargetMaskNotHandedOn(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return layer(x, memory, None, memory_mask)


@misconception(DECODER, "masks-not-handed-on", "The layers get no masks: hand both on, behind x and memory.")
class MasksNotHandedOn(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return layer(x, memory)


@misconception(DECODER, "one-mask-for-both", "target_mask stands in both places: the second is memory_mask.")
class OneMaskForBoth(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return layer(x, memory, target_mask, target_mask)


@misconception(DECODER, "masks-to-the-first-only", "Only the first layer gets the masks: all get them.")
class MasksToTheFirstOnly(_Decoder):
    def stack(self, x, memory, target_mask, memory_mask):
        for layer in self.layers:
            x = layer(x, memory, target_mask, memory_mask)
            target_mask = memory_mask = None
        return x


@misconception(DECODER, "masks-inverted", "The masks are turned round on their way: the layers get them as they are.")
class MasksInverted(_Decoder):
    def stack(self, x, memory, target_mask, memory_mask):
        return super().stack(x, memory, *(m if m is None else ~m for m in (target_mask, memory_mask)))


@misconception(
    DECODER, "memory-replaced", "Each layer's output is the next one's memory: the memory is the encoder's for all."
)
class MemoryReplaced(_Decoder):
    def stack(self, x, memory, target_mask, memory_mask):
        for layer in self.layers:
            x = memory = layer(x, memory, target_mask, memory_mask)
        return x


@misconception(
    DECODER, "memory-normed", "The norm is applied to the memory: it belongs behind the decoder's last layer."
)
class MemoryNormed(_Decoder):
    def stack(self, x, memory, target_mask, memory_mask):
        return super().stack(x, memory if self.norm is None else self.norm(memory), target_mask, memory_mask)


@misconception(DECODER, "memory-for-tokens", "x and memory are exchanged: x comes first.")
class MemoryForTokens(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return layer(memory, x, target_mask, memory_mask)


@misconception(DECODER, "x-not-carried-on", "Every layer gets the first x: each gets what the one before it returned.")
class XNotCarriedOn(_Decoder):
    def stack(self, x, memory, target_mask, memory_mask):
        for layer in self.layers:
            output = layer(x, memory, target_mask, memory_mask)
        return output


@misconception(DECODER, "order-reversed", "The layers run from the last to the first.")
class OrderReversed(_Decoder):
    def stack(self, x, memory, target_mask, memory_mask):
        for layer in reversed(self.layers):
            x = layer(x, memory, target_mask, memory_mask)
        return x


@misconception(DECODER, "one-layer-for-all", "The first layer runs again and again: each has its turn.")
class OneLayerForAll(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return self.layers[0](x, memory, target_mask, memory_mask)


@misconception(DECODER, "layers-not-registered", "The layers stand in a plain list: use nn.ModuleList.")
class LayersNotRegistered(_Decoder):
    def __init__(self, layers, norm=None):
        super().__init__([], norm)
        del self.layers
        self.layers = list(layers)


@misconception(DECODER, "x-added", "x is added to what the layers return: the residual paths are inside them.")
class XAdded(_Decoder):
    def step(self, layer, x, memory, target_mask, memory_mask):
        return x + layer(x, memory, target_mask, memory_mask)


@misconception(DECODER, "first-layer-only", "Only the first layer runs: the return stands behind the loop.")
class FirstLayerOnly(_Decoder):
    def stack(self, x, memory, target_mask, memory_mask):
        return self.layers[0](x, memory, target_mask, memory_mask)


@misconception(DECODER, "norm-forgotten", "The norm is never called: it follows the last layer.")
class NormForgotten(_Decoder):
    def end(self, x):
        return x


@misconception(
    DECODER, "norm-after-every-layer", "The norm is called after every layer: once, behind the last, is right."
)
class NormAfterEveryLayer(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        for layer in self.layers:
            x = self.end(layer(x, memory, target_mask, memory_mask))
        return x


@misconception(DECODER, "norm-at-the-beginning", "The norm comes before the first layer: it follows the last one.")
class NormAtTheBeginning(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        return self.stack(self.end(x), memory, target_mask, memory_mask)


@misconception(
    DECODER, "norm-where-none-is", "Without a norm nothing is normalised: the last layer's output is the result."
)
class NormWhereNoneIs(_Decoder):
    def end(self, x):
        return F.layer_norm(x, x.shape[-1:]) if self.norm is None else self.norm(x)


# -------------------------------------------------------------------------------------------------------- Transformer

TRANSFORMER = "Transformer"


def _real(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]


def _past(size):
    return torch.ones(size, size, dtype=torch.bool).tril()


class _Transformer(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    def __init__(self, source_embed, target_embed, encoder, decoder, pad_id):
        super().__init__()
        self.source_embed, self.target_embed = source_embed, target_embed
        self.encoder, self.decoder, self.pad_id = encoder, decoder, pad_id
        self.start(self.table)

    @property
    def table(self):
        return self.target_embed.token.embedding.weight

    def start(self, table):
        self.draw(table)
        with torch.no_grad():
            table[self.pad_id] = 0

    def draw(self, table):
        nn.init.normal_(table, std=table.size(1) ** -0.5)

    def source_mask(self, source_ids):
        return _real(source_ids, self.pad_id)

    memory_mask = source_mask

    def target_mask(self, target_ids):
        return _real(target_ids, self.pad_id) & _past(target_ids.size(1))

    def embedded(self, target_ids):
        return self.target_embed(target_ids)

    def logits(self, hidden):
        return hidden @ self.table.T

    def encode(self, source_ids):
        return self.encoder(self.source_embed(source_ids), self.source_mask(source_ids))

    def decode(self, target_ids, memory, source_ids):
        masks = self.target_mask(target_ids), self.memory_mask(source_ids)
        return self.logits(self.decoder(self.embedded(target_ids), memory, *masks))

    def forward(self, source_ids, target_ids):
        return self.decode(target_ids, self.encode(source_ids), source_ids)


NOT_TIED = "The output layer has a table of its own: it is the target embedding's, the very same parameter."


@misconception(TRANSFORMER, "not-tied", NOT_TIED)
class NotTied(_Transformer):
    def start(self, table):
        super().start(table)
        self.output = nn.Linear(table.size(1), table.size(0), bias=False)

    def logits(self, hidden):
        return self.output(hidden)


@misconception(TRANSFORMER, "not-tied", NOT_TIED)
class TableCopied(_Transformer):
    def start(self, table):
        super().start(table)
        self.output = nn.Parameter(table.detach().clone())

    def logits(self, hidden):
        return hidden @ self.output.T


@misconception(TRANSFORMER, "output-bias", "The output layer has a bias: it is the table alone.")
class OutputBias(_Transformer):
    def start(self, table):
        super().start(table)
        self.output = nn.Linear(table.size(1), table.size(0))
        self.output.weight = table

    def logits(self, hidden):
        return self.output(hidden)


@misconception(TRANSFORMER, "table-detached", "The output does not train the table: don't detach it.")
class TableDetached(_Transformer):
    def logits(self, hidden):
        return hidden @ self.table.detach().T


@misconception(
    TRANSFORMER, "tied-to-the-source", "The output takes the source's table: it is the target's that says words."
)
class TiedToTheSource(_Transformer):
    def logits(self, hidden):
        return hidden @ self.source_embed.token.embedding.weight.T


INSIDE = "forward ends with a softmax: return the logits, as the loss makes the probabilities itself."


@misconception(TRANSFORMER, "softmax-inside", INSIDE)
class SoftmaxInside(_Transformer):
    def logits(self, hidden):
        return super().logits(hidden).softmax(-1)


@misconception(TRANSFORMER, "softmax-inside", INSIDE)
class LogSoftmaxInside(_Transformer):
    def logits(self, hidden):
        return super().logits(hidden).log_softmax(-1)


SCALED = "The logits are scaled by √D: they are the products with the table as they are."


@misconception(TRANSFORMER, "logits-scaled", SCALED)
class LogitsScaledDown(_Transformer):
    def logits(self, hidden):
        return super().logits(hidden) / hidden.size(-1) ** 0.5


@misconception(TRANSFORMER, "logits-scaled", SCALED)
class LogitsScaledUp(_Transformer):
    def logits(self, hidden):
        return super().logits(hidden) * hidden.size(-1) ** 0.5


INITIAL = "The table is not drawn from N(0, 1/√D), so that the first logits and the first loss are of another size."


@misconception(TRANSFORMER, "table-not-initialised", INITIAL)
class TableNotInitialised(_Transformer):
    def start(self, table):
        pass


@misconception(TRANSFORMER, "table-not-initialised", INITIAL)
class DeviationOfOne(_Transformer):
    def draw(self, table):
        nn.init.normal_(table)


@misconception(TRANSFORMER, "table-not-initialised", INITIAL)
class TableByXavier(_Transformer):
    def draw(self, table):
        nn.init.xavier_uniform_(table)


@misconception(
    TRANSFORMER, "table-too-small", "1/D was taken for the standard deviation: 1/D is the variance, 1/√D its root."
)
class TableTooSmall(_Transformer):
    def draw(self, table):
        nn.init.normal_(table, std=1 / table.size(1))


@misconception(
    TRANSFORMER, "padding-row-filled", "The table's row of padding is drawn with the others: set it to 0 afterwards."
)
class PaddingRowFilled(_Transformer):
    def start(self, table):
        self.draw(table)


@misconception(
    TRANSFORMER, "future-open", "The decoder sees the future: its mask joins padding with the triangle of the past."
)
class FutureOpen(_Transformer):
    def target_mask(self, target_ids):
        return _real(target_ids, self.pad_id)


@misconception(
    TRANSFORMER, "target-padding-open", "The target's padding is open: join the triangle with its padding mask."
)
class TargetPaddingOpen(_Transformer):
    def target_mask(self, target_ids):
        return _past(target_ids.size(1)).expand(len(target_ids), 1, -1, -1)


@misconception(TRANSFORMER, "joined-by-or", "The two masks are joined by or: a key must be real and past, &.")
class JoinedByOr(_Transformer):
    def target_mask(self, target_ids):
        return _real(target_ids, self.pad_id) | _past(target_ids.size(1))


@misconception(
    TRANSFORMER,
    "memory-padding-open",
    "The decoder gets no mask for the memory, so that it reads the source's padding.",
)
class MemoryPaddingOpen(_Transformer):
    def memory_mask(self, source_ids):
        return None


@misconception(TRANSFORMER, "source-padding-open", "The encoder gets no mask, so that source tokens read padding.")
class SourcePaddingOpen(_Transformer):
    def encode(self, source_ids):
        return self.encoder(self.source_embed(source_ids))


@misconception(TRANSFORMER, "padding-id-fixed", "0 is taken for padding, whatever pad_id is.")
class PaddingIdFixed(_Transformer):
    def source_mask(self, source_ids):
        return _real(source_ids, 0)

    memory_mask = source_mask

    def target_mask(self, target_ids):
        return _real(target_ids, 0) & _past(target_ids.size(1))


@misconception(TRANSFORMER, "masks-inverted", "The masks are turned round: True marks what may be attended to.")
class TransformerMasksInverted(_Transformer):
    def source_mask(self, source_ids):
        return ~super().source_mask(source_ids)

    memory_mask = source_mask

    def target_mask(self, target_ids):
        return ~super().target_mask(target_ids)


@misconception(TRANSFORMER, "encoder-left-out", "The decoder reads the source's embedding: it reads what encode gives.")
class EncoderLeftOut(_Transformer):
    def forward(self, source_ids, target_ids):
        return self.decode(target_ids, self.source_embed(source_ids), source_ids)


@misconception(
    TRANSFORMER, "one-embedding-for-both", "The target is looked up in the source's table: it has its own embedding."
)
class OneEmbeddingForBoth(_Transformer):
    def embedded(self, target_ids):
        return self.source_embed(target_ids)


@misconception(TRANSFORMER, "last-word-only", "Only the last place has logits: every place has some, (B, T, V).")
class LastWordOnly(_Transformer):
    def logits(self, hidden):
        return hidden[:, -1] @ self.table.T


@misconception(TRANSFORMER, "shifted-inside", "forward cuts the target's last column: shift_targets has done that.")
class ShiftedInside(_Transformer):
    def forward(self, source_ids, target_ids):
        return self.decode(target_ids[:, :-1], self.encode(source_ids), source_ids)


# ------------------------------------------------------------------------------------------------------ greedy_decode

GREEDY = "greedy_decode"


def _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, **lines):
    """The correct search; each slip hands over the one line that it gets wrong."""
    choose = lines.get("choose", lambda ids: step_fn(ids)[:, -1].argmax(-1))
    go_on = lines.get("go_on", lambda ids, ended: ids.size(1) < max_len and not ended.all())
    ids = torch.full((batch_size, 1), lines.get("start", bos_id))
    ended = torch.zeros(batch_size, dtype=torch.bool)
    while go_on(ids, ended):
        token = choose(ids)
        if lines.get("ends_first", False):
            ended = ended | (token == eos_id)
        token = token.masked_fill(ended, lines.get("fill", pad_id)) if lines.get("fills", True) else token
        ended = ended | (token == lines.get("end", eos_id))
        ids = torch.cat([ids, token[:, None]], dim=1)
    return ids


@misconception(GREEDY, "stops-at-the-first-end", "It stops when one row has ended: go on until all have.")
def stops_at_the_first_end(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(
        step_fn, bos_id, eos_id, pad_id, batch_size, max_len, go_on=lambda i, e: i.size(1) < max_len and not e.any()
    )


POSITION = "The logits of another position are read: the next token is what the last position says."


@misconception(GREEDY, "position-read", POSITION)
def first_position_read(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(
        step_fn, bos_id, eos_id, pad_id, batch_size, max_len, choose=lambda ids: step_fn(ids)[:, 0].argmax(-1)
    )


@misconception(GREEDY, "position-read", POSITION)
def position_before_read(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    def choose(ids):
        return step_fn(ids)[:, -2 if ids.size(1) > 1 else -1].argmax(-1)

    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, choose=choose)


@misconception(GREEDY, "length-without-bos", "max_len tokens are made besides BOS: max_len counts BOS too.")
def length_without_bos(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len + 1)


@misconception(GREEDY, "one-too-few", "It ends one token before max_len.")
def one_too_few(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len - 1)


@misconception(GREEDY, "starts-with-padding", "The rows begin with padding: they begin with BOS.")
def starts_with_padding(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, start=pad_id)


@misconception(GREEDY, "words-after-the-end", "Rows go on behind their EOS: padding follows it.")
def words_after_the_end(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, fills=False)


@misconception(GREEDY, "end-lost", "EOS itself becomes padding: only what follows it does.")
def end_lost(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, ends_first=True)


@misconception(GREEDY, "never-stops", "It goes on to max_len: it stops when all rows have ended.")
def never_stops(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, go_on=lambda i, e: i.size(1) < max_len)


@misconception(GREEDY, "filled-with-the-end", "Behind EOS stands EOS again: padding is wanted there.")
def filled_with_the_end(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, fill=eos_id)


@misconception(GREEDY, "start-cut", "BOS is cut off: it stays at the beginning of each row.")
def greedy_start_cut(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len)[:, 1:]


@misconception(
    GREEDY, "filled-to-the-maximum", "The rows are filled up to max_len: they end where the longest one does."
)
def filled_to_the_maximum(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    ids = _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len)
    return F.pad(ids, (0, max_len - ids.size(1)), value=pad_id)


@misconception(GREEDY, "least-likely", "The least likely token is taken: argmax is wanted.")
def least_likely(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(
        step_fn, bos_id, eos_id, pad_id, batch_size, max_len, choose=lambda ids: step_fn(ids)[:, -1].argmin(-1)
    )


@misconception(GREEDY, "sampled", "Tokens are drawn by chance: greedy takes the likeliest.")
def sampled(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    def choose(ids):
        return torch.multinomial(step_fn(ids)[:, -1].softmax(-1), 1)[:, 0]

    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, choose=choose)


@misconception(GREEDY, "prefix-forgotten", "step_fn gets the last token alone: it gets all ids so far.")
def prefix_forgotten(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(
        step_fn, bos_id, eos_id, pad_id, batch_size, max_len, choose=lambda ids: step_fn(ids[:, -1:])[:, -1].argmax(-1)
    )


FIXED = "An id is fixed in the code: use bos_id, eos_id and pad_id as they come."


@misconception(GREEDY, "ids-fixed", FIXED)
def end_is_two(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, end=2)


@misconception(GREEDY, "ids-fixed", FIXED)
def padding_is_zero(step_fn, bos_id, eos_id, pad_id, batch_size, max_len):
    return _greedy(step_fn, bos_id, eos_id, pad_id, batch_size, max_len, fill=0)


# -------------------------------------------------------------------------------------------------------- beam_search

BEAM = "beam_search"


class _Beam:
    """The correct search, called as beam_search is; each slip overrides the one line that it gets wrong."""

    def __new__(cls, *arguments):
        return super().__new__(cls).search(*arguments)

    def search(self, step_fn, bos_id, eos_id, pad_id, max_len, beam_size, length_penalty):
        self.penalty, self.eos = length_penalty, eos_id
        live, ended = [([bos_id], 0.0)], []
        while live and len(live[0][0]) < max_len:
            rows = self.numbers(step_fn(torch.tensor([ids for ids, _ in live]))).tolist()
            grown = [
                ([*ids, token], total)
                for (ids, so_far), row in zip(live, rows, strict=True)
                for token, total in self.grow(so_far, row, len(ids))
            ]
            grown.sort(key=self.order, reverse=True)
            live = []
            for ids, total in grown[: self.size(beam_size)]:
                (ended if self.ends(ids) else live).append((ids, total))
            if ended and self.stops_at_once:
                break
        ids, total = max(self.last(ended, live), key=self.key)
        return self.result(ids, total)

    stops_at_once = False

    def numbers(self, logits):
        return logits[:, -1].log_softmax(-1)

    def grow(self, so_far, row, length):
        return [(token, so_far + p) for token, p in enumerate(row)]

    def order(self, pair):
        return pair[1]

    def size(self, beam_size):
        return beam_size

    def ends(self, ids):
        return ids[-1] == self.eos

    def last(self, ended, live):
        return ended + live

    def score(self, ids, total):
        return total / (len(ids) - 1) ** self.penalty

    def key(self, pair):
        return self.score(*pair)

    def result(self, ids, total):
        return torch.tensor(ids), self.score(ids, total)


@misconception(BEAM, "one-hypothesis", "One hypothesis is kept, whatever beam_size is: that is a greedy search.")
class OneHypothesis(_Beam):
    def size(self, beam_size):
        return 1


@misconception(
    BEAM, "one-continuation-each", "Each hypothesis goes on with its best token alone: all continuations compete."
)
class OneContinuationEach(_Beam):
    def grow(self, so_far, row, length):
        best = row.index(max(row))
        return [(token, so_far + p if token == best or length == 1 else -math.inf) for token, p in enumerate(row)]


@misconception(BEAM, "logits-summed", "Logits are added up, which have no common scale: take log-probabilities.")
class LogitsSummed(_Beam):
    def numbers(self, logits):
        return logits[:, -1]


@misconception(BEAM, "probabilities-summed", "Probabilities are added up: a product of them is a sum of logarithms.")
class ProbabilitiesSummed(_Beam):
    def numbers(self, logits):
        return logits[:, -1].softmax(-1)


@misconception(BEAM, "sum-forgotten", "Only the last token's log-probability counts: add it to the hypothesis's sum.")
class SumForgotten(_Beam):
    def grow(self, so_far, row, length):
        return list(enumerate(row))


@misconception(BEAM, "no-length-penalty", "The length does not count: divide the sum by its power.")
class NoLengthPenalty(_Beam):
    def score(self, ids, total):
        return total


@misconception(
    BEAM, "always-the-mean", "The sum is divided by the length itself: by its power length_penalty is right."
)
class AlwaysTheMean(_Beam):
    def score(self, ids, total):
        return total / (len(ids) - 1)


@misconception(BEAM, "start-counted", "BOS is counted among the tokens: it was given and not generated.")
class StartCounted(_Beam):
    def score(self, ids, total):
        return total / len(ids) ** self.penalty


@misconception(BEAM, "end-not-counted", "EOS is not counted among the tokens: it was generated like others.")
class EndNotCounted(_Beam):
    def score(self, ids, total):
        return total / max(1, len(ids) - 1 - (ids[-1] == self.eos)) ** self.penalty


@misconception(BEAM, "sum-for-score", "The sum comes back: the score, divided by the length's power, is wanted.")
class SumForScore(_Beam):
    def result(self, ids, total):
        return torch.tensor(ids), total


@misconception(BEAM, "penalty-multiplied", "The sum is multiplied with the length's power: divide by it.")
class PenaltyMultiplied(_Beam):
    def score(self, ids, total):
        return total * (len(ids) - 1) ** self.penalty


@misconception(
    BEAM, "first-end-taken", "The first hypothesis that ends is the answer: others may still end with a better score."
)
class FirstEndTaken(_Beam):
    stops_at_once = True

    def last(self, ended, live):
        return ended[:1] or live


@misconception(BEAM, "end-ignored", "EOS is a token like others: what ends with it is complete and goes on no more.")
class EndIgnored(_Beam):
    def ends(self, ids):
        return False


@misconception(
    BEAM, "ended-forgotten", "What has ended is forgotten where something goes on to max_len: all compete at the end."
)
class EndedForgotten(_Beam):
    def last(self, ended, live):
        return live or ended


@misconception(BEAM, "worst-taken", "The hypothesis of the lowest score comes back: log-probabilities are best near 0.")
class WorstTaken(_Beam):
    def key(self, pair):
        return -self.score(*pair)


@misconception(BEAM, "least-likely-kept", "The least likely continuations are kept: sort the other way.")
class LeastLikelyKept(_Beam):
    def order(self, pair):
        return -pair[1]


@misconception(BEAM, "position-read", POSITION)
class FirstPositionRead(_Beam):
    def numbers(self, logits):
        return logits[:, 0].log_softmax(-1)


@misconception(BEAM, "start-cut", "BOS is cut off: it stays at the beginning.")
class StartCut(_Beam):
    def result(self, ids, total):
        return torch.tensor(ids[1:]), self.score(ids, total)


@misconception(BEAM, "ids-fixed", FIXED)
class EndIsTwo(_Beam):
    def ends(self, ids):
        return ids[-1] == 2


@misconception(BEAM, "beam-too-wide", "Twice as many hypotheses are kept as beam_size says.")
class BeamTooWide(_Beam):
    def size(self, beam_size):
        return 2 * beam_size


# -------------------------------------------------------------------------------------------------------- corpus_bleu

BLEU = "corpus_bleu"


def _ngrams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


class _Bleu:
    """The correct score, called as corpus_bleu is; each slip overrides the one line that it gets wrong."""

    orders: tuple[int, ...] = (1, 2, 3, 4)
    scale = 100.0

    def __new__(cls, hypotheses, references):
        return super().__new__(cls).work_out(hypotheses, references)

    def work_out(self, hypotheses, references):
        matches, totals = [], []
        for n in self.orders:
            pairs = [(self.ngrams(h, n), self.ngrams(r, n)) for h, r in zip(hypotheses, references, strict=True)]
            matches.append(sum(self.matched(h, r) for h, r in pairs))
            totals.append(sum(self.total(h, r) for h, r in pairs))
        c, r = sum(map(len, hypotheses)), sum(map(len, references))
        if self.nothing(matches, c):
            return 0.0
        return self.scale * self.brevity(c, r) * self.mean(matches, totals)

    def ngrams(self, words, n):
        return _ngrams(words, n)

    def matched(self, hypothesis, reference):
        return sum((hypothesis & reference).values())

    def total(self, hypothesis, reference):
        return sum(hypothesis.values())

    def nothing(self, matches, c):
        return min(matches) == 0

    def mean(self, matches, totals):
        logarithms = [math.log(m / t) for m, t in zip(matches, totals, strict=True)]
        return math.exp(sum(logarithms) / len(logarithms))

    def brevity(self, c, r):
        return math.exp(min(0.0, 1 - r / c))


@misconception(BLEU, "mean-of-sentences", "The sentences' scores are averaged: pool the counts of all sentences first.")
class MeanOfSentences(_Bleu):
    def work_out(self, hypotheses, references):
        pairs = list(zip(hypotheses, references, strict=True))
        return sum(_Bleu([h], [r]) for h, r in pairs) / len(pairs)


@misconception(
    BLEU, "not-clipped", "An n-gram counts as often as it is said: at most as often as the reference has it."
)
class NotClipped(_Bleu):
    def matched(self, hypothesis, reference):
        return sum(count for gram, count in hypothesis.items() if gram in reference)


@misconception(BLEU, "counted-once", "Each n-gram counts once, as in a set: it counts as often as both have it.")
class CountedOnce(_Bleu):
    def matched(self, hypothesis, reference):
        return len(hypothesis.keys() & reference.keys())

    def total(self, hypothesis, reference):
        return len(hypothesis)


@misconception(BLEU, "no-brevity-penalty", "Short texts are not punished: multiply by exp(1 − r/c) where c < r.")
class NoBrevityPenalty(_Bleu):
    def brevity(self, c, r):
        return 1.0


@misconception(BLEU, "brevity-inverted", "c and r are exchanged: it is the short text that is punished.")
class BrevityInverted(_Bleu):
    def brevity(self, c, r):
        return math.exp(1 - c / r) if c > r else 1.0


@misconception(BLEU, "brevity-ratio", "The brevity penalty is c/r: it is exp(1 − r/c).")
class BrevityRatio(_Bleu):
    def brevity(self, c, r):
        return min(1.0, c / r)


@misconception(BLEU, "brevity-both-ways", "Long texts are rewarded: where c ≥ r the factor is 1.")
class BrevityBothWays(_Bleu):
    def brevity(self, c, r):
        return math.exp(1 - r / c)


@misconception(BLEU, "arithmetic-mean", "The precisions are averaged: their geometric mean is wanted.")
class ArithmeticMean(_Bleu):
    def nothing(self, matches, c):
        return c == 0

    def mean(self, matches, totals):
        return sum(m / max(t, 1) for m, t in zip(matches, totals, strict=True)) / 4


@misconception(
    BLEU, "recall-for-precision", "The matches are divided by the reference's n-grams: by the hypothesis's is right."
)
class RecallForPrecision(_Bleu):
    def total(self, hypothesis, reference):
        return sum(reference.values())


@misconception(BLEU, "fraction-for-percent", "The score lies between 0 and 1: multiply by 100.")
class FractionForPercent(_Bleu):
    scale = 1.0


@misconception(BLEU, "fewer-orders", "n goes to 2: BLEU takes n = 1 to 4.")
class FewerOrders(_Bleu):
    orders = (1, 2)


@misconception(BLEU, "fewer-orders", "n goes to 3: BLEU takes n = 1 to 4.")
class ThreeOrders(_Bleu):
    orders = (1, 2, 3)


@misconception(BLEU, "root-missing", "That is the product of the precisions: take its fourth root.")
class RootMissing(_Bleu):
    def mean(self, matches, totals):
        return math.prod(m / t for m, t in zip(matches, totals, strict=True))


SMOOTHED = "Orders without a match are smoothed away: the score is 0 then, and nothing is added to the counts."


@misconception(BLEU, "smoothed", SMOOTHED)
class OneAdded(_Bleu):
    def nothing(self, matches, c):
        return c == 0

    def mean(self, matches, totals):
        return math.exp(sum(math.log((m + 1) / (t + 1)) for m, t in zip(matches, totals, strict=True)) / 4)


@misconception(BLEU, "smoothed", SMOOTHED)
class OrdersLeftOut(_Bleu):
    def nothing(self, matches, c):
        return max(matches) == 0

    def mean(self, matches, totals):
        return math.exp(sum(math.log(m / t) for m, t in zip(matches, totals, strict=True) if m) / 4)


@misconception(BLEU, "case-ignored", "Capitals are ignored: tokens are equal or not.")
class CaseIgnored(_Bleu):
    def ngrams(self, words, n):
        return _ngrams([word.lower() for word in words], n)


@misconception(BLEU, "last-forgotten", "The last n-gram of each sentence is forgotten: there are len − n + 1.")
class LastForgotten(_Bleu):
    def ngrams(self, words, n):
        return _ngrams(words[:-1], n)


@misconception(BLEU, "letters-for-words", "The n-grams are of letters: they are of words, the elements of the lists.")
class LettersForWords(_Bleu):
    def ngrams(self, words, n):
        return _ngrams(" ".join(words), n)


@misconception(BLEU, "sentences-joined", "The sentences are joined to one text, with n-grams across their ends.")
class SentencesJoined(_Bleu):
    def work_out(self, hypotheses, references):
        joined = [[[word for words in text for word in words]] for text in (hypotheses, references)]
        return super().work_out(*joined)
