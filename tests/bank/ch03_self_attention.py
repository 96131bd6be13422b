"""SelfAttention(d_model, d_k): three projections of one sequence, and what people make of it."""

from .entry import Collector

BANK = Collector("SelfAttention", "self")

_PLAIN = """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        {init}

    def forward(self, x, mask=None):
        {forward}
"""
_INIT = "\n        ".join(f"self.{name} = nn.Linear(d_model, d_k, bias=False)" for name in ("w_q", "w_k", "w_v"))
_ATTEND = "return F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask=mask)"


def _plain(init: str = _INIT, forward: str = "", **roles: str) -> str:
    """The plain form with its constructor, its forward pass or what plays a role replaced."""
    plain = {"q": "self.w_q(x)", "k": "self.w_k(x)", "v": "self.w_v(x)"}
    return _PLAIN.format(init=init, forward=forward or _ATTEND.format(**(plain | roles)))


_BY_HAND = """q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        scores = {scores}
        if mask is not None:
            scores = {masked}
        weights = {weights}
        return {result}"""


def _by_hand(**lines: str) -> str:
    """Attention written out in the forward pass, with some of its lines replaced."""
    plain = {
        "scores": "q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))",
        "masked": 'scores.masked_fill(~mask, float("-inf"))',
        "weights": "torch.softmax(scores, dim=-1)",
        "result": "weights @ v",
    }
    return _plain(forward=_BY_HAND.format(**(plain | lines)))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("fused-kernel", "PyTorch's kernel on three projections.", _plain())
BANK.right("by-hand", "Attention written out.", _by_hand())
BANK.right(
    "plain-products",
    "F.linear with the layers' weights, einsum, float64 inside, a fill of −1e9.",
    _plain(
        forward="q, k, v = (F.linear(x, layer.weight).double() for layer in (self.w_q, self.w_k, self.w_v))\n"
        "        scores = torch.einsum('bik,bjk->bij', q, k) * k.size(-1) ** -0.5\n"
        "        if mask is not None:\n"
        "            scores = torch.where(mask, scores, torch.full_like(scores, -1e9))\n"
        "        return torch.einsum('bij,bjv->biv', scores.softmax(-1), v).to(x.dtype)"
    ),
)
BANK.right(
    "one-product",
    "The three weights joined for one product, then split.",
    _plain(
        forward="weight = torch.cat([self.w_q.weight, self.w_k.weight, self.w_v.weight])\n"
        "        q, k, v = (x @ weight.T).chunk(3, dim=-1)\n"
        "        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
    ),
)
BANK.right(
    "loop-over-batch",
    "One sequence of the batch after the other, projections made in a loop over names.",
    _plain(
        init="for name in ('w_q', 'w_k', 'w_v'):\n"
        "            self.add_module(name, nn.Linear(in_features=d_model, out_features=d_k, bias=False))",
        forward="if mask is not None:\n"
        "            mask = mask.expand(x.size(0), x.size(1), x.size(1))\n"
        "        rows = []\n"
        "        for b in range(x.size(0)):\n"
        "            q, k, v = self.w_q(x[b]), self.w_k(x[b]), self.w_v(x[b])\n"
        "            s = q.mm(k.t()).div(math.sqrt(q.size(1)))\n"
        "            s = s if mask is None else s.masked_fill(mask[b].logical_not(), -math.inf)\n"
        "            rows.append(s.softmax(1).mm(v))\n"
        "        return torch.stack(rows)",
    ),
)
BANK.right(
    "helper-and-subclass",
    "A linear layer of its own class, a helper function, and the weights kept as an attribute.",
    """
class Projection(nn.Linear):
    def __init__(self, d_in, d_out):
        super().__init__(d_in, d_out, bias=False)


def attend(q, k, v, mask):
    logits = q.matmul(k.mT) / q.shape[-1] ** 0.5
    if mask is not None:
        logits = logits + torch.zeros_like(logits).masked_fill(~mask, -math.inf)
    weights = (logits - logits.logsumexp(-1, keepdim=True)).exp()
    return weights.matmul(v), weights


class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        nn.Module.__init__(self)
        self.w_q, self.w_k, self.w_v = (Projection(d_model, d_k) for _ in range(3))
        self.last_weights = None

    def forward(self, x, mask=None):
        output, self.last_weights = attend(self.w_q(x), self.w_k(x), self.w_v(x), mask)
        return output
""",
)
BANK.right(
    "scaled-input",
    "The scale is folded into the query, and W_Q^T W_K applied from the left.",
    _plain(
        forward="bilinear = self.w_q.weight.T @ self.w_k.weight / math.sqrt(self.w_q.out_features)\n"
        "        scores = x @ bilinear @ x.transpose(1, 2)\n"
        "        if mask is not None:\n"
        "            scores = scores.masked_fill(~mask, torch.finfo(x.dtype).min)\n"
        "        return self.w_v(scores.softmax(-1) @ x)"
    ),
)

BANK.right(
    "lazy",
    "Lazy layers, which a first pass in the constructor makes real.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.LazyLinear(d_k, bias=False)
        self.w_k = nn.LazyLinear(d_k, bias=False)
        self.w_v = nn.LazyLinear(d_k, bias=False)
        self(torch.zeros(1, 1, d_model))

    def forward(self, x, mask=None):
        return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)
""",
)

BANK.right(
    "star-forward",
    "Starred arguments of forward.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, *args, **kwargs):
        mask = args[0] if args else kwargs.get("mask")
        return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)
""",
)

BANK.right(
    "checkpointed",
    "Activations are not kept but worked out again.",
    """
from torch.utils.checkpoint import checkpoint


class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        return checkpoint(
            lambda t: F.scaled_dot_product_attention(self.w_q(t), self.w_k(t), self.w_v(t), attn_mask=mask),
            x,
            use_reentrant=False,
        )
""",
)

BANK.right(
    "mha-module",
    "PyTorch's multi-head function with one head, identity projections and the mask turned round, as it wants it.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        q, k, v = (t.transpose(0, 1) for t in (self.w_q(x), self.w_k(x), self.w_v(x)))
        e = q.size(-1)
        m = None if mask is None else ~mask.expand(x.size(0), x.size(1), x.size(1))
        eye = torch.eye(e, dtype=x.dtype)
        out, _ = F.multi_head_attention_forward(
            q,
            k,
            v,
            e,
            1,
            torch.eye(e, dtype=x.dtype).repeat(3, 1),
            None,
            None,
            None,
            False,
            0.0,
            eye,
            None,
            training=self.training,
            attn_mask=m,
        )
        return out.transpose(0, 1)
""",
)

BANK.right(
    "flat-projection",
    "The batch flattened for the projections.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        B, L, D = x.shape
        flat = x.reshape(B * L, D)
        q, k, v = (w(flat).view(B, L, -1) for w in (self.w_q, self.w_k, self.w_v))
        return F.scaled_dot_product_attention(q, k, v, mask)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "biases",
    "The projections have biases.",
    _plain(init=_INIT.replace(", bias=False", "")),
    "projections-with-bias",
)
BANK.wrong(
    "one-layer-shared",
    "One layer under three names.",
    _plain(init="self.w_q = self.w_k = self.w_v = nn.Linear(d_model, d_k, bias=False)"),
)
BANK.wrong(
    "keys-by-query-layer",
    "Queries and keys both come from w_q.",
    _plain(k="self.w_q(x)"),
    "keys-from-the-query-projection",
)
BANK.wrong(
    "roles-swapped",
    "Queries and keys are exchanged.",
    _plain(q="self.w_k(x)", k="self.w_q(x)"),
    "queries-and-keys-swapped",
)
BANK.wrong(
    "values-from-keys",
    "The keys are averaged, not the values.",
    _plain(v="self.w_k(x)"),
    "values-from-the-key-projection",
)
BANK.wrong(
    "values-unprojected",
    "The tokens themselves are averaged: w_v is never used.",
    _plain(v="x"),
    "values-not-projected",
)
BANK.wrong(
    "projected-twice",
    "Each projection is applied once more, padded to fit.",
    _plain(
        forward="q, k, v = (w(F.pad(w(x), (0, w.in_features - w.out_features)))\n"
        "                   for w in (self.w_q, self.w_k, self.w_v))\n"
        "        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
    ),
)
BANK.wrong(
    "values-projected-after-values",
    "w_v is applied to the values and once more through the residual of the output.",
    _plain(
        forward="v = self.w_v(x)\n"
        "        return v + F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), v, attn_mask=mask)"
    ),
)
BANK.wrong(
    "other-names",
    "Attributes called query, key and value.",
    _plain(
        init=_INIT.replace("w_q", "query").replace("w_k", "key").replace("w_v", "value"),
        q="self.query(x)",
        k="self.key(x)",
        v="self.value(x)",
    ),
)
BANK.wrong(
    "parameters-not-layers",
    "Bare parameters (D, K) instead of layers.",
    _plain(
        init="for name in ('w_q', 'w_k', 'w_v'):\n"
        "            setattr(self, name, nn.Parameter(torch.randn(d_model, d_k) / math.sqrt(d_model)))",
        q="x @ self.w_q",
        k="x @ self.w_k",
        v="x @ self.w_v",
    ),
)
BANK.wrong(
    "layers-made-in-forward",
    "New layers in every call: nothing is kept or trained.",
    _plain(
        init="self.d_model, self.d_k = d_model, d_k",
        forward="q, k, v = (nn.Linear(self.d_model, self.d_k, bias=False, dtype=x.dtype)(x) for _ in range(3))\n"
        "        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    ),
)
BANK.wrong(
    "layers-in-a-list",
    "The layers are in a plain list under other names as well, and only the list is used.",
    _plain(
        init=_INIT + "\n        self.layers = [nn.Linear(d_model, d_k, bias=False) for _ in range(3)]",
        forward="q, k, v = (layer.to(x.dtype)(x) for layer in self.layers)\n"
        "        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    ),
)
BANK.wrong(
    "output-projection",
    "A fourth layer at the end, as multi-head attention has.",
    _plain(
        init=_INIT + "\n        self.w_o = nn.Linear(d_k, d_k, bias=False)",
        forward="heads = F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)\n"
        "        return self.w_o(heads)",
    ),
)
BANK.wrong(
    "scale-by-d_model",
    "Divides by the root of the width of the tokens.",
    _by_hand(scores="q @ k.transpose(-2, -1) / math.sqrt(x.size(-1))"),
    "scaled-by-d-model",
)
BANK.wrong("no-scale", "No scaling.", _by_hand(scores="q @ k.transpose(-2, -1)"), "missing-scale")
BANK.wrong(
    "scale-by-width",
    "Divides by d_k, not its root.",
    _by_hand(scores="q @ k.transpose(-2, -1) / k.size(-1)"),
    "scaled-twice",
)
BANK.wrong(
    "softmax-over-queries",
    "The softmax runs over the queries.",
    _by_hand(weights="torch.softmax(scores, dim=1)"),
    "softmax-over-queries",
)
BANK.wrong("mask-ignored", "The mask is not passed on.", _by_hand(masked="scores"), "mask-not-handed-on")
BANK.wrong(
    "mask-inverted",
    "True is taken for blocked.",
    _by_hand(masked="scores.masked_fill(mask, -1e9)"),
    "mask-inverted",
)
BANK.wrong(
    "mask-after-softmax",
    "Blocked weights are set to 0 after the softmax.",
    _plain(
        forward="q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)\n"
        "        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), dim=-1)\n"
        "        if mask is not None:\n"
        "            weights = weights * mask\n"
        "        return weights @ v"
    ),
    "mask-after-softmax",
)
BANK.wrong(
    "causal-always",
    "A causal mask nobody asked for.",
    _plain(
        forward="q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)\n"
        "        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)"
    ),
    "always-causal",
)
BANK.wrong(
    "mask-of-one-row",
    "Reads the mask as one row of keys: two axes become (B, 1, L).",
    _plain(
        forward="if mask is not None and mask.dim() == 2:\n"
        "            mask = mask.unsqueeze(1)\n"
        "        return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)"
    ),
)
BANK.wrong(
    "returns-pair",
    "Returns output and weights.",
    _by_hand(result="weights @ v, weights"),
    "pair-returned",
)
BANK.wrong(
    "sequences-mixed",
    "All tokens of the batch in one long sequence.",
    _plain(
        forward="flat = x.reshape(1, -1, x.size(-1))\n"
        "        q, k, v = self.w_q(flat), self.w_k(flat), self.w_v(flat)\n"
        "        if mask is not None:\n"
        "            mask = mask.expand(x.size(0), x.size(1), x.size(1)).repeat(1, 1, x.size(0)).flatten(0, 1)\n"
        "        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).reshape(*x.shape[:2], -1)"
    ),
)
BANK.wrong(
    "batch-as-length",
    "Attends along the batch: axes 0 and 1 are exchanged first.",
    _plain(
        forward="t = x.transpose(0, 1)\n"
        "        out = F.scaled_dot_product_attention(self.w_q(t), self.w_k(t), self.w_v(t))\n"
        "        return out.transpose(0, 1)"
    ),
    "sentences-mixed",
)
BANK.wrong("input-detached", "The tokens are detached.", _plain(k="self.w_k(x.detach())"))
BANK.wrong(
    "dropout-in-training",
    "Drops a tenth of the weights while training.",
    _plain(
        forward="return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask,\n"
        "                                              dropout_p=0.1 if self.training else 0.0)"
    ),
)
BANK.wrong(
    "normalises-input-in-place",
    "Centres the caller's tokens in place.",
    _plain(
        forward="x.data -= x.data.mean(-1, keepdim=True)\n"
        "        return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)"
    ),
)

BANK.wrong(
    "mask-ignored-in-training",
    "The mask is left out in training mode.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        return F.scaled_dot_product_attention(
            self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=None if self.training else mask
        )
""",
)

BANK.wrong(
    "mask-turned-in-place",
    "Turns the caller's mask over in place.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        a = self.w_q(x) @ self.w_k(x).mT / math.sqrt(self.w_q.out_features)
        if mask is not None:
            a = a.masked_fill(mask.logical_not_(), -math.inf)
        return a.softmax(-1) @ self.w_v(x)
""",
)

BANK.wrong(
    "frozen-bias",
    "Biases of zero that are frozen: still there.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k)
        self.w_k = nn.Linear(d_model, d_k)
        self.w_v = nn.Linear(d_model, d_k)
        for l in (self.w_q, self.w_k, self.w_v):
            nn.init.zeros_(l.bias).requires_grad_(False)

    def forward(self, x, mask=None):
        return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)
""",
)

BANK.wrong(
    "zero-weights",
    "The weights start at zero, where no gradient moves queries and keys.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)
        for p in self.parameters():
            nn.init.zeros_(p)

    def forward(self, x, mask=None):
        return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)
""",
)

BANK.wrong(
    "residual-equal-only",
    "The tokens are added where K is D.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        out = F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=mask)
        return out + x if out.shape == x.shape else out
""",
)

BANK.wrong(
    "weights-cached-at-init",
    "Uses a copy of the weights that was joined in the constructor.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)
        self.joint = torch.cat([self.w_q.weight, self.w_k.weight, self.w_v.weight]).detach()

    def forward(self, x, mask=None):
        q, k, v = (x @ self.joint.to(x).T).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
""",
)

BANK.wrong(
    "mask-first-sentence",
    "The mask of the first sentence is used for all.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x, mask=None):
        m = mask if mask is None or mask.dim() == 2 else mask[0]
        return F.scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask=m)
""",
)

BANK.wrong(
    "keys-cached-by-shape",
    "In evaluation mode, keys and values of an earlier x of the same shape are used again.",
    """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)
        self.cache = {}

    def forward(self, x, mask=None):
        k, v = self.w_k(x), self.w_v(x)
        if not self.training:
            k, v = self.cache.setdefault(x.shape, (k.detach(), v.detach()))
        return F.scaled_dot_product_attention(self.w_q(x), k, v, attn_mask=mask)
""",
    "first-call-kept",
)
