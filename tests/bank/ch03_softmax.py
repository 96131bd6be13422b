"""softmax(scores, dim=-1) that survives large and −∞ scores, and what people make of it."""

from .entry import Collector

BANK = Collector("softmax", "softmax")

# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "max-values",
    "Tensor.max with its pair of values and indices.",
    """
def softmax(scores, dim=-1):
    top, _ = scores.max(dim, keepdim=True)
    e = torch.exp(scores - top)
    return torch.div(e, torch.sum(e, dim, keepdim=True))
""",
)
BANK.right(
    "logsumexp",
    "The exponential of the score minus its logsumexp.",
    """
def softmax(scores, dim=-1):
    return (scores - scores.logsumexp(dim, keepdim=True)).exp()
""",
)
BANK.right(
    "detached-maximum",
    "No gradient through the maximum, which cancels anyway, and a harmless epsilon below the line.",
    """
def softmax(scores, dim=-1):
    e = (scores - scores.detach().amax(dim, True)).exp()
    return e / (e.sum(dim, True) + 1e-9)
""",
)
BANK.right(
    "builtin",
    "PyTorch's own, behind a lambda.",
    """
softmax = lambda scores, dim=-1: torch.softmax(scores, dim)
""",
)
BANK.right(
    "partial",
    "A functools.partial that fixes the exponential function.",
    """
from functools import partial


def normalised(f, scores, dim=-1):
    values = f(scores - torch.amax(scores, dim, keepdim=True))
    return values / values.sum(dim, keepdim=True)


softmax = partial(normalised, torch.exp)
""",
)
BANK.right(
    "module-instance",
    "A module that is called like a function.",
    """
class Softmax(nn.Module):
    def forward(self, scores, dim=-1):
        return nn.LogSoftmax(dim)(scores).exp()


softmax = Softmax()
""",
)
BANK.right(
    "double-inside",
    "Float64 inside, rounded back to the dtype of the scores.",
    """
def softmax(scores, dim=-1):
    wide = scores.to(torch.float64)
    e = torch.exp(wide - torch.amax(wide, dim=dim, keepdim=True))
    return e.div(e.sum(dim=dim, keepdim=True)).to(scores.dtype)
""",
)
BANK.right(
    "online",
    "One pass along the axis with a running maximum and a running sum.",
    """
def softmax(scores, dim=-1):
    slices = scores.unbind(dim)
    top, total = torch.full_like(slices[0], -1e300 if scores.dtype == torch.float64 else -3e38), 0.0
    for s in slices:
        higher = torch.maximum(top, s)
        total = total * torch.exp(top - higher) + torch.exp(s - higher)
        top = higher
    return torch.stack([torch.exp(s - top) / total for s in slices], dim)
""",
)
BANK.right(
    "rows",
    "The axis moved to the end, a loop over rows, and back.",
    """
def softmax(scores, dim=-1):
    moved = scores.movedim(dim, -1)
    rows = []
    for row in moved.reshape(-1, moved.shape[-1]):
        e = (row - max(row.tolist())).exp()
        rows.append(e / e.sum())
    return torch.stack(rows).reshape(moved.shape).movedim(-1, dim)
""",
)
BANK.right(
    "own-backward",
    "An autograd function with the backward pass written out.",
    """
class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, dim):
        e = torch.exp(scores - scores.amax(dim, keepdim=True))
        weights = e / e.sum(dim, keepdim=True)
        ctx.save_for_backward(weights)
        ctx.dim = dim
        return weights

    @staticmethod
    def backward(ctx, grad):
        (weights,) = ctx.saved_tensors
        return weights * (grad - (grad * weights).sum(ctx.dim, keepdim=True)), None


def softmax(scores, dim=-1):
    return _Softmax.apply(scores, dim)
""",
)

BANK.right(
    "chunked-online",
    "Two chunks, merged by their common maximum.",
    """
def softmax(scores, dim=-1):
    n = scores.shape[dim]
    parts = scores.split(max(1, n // 2), dim)
    tops = [p.amax(dim, keepdim=True) for p in parts]
    top = torch.stack(tops).amax(0)
    es = [torch.exp(p - top) for p in parts]
    total = sum(e.sum(dim, keepdim=True) for e in es)
    return torch.cat([e / total for e in es], dim)
""",
)

BANK.right(
    "exp2",
    "Powers of two of the scores in bits.",
    """
_LOG2E = 1.4426950408889634


def softmax(scores, dim=-1):
    e = torch.exp2((scores - scores.amax(dim, keepdim=True)) * _LOG2E)
    return e / e.sum(dim, keepdim=True)
""",
)

BANK.right(
    "where-infinite",
    "An explicit 0 where the score is −∞.",
    """
def softmax(scores, dim=-1):
    top = scores.amax(dim, keepdim=True)
    e = torch.where(torch.isneginf(scores), torch.zeros_like(scores), torch.exp(scores - top))
    return e / e.sum(dim, keepdim=True)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "no-maximum",
    "Nothing is subtracted: large scores overflow, and infinity over infinity is NaN.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores)
    return e / e.sum(dim=dim, keepdim=True)
""",
    "no-maximum-subtracted",
)
BANK.wrong(
    "global-maximum",
    "One maximum for the whole tensor: a row far below it underflows to 0/0.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.max())
    return e / e.sum(dim=dim, keepdim=True)
""",
    "one-maximum-for-all",
)
BANK.wrong(
    "maximum-over-other-axis",
    "The maximum is always taken along the last axis, whatever dim says.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(dim=dim, keepdim=True)
""",
    "maximum-over-the-wrong-axis",
)
BANK.wrong(
    "absolute-maximum",
    "The largest absolute value is subtracted: a row of large negative scores underflows.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.abs().amax(dim, keepdim=True))
    return e / e.sum(dim=dim, keepdim=True)
""",
)
BANK.wrong(
    "clamped",
    "Scores are cut off at 50, so that larger ones become equal.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores.clamp(max=50.0))
    return e / e.sum(dim=dim, keepdim=True)
""",
)
BANK.wrong(
    "clamped-below",
    "A lower bound of −30 after the shift: a score of −∞ keeps a weight.",
    """
def softmax(scores, dim=-1):
    shifted = (scores - scores.amax(dim, keepdim=True)).clamp(min=-30.0)
    return shifted.exp() / shifted.exp().sum(dim, keepdim=True)
""",
)
BANK.wrong(
    "mean-subtracted",
    "The mean is subtracted, which is −∞ as soon as one score is.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.mean(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
""",
)
BANK.wrong(
    "ignores-dim",
    "Always along the last axis.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)
""",
    "always-the-last-axis",
)
BANK.wrong(
    "flattened",
    "Along all axes at once: the whole tensor sums to 1.",
    """
def softmax(scores, dim=-1):
    return torch.softmax(scores.flatten(), 0).view(scores.shape)
""",
    "one-sum-for-all",
)
BANK.wrong(
    "axis-one",
    "Written for a table of two axes: along axis 1, always.",
    """
def softmax(scores, dim=1):
    e = torch.exp(scores - scores.max(1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)
""",
    "always-the-second-axis",
)
BANK.wrong(
    "no-keepdim",
    "Without keepdim the division lines up with the wrong axis, or not at all.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.amax(dim, keepdim=True))
    return e / e.sum(dim)
""",
)
BANK.wrong(
    "logarithm",
    "Returns the logarithm of the weights.",
    """
def softmax(scores, dim=-1):
    return scores - torch.logsumexp(scores, dim, keepdim=True)
""",
    "logarithm",
)
BANK.wrong(
    "softmin",
    "The sign is turned: the smallest score wins.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores.amin(dim, keepdim=True) - scores)
    return e / e.sum(dim, keepdim=True)
""",
    "wrong-sign",
)
BANK.wrong(
    "base-two",
    "Powers of two in place of e.",
    """
def softmax(scores, dim=-1):
    powers = 2 ** (scores - scores.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)
""",
)
BANK.wrong(
    "not-normalised",
    "Divided by the largest exponential instead of the sum: the largest weight is 1.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.amax(dim, keepdim=True))
    return e / e.amax(dim, keepdim=True)
""",
    "not-normalised",
)
BANK.wrong(
    "large-epsilon",
    "An epsilon of a hundredth below the line.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.amax(dim, keepdim=True))
    return e / (e.sum(dim, keepdim=True) + 1e-2)
""",
)
BANK.wrong(
    "in-place",
    "Subtracts the maximum from the scores themselves.",
    """
def softmax(scores, dim=-1):
    with torch.no_grad():
        scores -= scores.amax(dim, keepdim=True)
    e = torch.exp(scores)
    return e / e.sum(dim, keepdim=True)
""",
    "changes-its-input",
)
BANK.wrong(
    "in-place-everything",
    "exp_ and div_ write the result over the scores.",
    """
def softmax(scores, dim=-1):
    data = scores.data
    data.sub_(data.amax(dim, keepdim=True)).exp_()
    data.div_(data.sum(dim, keepdim=True))
    return scores
""",
)
BANK.wrong(
    "detached",
    "Worked out on a detached copy: no gradient comes back.",
    """
def softmax(scores, dim=-1):
    s = scores.detach()
    e = torch.exp(s - s.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
""",
    "gradient-cut",
)
BANK.wrong(
    "numpy-round-trip",
    "NumPy in between: the values are right and the gradient is gone.",
    """
def softmax(scores, dim=-1):
    s = scores.detach().numpy()
    e = np.exp(s - s.max(axis=dim, keepdims=True))
    return torch.from_numpy(e / e.sum(axis=dim, keepdims=True))
""",
    "gradient-cut",
)
BANK.wrong(
    "no-grad-block",
    "A no_grad block around the computation.",
    """
@torch.no_grad()
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
""",
    "gradient-cut",
)
BANK.wrong(
    "sum-as-constant",
    "The sum is detached, so that the gradient misses what each score takes from the others.",
    """
def softmax(scores, dim=-1):
    e = torch.exp(scores - scores.detach().amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True).detach()
""",
)
BANK.wrong(
    "infinity-by-zero",
    "Blocked scores are multiplied by 0 instead of left out: 0 times −∞ is NaN.",
    """
def softmax(scores, dim=-1):
    top = scores.amax(dim, keepdim=True)
    finite = torch.isfinite(scores)
    e = torch.exp((scores - top) * finite) * finite
    return e / e.sum(dim, keepdim=True)
""",
)
BANK.wrong(
    "infinity-as-zero",
    "−∞ is replaced by 0, which is an ordinary score.",
    """
def softmax(scores, dim=-1):
    s = torch.nan_to_num(scores, neginf=0.0)
    e = torch.exp(s - s.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
""",
)

BANK.wrong(
    "keyword-only",
    "dim can be given by its name only.",
    """
def softmax(scores, *, dim=-1):
    e = torch.exp(scores - scores.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
""",
)

BANK.wrong(
    "dim-zero-falsy",
    "dim=0 is taken for none.",
    """
def softmax(scores, dim=None):
    return torch.softmax(scores, dim or -1)
""",
)

BANK.wrong(
    "clamp-ten-thousand",
    "Scores beyond ±10 000 are cut off.",
    """
def softmax(scores, dim=-1):
    s = scores.clamp(-1e4, 1e4)
    e = torch.exp(s - s.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
""",
)

BANK.wrong(
    "infinity-to-minus-ten-thousand",
    "−∞ is replaced by −10 000, which a finite score may fall below.",
    """
def softmax(scores, dim=-1):
    s = torch.where(torch.isinf(scores), torch.full_like(scores, -1e4), scores)
    e = torch.exp(s - s.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
""",
)

BANK.wrong(
    "straight-through",
    "One-hot values with the gradient of the softmax.",
    """
def softmax(scores, dim=-1):
    s = torch.softmax(scores, dim)
    hard = torch.zeros_like(s).scatter_(dim, s.argmax(dim, keepdim=True), 1.0)
    return hard + s - s.detach()
""",
)

BANK.wrong(
    "gradient-doubled",
    "A backward pass of its own that has the diagonal of the Jacobian only.",
    """
class _S(torch.autograd.Function):
    @staticmethod
    def forward(ctx, s, dim):
        w = torch.softmax(s, dim)
        ctx.save_for_backward(w)
        return w

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        return g * w * (1 - w), None


def softmax(scores, dim=-1):
    return _S.apply(scores, dim)
""",
)

BANK.wrong(
    "grad-nan-at-inf",
    "The gradient is NaN where a score is −∞.",
    """
def softmax(scores, dim=-1):
    finite = torch.isfinite(scores)
    top = scores.detach().amax(dim, keepdim=True)
    e = torch.where(finite, (scores - top).exp() * (scores / scores), torch.zeros_like(scores))
    return e / e.sum(dim, keepdim=True)
""",
)
