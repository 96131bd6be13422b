"""Known mistakes of chapter 6, each as the code that makes it and the hint that a tutor would give."""

import torch
import torch.nn.functional as F
from torch import nn

from autograder.registry import misconception

# ---------------------------------------------------------------------------------------------------------- LayerNorm

NORM = "LayerNorm"


class RightNorm(nn.Module):
    """The correct module; each slip overrides the one step that it gets wrong."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        return self.gain(self.centre(x) / self.root(x))

    def mean(self, x):
        return x.mean(-1, keepdim=True)

    def centre(self, x):
        return x - self.mean(x)

    def variance(self, x):
        return x.var(-1, correction=0, keepdim=True)

    def root(self, x):
        return (self.variance(x) + self.eps).sqrt()

    def gain(self, n):
        return self.gamma * n + self.beta


@misconception(
    NORM,
    "unbiased-variance",
    "The squares are divided by D − 1, which var and std do unless told otherwise: divide by D (correction=0).",
)
class UnbiasedVariance(RightNorm):
    def variance(self, x):
        return x.var(-1, keepdim=True)


@misconception(
    NORM,
    "unbiased-and-epsilon-outside",
    "Two slips: std divides by D − 1 unless told otherwise, and ε is added to the deviation instead of the variance.",
)
class UnbiasedAndEpsilonOutside(RightNorm):
    def root(self, x):
        return x.std(-1, keepdim=True) + self.eps


@misconception(
    NORM,
    "epsilon-outside-the-root",
    "ε is added to the standard deviation: it is added to the variance, under the root.",
)
class EpsilonOutsideTheRoot(RightNorm):
    def root(self, x):
        return self.variance(x).sqrt() + self.eps


@misconception(
    NORM,
    "divided-by-the-variance",
    "The deviations are divided by the variance: divide by its root.",
)
class DividedByTheVariance(RightNorm):
    def root(self, x):
        return self.variance(x) + self.eps


@misconception(NORM, "no-epsilon", "Without ε a row of equal entries is 0/0: add ε to the variance, under the root.")
class NoEpsilon(RightNorm):
    def root(self, x):
        return self.variance(x).sqrt()


@misconception(NORM, "epsilon-squared", "ε is squared under the root: it is added to the variance as it is.")
class EpsilonSquared(RightNorm):
    def root(self, x):
        return (self.variance(x) + self.eps**2).sqrt()


def _other_epsilon(other):
    @misconception(NORM, "other-default-epsilon", "Unless another is given, ε is 1e-5; your layer has another default.")
    class OtherDefaultEpsilon(RightNorm):
        def __init__(self, d_model, eps=other):
            super().__init__(d_model, eps)

    return OtherDefaultEpsilon


OTHER_EPSILONS = [_other_epsilon(other) for other in (1e-6, 1e-8, 1e-12, 1e-3)]


@misconception(NORM, "epsilon-fixed", "The argument eps has no effect: keep it in __init__ and add it to the variance.")
class EpsilonFixed(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model)


@misconception(NORM, "mean-not-subtracted", "The mean is not subtracted: divide x − μ, and take the variance around μ.")
class MeanNotSubtracted(RightNorm):
    def mean(self, x):
        return 0.0

    def variance(self, x):
        return x.square().mean(-1, keepdim=True)


@misconception(
    NORM, "mean-kept-in-the-numerator", "The variance is taken around the mean, but x itself is divided: divide x − μ."
)
class MeanKeptInTheNumerator(RightNorm):
    def mean(self, x):
        return 0.0


@misconception(
    NORM, "variance-around-zero", "The mean of the squares of x is no variance: square the deviations x − μ."
)
class VarianceAroundZero(RightNorm):
    def variance(self, x):
        return x.square().mean(-1, keepdim=True)


@misconception(NORM, "not-divided", "The mean is subtracted, but nothing is divided: divide by √(σ² + ε).")
class NotDivided(RightNorm):
    def root(self, x):
        return 1.0


@misconception(
    NORM,
    "absolute-deviation",
    "That is the mean of the absolute deviations: take the root of the mean square.",
)
class AbsoluteDeviation(RightNorm):
    def root(self, x):
        return self.centre(x).abs().mean(-1, keepdim=True) + self.eps


@misconception(NORM, "sum-of-squares", "The squares are added up and not divided by D: the variance is their mean.")
class SumOfSquares(RightNorm):
    def variance(self, x):
        return self.centre(x).square().sum(-1, keepdim=True)


def _over(which, hint):
    @misconception(NORM, f"statistics-over-{which}", hint)
    class StatisticsOver(RightNorm):
        def axes(self, x):
            if which == "tokens":
                return (-2,) if x.dim() > 1 else (-1,)
            if which == "the-batch":
                return (0,)
            if which == "everything":
                return tuple(range(x.dim()))
            return tuple(range(1, x.dim())) if x.dim() > 1 else (-1,)

        def mean(self, x):
            return x.mean(self.axes(x), keepdim=True)

        def variance(self, x):
            return x.var(self.axes(x), correction=0, keepdim=True)

    return StatisticsOver


STATISTICS = [
    _over("tokens", "Mean and variance run over the tokens: take them of each token, over the last axis."),
    _over("the-batch", "Mean and variance run over the first axis: take them of each token, over the last axis."),
    _over(
        "everything", "One mean and one variance serve all numbers of x: every token has its own, over the last axis."
    ),
    _over(
        "sentences", "One mean and one variance serve a whole sentence: every token has its own, over the last axis."
    ),
]


@misconception(
    NORM,
    "statistics-over-sentences",
    "One mean and one variance serve a whole sentence: every token has its own, over the last axis.",
)
class StatisticsOverTheLastTwoAxes(RightNorm):
    def axes(self, x):
        return (-2, -1) if x.dim() > 1 else (-1,)

    def mean(self, x):
        return x.mean(self.axes(x), keepdim=True)

    def variance(self, x):
        return x.var(self.axes(x), correction=0, keepdim=True)


@misconception(
    NORM, "axis-lost", "mean and var drop the axis they run over: keepdim=True keeps it, so that they broadcast."
)
class AxisLost(RightNorm):
    def mean(self, x):
        return x.mean(-1)

    def variance(self, x):
        return x.var(-1, correction=0)


@misconception(
    NORM, "second-axis", "Mean and variance run over axis 1: the features are the last axis, −1, whatever x has."
)
class SecondAxis(RightNorm):
    def axis(self, x):
        return 1 if x.dim() > 1 else 0

    def mean(self, x):
        return x.mean(self.axis(x), keepdim=True)

    def variance(self, x):
        return x.var(self.axis(x), correction=0, keepdim=True)


@misconception(
    NORM,
    "third-axis",
    "Mean and variance run over axis 2, right for (B, L, D) only: the features are the last axis, −1, whatever x has.",
)
class ThirdAxis(RightNorm):
    def mean(self, x):
        return x.mean(2, keepdim=True)

    def variance(self, x):
        return x.var(2, correction=0, keepdim=True)


@misconception(NORM, "gamma-and-beta-unused", "gamma and beta have no effect: return gamma · n + beta.")
class GammaAndBetaUnused(RightNorm):
    def gain(self, n):
        return n


@misconception(NORM, "gamma-unused", "gamma has no effect: return gamma · n + beta.")
class GammaUnused(RightNorm):
    def gain(self, n):
        return n + self.beta


@misconception(NORM, "beta-unused", "beta has no effect: return gamma · n + beta.")
class BetaUnused(RightNorm):
    def gain(self, n):
        return self.gamma * n


@misconception(NORM, "offset-before-gain", "beta is added before gamma multiplies: it is gamma · n + beta.")
class OffsetBeforeGain(RightNorm):
    def gain(self, n):
        return self.gamma * (n + self.beta)


@misconception(NORM, "gamma-and-beta-exchanged", "gamma and beta have changed places: gamma multiplies, beta is added.")
class GammaAndBetaExchanged(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.gamma, self.beta = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.ones(d_model))

    def gain(self, n):
        return self.beta * n + self.gamma


@misconception(NORM, "gain-divides", "The deviations are divided by gamma: gamma multiplies.")
class GainDivides(RightNorm):
    def gain(self, n):
        return n / self.gamma + self.beta


@misconception(NORM, "one-plus-gamma", "1 is added to gamma: gamma itself, ones at the start, multiplies.")
class OnePlusGamma(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        nn.init.zeros_(self.gamma)

    def gain(self, n):
        return (1 + self.gamma) * n + self.beta


@misconception(
    NORM, "gamma-starts-at-zero", "gamma starts as zeros, so that a new layer gives beta only: begin with ones."
)
class GammaStartsAtZero(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        nn.init.zeros_(self.gamma)


@misconception(NORM, "random-start", "gamma starts with random numbers: begin with ones, and beta with zeros.")
class RandomStart(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.gamma = nn.Parameter(torch.randn(d_model))


@misconception(NORM, "beta-starts-at-one", "beta starts as ones: begin with zeros.")
class BetaStartsAtOne(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        nn.init.ones_(self.beta)


@misconception(
    NORM, "scalar-parameters", "gamma and beta are one number each: every feature has its own, shape (d_model,)."
)
class ScalarParameters(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(1, eps)


@misconception(
    NORM, "scalar-parameters", "gamma and beta are one number each: every feature has its own, shape (d_model,)."
)
class ParametersWithoutAxis(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.gamma, self.beta = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(0.0))


@misconception(
    NORM,
    "parameters-called-otherwise",
    "The parameters have other names: call them gamma and beta, as the formula does.",
)
class ParametersCalledOtherwise(nn.LayerNorm):
    pass


@misconception(
    NORM,
    "parameters-not-trained",
    "gamma and beta are plain tensors, which nothing trains or saves: wrap them in nn.Parameter.",
)
class ParametersNotTrained(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        del self.gamma, self.beta
        self.gamma, self.beta = torch.ones(d_model), torch.zeros(d_model)


@misconception(
    NORM,
    "parameters-not-trained",
    "gamma and beta are buffers, which nothing trains: wrap them in nn.Parameter.",
)
class ParametersAsBuffers(RightNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        del self.gamma, self.beta
        self.register_buffer("gamma", torch.ones(d_model))
        self.register_buffer("beta", torch.zeros(d_model))


@misconception(
    NORM,
    "difference-of-means",
    "The mean of the squares minus the square of the mean loses its digits where the mean is large: square x − μ.",
)
class DifferenceOfMeans(RightNorm):
    def variance(self, x):
        return x.square().mean(-1, keepdim=True) - self.mean(x).square()


@misconception(
    NORM,
    "changed-in-place",
    "x is changed in place (-=, sub_ or the like), and with it the caller's tensor: use operations that return a new one.",
)
class ChangedInPlace(RightNorm):
    def forward(self, x):
        root = self.root(x)
        x -= self.mean(x)
        return self.gain(x / root)


@misconception(
    NORM,
    "statistics-detached",
    "The gradient does not pass through mean and variance: they depend on x, so don't detach them.",
)
class StatisticsDetached(RightNorm):
    def mean(self, x):
        return super().mean(x).detach()

    def variance(self, x):
        return super().variance(x).detach()


@misconception(
    NORM, "variance-detached", "The gradient does not pass through the variance: it depends on x, don't detach it."
)
class VarianceDetached(RightNorm):
    def variance(self, x):
        return super().variance(x).detach()


@misconception(NORM, "gradient-cut", "No gradient reaches x: something detaches it (detach, .data, no_grad or NumPy).")
class NormInputCut(RightNorm):
    def forward(self, x):
        return super().forward(x.detach())


@misconception(
    NORM,
    "running-statistics",
    "Mean and variance of earlier calls are kept and used in evaluation: that is batch norm. Every token has its own.",
)
class RunningStatistics(RightNorm):
    kept = None

    def forward(self, x):
        if self.training or self.kept is None:
            self.kept = self.mean(x).mean(), self.variance(x).mean()
        return super().forward(x)

    def centre(self, x):
        return super().centre(x) if self.training else x - self.kept[0]

    def root(self, x):
        return super().root(x) if self.training else (self.kept[1] + self.eps).sqrt()


# An error in setting the parameters names the class, and learners' classes are called like the piece.
for _slip in (ScalarParameters, ParametersWithoutAxis, ParametersCalledOtherwise):
    _slip.__name__ = NORM


# ----------------------------------------------------------------------------------------------------------- Residual

RESIDUAL = "Residual"


class RightResidual(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__()
        self.dropout, self.norm_first = dropout, norm_first

    def drop(self, t):
        return F.dropout(t, self.dropout, self.training)

    def forward(self, x, sublayer, norm):
        return self.pre(x, sublayer, norm) if self.norm_first else self.post(x, sublayer, norm)

    def post(self, x, sublayer, norm):
        return norm(x + self.drop(sublayer(x)))

    def pre(self, x, sublayer, norm):
        return x + self.drop(sublayer(norm(x)))


@misconception(RESIDUAL, "always-post-norm", "norm_first has no effect, the order is always post-norm.")
class AlwaysPostNorm(RightResidual):
    def pre(self, x, sublayer, norm):
        return self.post(x, sublayer, norm)


@misconception(
    RESIDUAL, "always-pre-norm", "The order is always pre-norm: without norm_first it is norm(x + sublayer(x))."
)
class AlwaysPreNorm(RightResidual):
    def post(self, x, sublayer, norm):
        return self.pre(x, sublayer, norm)


@misconception(
    RESIDUAL, "orders-exchanged", "The two orders have changed places: norm_first=True is x + sublayer(norm(x))."
)
class OrdersExchanged(RightResidual):
    def forward(self, x, sublayer, norm):
        return self.post(x, sublayer, norm) if self.norm_first else self.pre(x, sublayer, norm)


@misconception(RESIDUAL, "pre-norm-by-default", "The default is post-norm, the order of the paper: norm_first=False.")
class PreNormByDefault(RightResidual):
    def __init__(self, dropout=0.0, norm_first=True):
        super().__init__(dropout, norm_first)


@misconception(
    RESIDUAL,
    "path-normalised",
    "In pre-norm the residual path carries the norm of x: it carries x itself, so don't overwrite x with its norm.",
)
class PathNormalised(RightResidual):
    def pre(self, x, sublayer, norm):
        x = norm(x)
        return x + self.drop(sublayer(x))


@misconception(
    RESIDUAL,
    "path-normalised",
    "In pre-norm norm(x) stands on the residual path too: it carries x itself, and the norm is for the sub-layer.",
)
class PathNormalisedAgain(RightResidual):
    def pre(self, x, sublayer, norm):
        return norm(x) + self.drop(sublayer(norm(x)))


@misconception(
    RESIDUAL, "norm-before-the-sum", "In post-norm the norm acts on the sub-layer's result alone: it acts on the sum."
)
class NormBeforeTheSum(RightResidual):
    def post(self, x, sublayer, norm):
        return x + norm(self.drop(sublayer(x)))


@misconception(
    RESIDUAL,
    "norm-after-the-sublayer",
    "In pre-norm the norm acts on what the sub-layer returns: it acts on what the sub-layer is given.",
)
class NormAfterTheSublayer(RightResidual):
    def pre(self, x, sublayer, norm):
        return x + self.drop(norm(sublayer(x)))


@misconception(RESIDUAL, "nothing-added", "x is not added: there is no residual path.")
class NothingAdded(RightResidual):
    def post(self, x, sublayer, norm):
        return norm(self.drop(sublayer(x)))

    def pre(self, x, sublayer, norm):
        return self.drop(sublayer(norm(x)))


@misconception(
    RESIDUAL, "result-added-to-itself", "The sub-layer's result is added to itself, as x was overwritten: add it to x."
)
class ResultAddedToItself(RightResidual):
    def post(self, x, sublayer, norm):
        x = self.drop(sublayer(x))
        return norm(x + x)

    def pre(self, x, sublayer, norm):
        x = self.drop(sublayer(norm(x)))
        return x + x


@misconception(
    RESIDUAL,
    "result-added-to-itself",
    "In post-norm the sub-layer's result is added to itself, as x was overwritten: add it to x.",
)
class ResultAddedToItselfInPostNorm(RightResidual):
    def post(self, x, sublayer, norm):
        x = self.drop(sublayer(x))
        return norm(x + x)


@misconception(
    RESIDUAL, "normalised-twice", "In pre-norm the norm acts on the sum as well: it acts before the sub-layer only."
)
class NormalisedTwice(RightResidual):
    def pre(self, x, sublayer, norm):
        return norm(x + self.drop(sublayer(norm(x))))


@misconception(RESIDUAL, "norm-forgotten", "The norm is never called.")
class NormForgotten(RightResidual):
    def post(self, x, sublayer, norm):
        return x + self.drop(sublayer(x))

    pre = post


@misconception(RESIDUAL, "sublayer-called-twice", "The sub-layer is called twice: keep its result in a variable.")
class SublayerCalledTwice(RightResidual):
    def post(self, x, sublayer, norm):
        sublayer(x)
        return super().post(x, sublayer, norm)

    def pre(self, x, sublayer, norm):
        sublayer(norm(x))
        return super().pre(x, sublayer, norm)


@misconception(RESIDUAL, "no-dropout", "Nothing is ever dropped: put an nn.Dropout around what the sub-layer returns.")
class NoDropout(RightResidual):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__(0.0, norm_first)


@misconception(
    RESIDUAL,
    "dropout-on-the-sum",
    "Dropout acts on the sum, and so on x too: it acts on what the sub-layer returns, before the addition.",
)
class DropoutOnTheSum(RightResidual):
    def post(self, x, sublayer, norm):
        return norm(self.drop(x + sublayer(x)))

    def pre(self, x, sublayer, norm):
        return self.drop(x + sublayer(norm(x)))


@misconception(
    RESIDUAL,
    "dropout-at-the-end",
    "Dropout acts on the result: it acts on what the sub-layer returns, before the addition.",
)
class DropoutAtTheEnd(RightResidual):
    def post(self, x, sublayer, norm):
        return self.drop(norm(x + sublayer(x)))


@misconception(
    RESIDUAL,
    "dropout-before-the-sublayer",
    "Dropout acts on what the sub-layer is given: it acts on what it returns.",
)
class DropoutBeforeTheSublayer(RightResidual):
    def post(self, x, sublayer, norm):
        return norm(x + sublayer(self.drop(x)))

    def pre(self, x, sublayer, norm):
        return x + sublayer(self.drop(norm(x)))


@misconception(
    RESIDUAL,
    "dropout-on-x-too",
    "x is dropped as well as the sub-layer's result: the residual path is never dropped.",
)
class DropoutOnXToo(RightResidual):
    def post(self, x, sublayer, norm):
        return norm(self.drop(x) + self.drop(sublayer(x)))

    def pre(self, x, sublayer, norm):
        return self.drop(x) + self.drop(sublayer(norm(x)))


@misconception(
    RESIDUAL,
    "dropout-in-evaluation",
    "Entries are dropped in evaluation too: F.dropout is active unless told self.training, nn.Dropout knows by itself.",
)
class DropoutInEvaluation(RightResidual):
    def drop(self, t):
        return F.dropout(t, self.dropout)


@misconception(
    RESIDUAL,
    "dropout-not-rescaled",
    "What dropout keeps is not divided by 1 − p: use nn.Dropout, or divide.",
)
class DropoutNotRescaled(RightResidual):
    def drop(self, t):
        return super().drop(t) * (1 - self.dropout) if self.training else t


@misconception(RESIDUAL, "keep-probability", "dropout is the share that is dropped, not the share that is kept.")
class KeepProbability(RightResidual):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__(1 - dropout, norm_first)


@misconception(RESIDUAL, "keep-probability", "dropout is the share that is dropped, not the share that is kept.")
class KeepProbabilityUnlessZero(RightResidual):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__(1 - dropout if dropout else 0.0, norm_first)


@misconception(
    RESIDUAL,
    "changed-in-place",
    "x is changed in place (+= or add_), and with it the caller's tensor: write a + b, which makes a new one.",
)
class SumInPlace(RightResidual):
    def post(self, x, sublayer, norm):
        x += self.drop(sublayer(x))
        return norm(x)

    def pre(self, x, sublayer, norm):
        x += self.drop(sublayer(norm(x)))
        return x


@misconception(
    RESIDUAL,
    "changed-in-place",
    "What a sub-layer returns may be the very tensor it was given: don't change it in place (+= or add_), write a + b.",
)
class ResultInPlace(RightResidual):
    def post(self, x, sublayer, norm):
        out = self.drop(sublayer(x))
        out += x
        return norm(out)

    def pre(self, x, sublayer, norm):
        out = self.drop(sublayer(norm(x)))
        out += x
        return out


@misconception(RESIDUAL, "gradient-cut", "No gradient comes through the sub-layer: something detaches what it returns.")
class SublayerCut(RightResidual):
    def post(self, x, sublayer, norm):
        return norm(x + self.drop(sublayer(x).detach()))

    def pre(self, x, sublayer, norm):
        return x + self.drop(sublayer(norm(x)).detach())


@misconception(RESIDUAL, "path-cut", "No gradient comes through the residual path: something detaches x.")
class PathCut(RightResidual):
    def post(self, x, sublayer, norm):
        return norm(x.detach() + self.drop(sublayer(x)))

    def pre(self, x, sublayer, norm):
        return x.detach() + self.drop(sublayer(norm(x)))


@misconception(
    RESIDUAL, "first-sublayer-kept", "Sub-layer and norm of the first call are kept: use those that the call is given."
)
class FirstSublayerKept(RightResidual):
    kept = None

    def forward(self, x, sublayer, norm):
        if self.kept is None:
            self.kept = (sublayer, norm)
        return super().forward(x, *self.kept)


# ------------------------------------------------------------------------------------------------------- EncoderLayer

ENCODER = "EncoderLayer"


class _Encoder(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    residual: type[nn.Module] = RightResidual

    def __init__(self, self_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention, self.feed_forward = self_attention, feed_forward
        self.norm1, self.norm2 = RightNorm(d_model), RightNorm(d_model)
        self.paths = self.residual(dropout, norm_first), self.residual(dropout, norm_first)
        self.dropout, self.norm_first = dropout, norm_first

    def train(self, mode=True):
        for path in self.paths:
            path.train(mode)
        return super().train(mode)

    def forward(self, x, mask=None):
        x = self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)
        return self.paths[1](x, self.feed_forward, self.norm2)

    def attend(self, t, mask):
        return self.self_attention(t, t, t, mask)


_ON_PATHS = (
    (AlwaysPostNorm, "always-post-norm", "norm_first has no effect, the order is always post-norm: hand it on."),
    (
        AlwaysPreNorm,
        "always-pre-norm",
        "The order is always pre-norm: without norm_first each half is norm(x + sublayer(x)).",
    ),
    (
        OrdersExchanged,
        "orders-exchanged",
        "The two orders have changed places: with norm_first each half is x + sublayer(norm(x)).",
    ),
    (
        PathNormalised,
        "path-normalised",
        "In pre-norm the residual path carries the norm of x: it carries x itself, so don't overwrite x with its norm.",
    ),
    (
        NormBeforeTheSum,
        "norm-before-the-sum",
        "In post-norm the norms act on the sub-layers' results alone: they act on the sums.",
    ),
    (
        NormAfterTheSublayer,
        "norm-after-the-sublayer",
        "In pre-norm the norms act on what the sub-layers return: they act on what the sub-layers are given.",
    ),
    (NothingAdded, "nothing-added", "Nothing is added to what the sub-layers return: there are no residual paths."),
    (
        ResultAddedToItself,
        "result-added-to-itself",
        "The sub-layer's result is added to itself, as x was overwritten: add it to x.",
    ),
    (NormalisedTwice, "normalised-twice", "In pre-norm the sums are normalised too: nothing follows the addition."),
    (NormForgotten, "norms-forgotten", "norm1 and norm2 are never called."),
    (NoDropout, "no-dropout", "Nothing is ever dropped: hand dropout on, or put an nn.Dropout around each result."),
    (
        DropoutOnTheSum,
        "dropout-on-the-sum",
        "Dropout acts on the sums, and so on the residual path: it acts on each sub-layer's result, before the addition.",
    ),
    (
        DropoutAtTheEnd,
        "dropout-at-the-end",
        "In post-norm dropout acts after the norm: it acts on each sub-layer's result, before the addition.",
    ),
    (
        DropoutBeforeTheSublayer,
        "dropout-before-the-sublayer",
        "Dropout acts on what the sub-layers are given: it acts on what they return.",
    ),
    (
        DropoutInEvaluation,
        "dropout-in-evaluation",
        "Entries are dropped in evaluation too: F.dropout is active unless told self.training, nn.Dropout knows by itself.",
    ),
    (DropoutNotRescaled, "dropout-not-rescaled", "What dropout keeps is not divided by 1 − p: use nn.Dropout."),
    (
        SumInPlace,
        "changed-in-place",
        "x is changed in place (+= or add_), and with it the caller's tensor: write a + b.",
    ),
    (SublayerCut, "gradient-cut", "No gradient comes through the sub-layers: something detaches what they return."),
    (PathCut, "path-cut", "No gradient comes through the residual paths: something detaches x."),
)


def _on_paths(residual_slip, name, hint):
    @misconception(ENCODER, name, hint)
    class OnPaths(_Encoder):
        residual = residual_slip

    return OnPaths


ON_PATHS = [_on_paths(*row) for row in _ON_PATHS]


@misconception(ENCODER, "pre-norm-by-default", "The default is post-norm, the order of the paper: norm_first=False.")
class EncoderPreNormByDefault(_Encoder):
    def __init__(self, self_attention, feed_forward, d_model, dropout=0.0, norm_first=True):
        super().__init__(self_attention, feed_forward, d_model, dropout, norm_first)


@misconception(ENCODER, "norm1-twice", "norm1 serves both halves: the feed-forward has norm2.")
class Norm1Twice(_Encoder):
    def forward(self, x, mask=None):
        x = self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)
        return self.paths[1](x, self.feed_forward, self.norm1)


@misconception(ENCODER, "norms-shared", "norm1 and norm2 are one and the same object: make two norms.")
class NormsShared(_Encoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.norm2 = self.norm1


@misconception(ENCODER, "norms-exchanged", "norm1 and norm2 have changed places: norm1 belongs to the self-attention.")
class NormsExchanged(_Encoder):
    def forward(self, x, mask=None):
        x = self.paths[0](x, lambda t: self.attend(t, mask), self.norm2)
        return self.paths[1](x, self.feed_forward, self.norm1)


@misconception(ENCODER, "feed-forward-first", "The feed-forward comes first: the self-attention does, with norm1.")
class FeedForwardFirst(_Encoder):
    def forward(self, x, mask=None):
        x = self.paths[0](x, self.feed_forward, self.norm2)
        return self.paths[1](x, lambda t: self.attend(t, mask), self.norm1)


@misconception(ENCODER, "feed-forward-first", "The feed-forward comes first: the self-attention does, with norm1.")
class FeedForwardFirstWithNorm1(_Encoder):
    def forward(self, x, mask=None):
        x = self.paths[0](x, self.feed_forward, self.norm1)
        return self.paths[1](x, lambda t: self.attend(t, mask), self.norm2)


@misconception(
    ENCODER,
    "second-path-from-the-beginning",
    "The second residual path carries the x of the beginning: it carries what the attention half gave.",
)
class SecondPathFromTheBeginning(_Encoder):
    def forward(self, x, mask=None):
        middle = self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)
        drop = self.paths[1].drop
        if self.norm_first:
            return x + drop(self.feed_forward(self.norm2(middle)))
        return self.norm2(x + drop(self.feed_forward(middle)))


@misconception(
    ENCODER,
    "halves-side-by-side",
    "The feed-forward is given the x of the beginning: it is given what the attention half gave.",
)
class HalvesSideBySide(_Encoder):
    def forward(self, x, mask=None):
        self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)
        return self.paths[1](x, self.feed_forward, self.norm2)


@misconception(
    ENCODER,
    "halves-side-by-side",
    "The feed-forward is given the x of the beginning: it is given what the attention half gave.",
)
class BranchesSideBySide(_Encoder):
    def forward(self, x, mask=None):
        middle = self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)
        drop = self.paths[1].drop
        if self.norm_first:
            return middle + drop(self.feed_forward(self.norm2(x)))
        return self.norm2(middle + drop(self.feed_forward(x)))


@misconception(
    ENCODER,
    "result-added-to-itself",
    "The attention's result is added to itself, as x was overwritten: add it to x.",
)
class AttentionAddedToItself(_Encoder):
    def forward(self, x, mask=None):
        t = self.paths[0].drop(self.attend(self.norm1(x) if self.norm_first else x, mask))
        x = t + t if self.norm_first else self.norm1(t + t)
        return self.paths[1](x, self.feed_forward, self.norm2)


@misconception(ENCODER, "attention-left-out", "The self-attention has no part in the result.")
class AttentionLeftOut(_Encoder):
    def forward(self, x, mask=None):
        return self.paths[1](x, self.feed_forward, self.norm2)


@misconception(ENCODER, "feed-forward-left-out", "The feed-forward has no part in the result.")
class FeedForwardLeftOut(_Encoder):
    def forward(self, x, mask=None):
        return self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)


@misconception(
    ENCODER,
    "one-norm-in-the-middle",
    "Attention and feed-forward run one after the other inside one residual path: each has a path and a norm of its own.",
)
class OnePathAroundBoth(_Encoder):
    def forward(self, x, mask=None):
        return self.paths[0](x, lambda t: self.feed_forward(self.attend(t, mask)), self.norm1)


@misconception(ENCODER, "mask-not-handed-on", "The mask does not reach the self-attention: it is its fourth argument.")
class MaskNotHandedOn(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t)


@misconception(ENCODER, "mask-not-handed-on", "The mask does not reach the self-attention: it is its fourth argument.")
class NoneForTheMask(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t, None)


@misconception(
    ENCODER, "mask-not-handed-on", "In pre-norm the mask does not reach the self-attention: hand it on there too."
)
class MaskNotHandedOnInPreNorm(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t) if self.norm_first else super().attend(t, mask)


@misconception(ENCODER, "mask-inverted", "The mask is turned round on its way: it goes to the self-attention as it is.")
class EncoderMaskInverted(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t, None if mask is None else ~mask)


@misconception(
    ENCODER,
    "mask-in-numbers",
    "The mask is turned into numbers on its way: it goes to the self-attention as it is, boolean.",
)
class MaskInNumbers(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t, None if mask is None else mask.float())


@misconception(
    ENCODER, "mask-unsqueezed", "The mask gets one more axis on its way: it goes to the self-attention as it is."
)
class EncoderMaskUnsqueezed(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t, None if mask is None else mask.unsqueeze(1))


@misconception(
    ENCODER,
    "attention-with-one-argument",
    "The self-attention gets one tensor: it wants query, key, value and mask, here three times the same tensor.",
)
class AttentionWithOneArgument(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t)


@misconception(
    ENCODER,
    "attention-with-one-argument",
    "The self-attention gets one tensor and the mask: it wants query, key, value and mask.",
)
class AttentionWithTwoArguments(_Encoder):
    def attend(self, t, mask):
        return self.self_attention(t, mask)


@misconception(
    ENCODER,
    "keys-and-values-not-normalised",
    "In pre-norm only the query is normalised: the self-attention gets one and the same tensor three times.",
)
class KeysAndValuesNotNormalised(_Encoder):
    def forward(self, x, mask=None):
        start = x
        x = self.paths[0](x, lambda t: self.self_attention(t, start, start, mask), self.norm1)
        return self.paths[1](x, self.feed_forward, self.norm2)


@misconception(
    ENCODER, "mask-to-the-feed-forward", "The feed-forward gets the mask too: it is given one tensor and nothing else."
)
class MaskToTheFeedForward(_Encoder):
    def forward(self, x, mask=None):
        x = self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)
        return self.paths[1](x, lambda t: self.feed_forward(t, mask), self.norm2)


@misconception(
    ENCODER,
    "dropout-in-one-half",
    "Only the attention's result is dropped: dropout acts on that of the feed-forward too.",
)
class DropoutInTheFirstHalf(_Encoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.paths = self.paths[0], RightResidual(0.0, self.norm_first)


@misconception(
    ENCODER,
    "dropout-in-one-half",
    "Only the feed-forward's result is dropped: dropout acts on that of the attention too.",
)
class DropoutInTheSecondHalf(_Encoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.paths = RightResidual(0.0, self.norm_first), self.paths[1]


@misconception(
    ENCODER,
    "dropout-in-evaluation",
    "Entries of the feed-forward's result are dropped in evaluation too: F.dropout wants self.training.",
)
class SecondDropoutInEvaluation(_Encoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.paths = self.paths[0], DropoutInEvaluation(self.dropout, self.norm_first)


@misconception(
    ENCODER, "normalised-twice", "In pre-norm norm2 acts on the layer's result too: nothing follows the last addition."
)
class ResultNormalised(_Encoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.paths = self.paths[0], NormalisedTwice(self.dropout, self.norm_first)


@misconception(
    ENCODER,
    "sublayers-under-other-names",
    "The sub-layers are kept under other names: the attributes are self_attention and feed_forward.",
)
class SublayersUnderOtherNames(_Encoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.attn, self.ff = self.self_attention, self.feed_forward
        del self.self_attention, self.feed_forward

    def attend(self, t, mask):
        return self.attn(t, t, t, mask)

    def forward(self, x, mask=None):
        x = self.paths[0](x, lambda t: self.attend(t, mask), self.norm1)
        return self.paths[1](x, self.ff, self.norm2)


@misconception(
    ENCODER,
    "sublayers-in-a-list",
    "The sub-layers stand in a plain list, where their parameters are neither saved nor trained: assign them to self.",
)
class SublayersInAList(_Encoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.both = [self.self_attention, self.feed_forward]
        del self.self_attention, self.feed_forward

    def forward(self, x, mask=None):
        attention, feed_forward = self.both
        x = self.paths[0](x, lambda t: attention(t, t, t, mask), self.norm1)
        return self.paths[1](x, feed_forward, self.norm2)
