"""MultiHeadAttention(d_model, num_heads): attention in several heads at once, and what people make of it."""

from .entry import Collector

BANK = Collector("MultiHeadAttention", "mha")

_CLASS = """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        {check}
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        {init}

    def forward(self, query, key, value, mask=None):
        {forward}

    def split(self, x):
        {split}

    def merge(self, x):
        {merge}
"""
_FORWARD = """{before}
        q, k, v = {q}, {k}, {v}
        scores = {scores}
        if mask is not None:
            scores = {masked}
        weights = {weights}
        heads = {heads}
        return {result}"""
_LINES = {
    "check": "if d_model % num_heads:\n"
    '            raise ValueError(f"{num_heads} heads do not divide a width of {d_model}")',
    "init": "\n        ".join(f"self.w_{role} = nn.Linear(d_model, d_model)" for role in "qkvo"),
    "before": "B, T, S = query.size(0), query.size(1), key.size(1)",
    "q": "self.split(self.w_q(query))",
    "k": "self.split(self.w_k(key))",
    "v": "self.split(self.w_v(value))",
    "scores": "q @ k.transpose(-2, -1) / math.sqrt(self.d_k)",
    "masked": "scores.masked_fill(~mask, float('-inf'))",
    "weights": "torch.softmax(scores, dim=-1)",
    "heads": "weights @ v",
    "result": "self.w_o(self.merge(heads))",
    "split": "return x.view(x.size(0), x.size(1), self.num_heads, self.d_k).transpose(1, 2)",
    "merge": "return x.transpose(1, 2).reshape(x.size(0), x.size(2), -1)",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced; an ``init`` that starts with + comes after the four layers.

    ``forward`` replaces the whole pass, ``before`` what comes first in it.
    """
    unknown = set(lines) - set(_LINES) - {"forward"}
    assert not unknown, unknown
    if lines.get("init", "").startswith("+"):
        lines["init"] = _LINES["init"] + "\n        " + lines["init"][1:]
    lines = {"forward": _FORWARD.format(**(_LINES | lines))} | lines
    return _CLASS.format(**(_LINES | lines))


def _changed(name: str, note: str, misconception: str | None = None, **lines: str) -> None:
    BANK.wrong(name, note, _plain(**lines), misconception)


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("by-hand", "Everything written out.", _plain())
BANK.right(
    "fused-kernel",
    "PyTorch's kernel on unflattened projections.",
    _plain(
        forward="q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)\n"
        "        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).movedim(-2, -3) for t in (q, k, v))\n"
        "        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n"
        "        return self.w_o(heads.transpose(1, 2).flatten(-2))"
    ),
)
BANK.right(
    "einsum",
    "No transpose at all: einsum on (B, L, H, K), and a fill of −1e9.",
    _plain(
        split="return x.reshape(*x.shape[:2], self.num_heads, self.d_k)",
        scores='torch.einsum("bqhd,bkhd->bhqk", q, k) * self.d_k**-0.5',
        masked="torch.where(mask, scores, torch.full_like(scores, -1e9))",
        heads='torch.einsum("bhqk,bkhd->bqhd", weights, v)',
        merge="return x.flatten(2)",
    ),
)
BANK.right(
    "head-by-head",
    "A loop over heads on slices of the columns, joined at the end.",
    _plain(
        forward="q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)\n"
        "        if mask is not None:\n"
        "            mask = mask.expand(query.size(0), self.num_heads, query.size(1), key.size(1))\n"
        "        heads = []\n"
        "        for i in range(self.num_heads):\n"
        "            own = slice(i * self.d_k, (i + 1) * self.d_k)\n"
        "            s = q[..., own] @ k[..., own].mT / self.d_k**0.5\n"
        "            if mask is not None:\n"
        "                s = s.masked_fill(mask[:, i].logical_not(), -1e9)\n"
        "            heads.append(s.softmax(-1) @ v[..., own])\n"
        "        return self.w_o(torch.cat(heads, dim=-1))"
    ),
)
BANK.right(
    "rows-of-the-weights",
    "Each head projects with its own rows of the three weights; the output is a sum over heads.",
    _plain(
        forward="total = self.w_o.bias\n"
        "        for i, own in enumerate(torch.arange(query.size(-1)).chunk(self.num_heads)):\n"
        "            project = lambda x, w: F.linear(x, w.weight[own], w.bias[own])\n"
        "            q, k, v = project(query, self.w_q), project(key, self.w_k), project(value, self.w_v)\n"
        "            s = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.d_k)\n"
        "            if mask is not None:\n"
        "                full = mask.expand(s.size(0), self.num_heads, *s.shape[1:])\n"
        "                s = s.masked_fill(~full[:, i], torch.finfo(s.dtype).min)\n"
        "            total = total + (s.softmax(-1) @ v) @ self.w_o.weight[:, own].T\n"
        "        return total"
    ),
)
BANK.right(
    "library-function",
    "PyTorch's multi-head function, sequence first, with the mask turned round as it wants it.",
    _plain(
        forward="layers = self.w_q, self.w_k, self.w_v\n"
        "        m = mask\n"
        "        if m is not None:\n"
        "            m = ~m.expand(query.size(0), self.num_heads, query.size(1), key.size(1)).flatten(0, 1)\n"
        "        out, _ = F.multi_head_attention_forward(\n"
        "            query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), query.size(-1),\n"
        "            self.num_heads, None, torch.cat([w.bias for w in layers]), None, None, False, 0.0,\n"
        "            self.w_o.weight, self.w_o.bias, training=self.training, need_weights=False, attn_mask=m,\n"
        "            use_separate_proj_weight=True, q_proj_weight=layers[0].weight,\n"
        "            k_proj_weight=layers[1].weight, v_proj_weight=layers[2].weight)\n"
        "        return out.transpose(0, 1)"
    ),
)
BANK.right(
    "chunks-stacked",
    "Chunks stacked along a new axis, the query scaled before, the weights kept to be looked at.",
    _plain(
        split="return torch.stack(x.chunk(self.num_heads, -1), 1)",
        q="self.split(self.w_q(query) / math.sqrt(self.d_k))",
        scores="torch.matmul(q, k.transpose(2, 3))",
        masked="scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -1e9)",
        weights="self.last_weights = scores.softmax(dim=-1)\n        weights = self.last_weights",
        merge="return torch.cat(x.unbind(1), dim=-1)",
    ),
)
BANK.right(
    "double-inside",
    "Float64 for scores and averages, rounded back before the last layer.",
    _plain(
        split="return x.unflatten(2, (self.num_heads, self.d_k)).permute(0, 2, 1, 3).double()",
        weights="(scores - scores.logsumexp(-1, keepdim=True)).exp()",
        result="self.w_o(self.merge(heads).to(query.dtype))",
    ),
)
BANK.right(
    "one-product",
    "The three projections as one batched product, unless the lengths differ.",
    _plain(
        forward="layers = self.w_q, self.w_k, self.w_v\n"
        "        if query.shape == key.shape:\n"
        "            x = torch.stack([query, key, value])\n"
        "            W, b = (torch.stack([getattr(w, n) for w in layers]) for n in ('weight', 'bias'))\n"
        '            q, k, v = torch.einsum("nbld,ned->nble", x, W) + b[:, None, None]\n'
        "        else:\n"
        "            q, k, v = (w(x) for w, x in zip(layers, (query, key, value)))\n"
        "        return self.w_o(self.merge(F.scaled_dot_product_attention(\n"
        "            self.split(q), self.split(k), self.split(v), mask)))"
    ),
)
BANK.right(
    "heads-in-the-batch",
    "Batch and heads folded for bmm, the mask expanded and folded alike.",
    _plain(
        forward="B, T, D = query.shape\n"
        "        S, H = key.size(1), self.num_heads\n"
        "        q, k, v = (self.split(t).reshape(B * H, -1, D // H)\n"
        "                   for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
        "        bias = q.new_zeros(B * H, T, S)\n"
        "        if mask is not None:\n"
        "            bias.masked_fill_(~mask.expand(B, H, T, S).reshape(B * H, T, S), -math.inf)\n"
        "        scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=1 / math.sqrt(D // H))\n"
        "        heads = scores.softmax(2).bmm(v).view(B, H, T, -1)\n"
        "        return self.w_o(self.merge(heads))"
    ),
)
BANK.right(
    "own-functions",
    "Functions of its own for splitting, merging and attention, which returns a pair.",
    """
def split_heads(x, num_heads):
    return x.view(*x.shape[:-1], num_heads, x.size(-1) // num_heads).transpose(-3, -2)


def merge_heads(x):
    return x.transpose(-3, -2).contiguous().flatten(-2)


def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores + mask.to(scores.dtype).log()
    weights = F.softmax(scores, dim=-1)
    return weights @ v, weights


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        if d_model % num_heads != 0:
            raise ValueError(f"d_model {d_model}, num_heads {num_heads}")
        self.num_heads = num_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.add_module(name, nn.Linear(in_features=d_model, out_features=d_model))

    def forward(self, query, key, value, mask=None):
        projected = (self.w_q(query), self.w_k(key), self.w_v(value))
        output, _ = scaled_dot_product_attention(*(split_heads(x, self.num_heads) for x in projected), mask)
        return self.w_o(merge_heads(output))
""",
)
BANK.right(
    "clones",
    "Four copies of one layer, alike at the start, and an optional argument more.",
    """
import copy


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"{d_model} % {num_heads}")
        self.h = num_heads
        linear = nn.Linear(d_model, d_model)
        self.w_q, self.w_k, self.w_v, self.w_o = (copy.deepcopy(linear) for _ in range(4))

    def forward(self, query, key, value, mask=None, need_weights=False):
        B = query.size(0)
        q, k, v = (
            layer(x).view(B, -1, self.h, x.size(-1) // self.h).transpose(1, 2)
            for layer, x in zip((self.w_q, self.w_k, self.w_v), (query, key, value))
        )
        scores = (q @ k.transpose(-2, -1)).div(math.sqrt(q.size(-1)))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e4)
        weights = scores.softmax(-1)
        out = self.w_o((weights @ v).transpose(1, 2).contiguous().view(B, -1, query.size(-1)))
        return (out, weights) if need_weights else out
""",
)
BANK.right(
    "values-projected-last",
    "The raw values are averaged and projected afterwards, which is the same, as weights sum to 1.",
    _plain(
        v="value.unsqueeze(1)",
        heads="(weights @ v) @ self.w_v.weight.view(self.num_heads, self.d_k, -1).mT\n"
        "        heads = heads + self.w_v.bias.view(self.num_heads, 1, self.d_k)",
    ),
)
BANK.right(
    "full-width-heads",
    "Every head keeps all D columns, with zeros where they belong to others.",
    _plain(
        init="+owner = torch.arange(d_model) // self.d_k\n"
        "        self.register_buffer('own', owner == torch.arange(num_heads)[:, None], persistent=False)",
        split="return x.unsqueeze(1) * self.own[:, None]",
        merge="return x.sum(dim=1)",
    ),
)
BANK.right(
    "vmapped-heads",
    "One head as a function, mapped over heads.",
    _plain(
        heads="torch.vmap(lambda w, t: w @ t, in_dims=1, out_dims=1)(weights, v)",
        scores="torch.vmap(lambda a, b: a @ b.mT, in_dims=1, out_dims=1)(q, k) / self.d_k**0.5",
    ),
)
BANK.right(
    "checkpointed",
    "Activations are not kept but worked out again.",
    """
from torch.utils.checkpoint import checkpoint

"""
    + _plain(
        forward="def attend(q, k, v):\n"
        "            q, k, v = self.split(q), self.split(k), self.split(v)\n"
        "            return self.merge(F.scaled_dot_product_attention(q, k, v, mask))\n\n"
        "        out = checkpoint(attend, self.w_q(query), self.w_k(key), self.w_v(value), use_reentrant=False)\n"
        "        return self.w_o(out)"
    ),
)
BANK.right(
    "query-by-query",
    "One query after the other, only the allowed keys gathered.",
    _plain(
        forward="B, T, S = query.size(0), query.size(1), key.size(1)\n"
        "        q, k, v = (self.split(t) for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
        "        allowed = torch.ones((), dtype=torch.bool) if mask is None else mask\n"
        "        allowed = allowed.expand(B, self.num_heads, T, S)\n"
        "        rows = []\n"
        "        for b in range(B):\n"
        "            for t in range(T):\n"
        "                for h in range(self.num_heads):\n"
        "                    keep = allowed[b, h, t].nonzero().flatten()\n"
        "                    w = torch.softmax(k[b, h, keep] @ q[b, h, t] / self.d_k**0.5, 0)\n"
        "                    rows.append(w @ v[b, h, keep])\n"
        "        return self.w_o(torch.stack(rows).view(B, T, -1))"
    ),
)
BANK.right(
    "lazy-layers",
    "Lazy layers, which a first pass in the constructor makes real, and starred arguments.",
    """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.d_k, rest = divmod(d_model, num_heads)
        if rest:
            raise ValueError("num_heads")
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.LazyLinear(d_model) for _ in range(4))
        self(*[torch.zeros(1, 1, d_model)] * 3)

    def forward(self, query, key, value, *rest, **options):
        mask = rest[0] if rest else options.get("mask")
        q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)
        q, k, v = (torch.stack(t.split(self.d_k, -1), -3) for t in (q, k, v))
        return self.w_o(torch.hstack(F.scaled_dot_product_attention(q, k, v, mask).mT.unbind(1)).mT)
""",
)
BANK.right(
    "online",
    "Key by key with a running maximum and a running sum.",
    _plain(
        forward="q, k, v = (self.split(t) for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
        "        s = q @ k.mT / math.sqrt(self.d_k)\n"
        "        if mask is not None:\n"
        "            s = torch.where(mask, s, torch.finfo(s.dtype).min / 2)\n"
        "        top = torch.full_like(s[..., :1], torch.finfo(s.dtype).min)\n"
        "        total, out = torch.zeros_like(top), torch.zeros_like(q)\n"
        "        for j in range(s.size(-1)):\n"
        "            new = torch.maximum(top, s[..., j : j + 1])\n"
        "            shrink, p = torch.exp(top - new), torch.exp(s[..., j : j + 1] - new)\n"
        "            total, out, top = total * shrink + p, out * shrink + p * v[..., j : j + 1, :], new\n"
        "        return self.w_o(self.merge(out / total))"
    ),
)

# ----------------------------------------------------------------------------------------- wrong: splitting, merging

_changed(
    "bare-reshapes",
    "Heads are split and merged by reshape alone, so that positions mix with columns.",
    "split-and-merged-by-reshape",
    split="return x.reshape(x.size(0), self.num_heads, x.size(1), self.d_k)",
    merge="return x.reshape(x.size(0), x.size(2), -1)",
)
_changed(
    "bare-split",
    "Split by reshape alone, merged rightly.",
    "split-by-reshape",
    split="return x.reshape(x.size(0), self.num_heads, x.size(1), self.d_k)",
)
_changed(
    "bare-merge",
    "Split rightly, merged by reshape alone.",
    "merged-by-reshape",
    merge="return x.reshape(x.size(0), x.size(2), -1)",
)
_changed(
    "every-h-th-column",
    "Heads own every H-th column, in splitting as in merging.",
    "heads-interleaved",
    split="return x.reshape(x.size(0), x.size(1), self.d_k, self.num_heads).permute(0, 3, 1, 2)",
    merge="return x.permute(0, 2, 3, 1).reshape(x.size(0), x.size(2), -1)",
)
_changed(
    "merged-interleaved",
    "The heads' columns alternate in the merged vector.",
    "columns-interleaved",
    merge="return x.permute(0, 2, 3, 1).reshape(x.size(0), x.size(2), -1)",
)
_changed(
    "merged-in-reverse",
    "The last head comes first.",
    merge="return torch.cat(x.unbind(1)[::-1], dim=-1)",
)
_changed(
    "width-for-number",
    "H and K are exchanged: K heads of width H.",
    "heads-and-width-exchanged",
    split="return x.view(x.size(0), x.size(1), -1, self.num_heads).transpose(1, 2)",
    scores="q @ k.transpose(-2, -1) / math.sqrt(self.num_heads)",
    masked="scores.masked_fill(~(mask if mask.dim() < 3 else mask[..., :1, :, :]), float('-inf'))",
)
_changed(
    "split-by-the-other-width",
    "H and K are exchanged, and the scale is right.",
    "heads-and-width-exchanged",
    split="return x.view(x.size(0), x.size(1), self.d_k, self.num_heads).transpose(1, 2)",
    masked="scores.masked_fill(~(mask if mask.dim() < 3 else mask[..., :1, :, :]), float('-inf'))",
)
_changed(
    "not-transposed",
    "Heads stay behind positions: every position attends over its own heads.",
    "attention-among-heads",
    split="return x.view(x.size(0), x.size(1), self.num_heads, self.d_k)",
    merge="return x.reshape(x.size(0), x.size(1), -1)",
)
_changed(
    "one-wide-head",
    "No heads at all: one attention over the whole width.",
    "one-wide-head",
    split="return x.unsqueeze(1)",
    scores="q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
    masked="scores.masked_fill(~(mask if mask.dim() < 4 else mask[:, :1]), float('-inf'))",
    merge="return x[:, 0]",
)
_changed(
    "one-wide-head-scaled-for-many",
    "One attention over the whole width, scaled by √K.",
    "one-wide-head",
    split="return x.unsqueeze(1)",
    masked="scores.masked_fill(~(mask if mask.dim() < 4 else mask[:, :1]), float('-inf'))",
    merge="return x[:, 0]",
)
_changed(
    "folded-and-unfolded-otherwise",
    "Heads before the batch when folding, the batch before heads when unfolding.",
    "heads-of-sentences-exchanged",
    forward="B, T, S, H = *query.shape[:2], key.size(1), self.num_heads\n"
    "        q, k, v = (self.split(t).transpose(0, 1).reshape(H * B, -1, self.d_k)\n"
    "                   for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
    "        if mask is not None:\n"
    "            mask = mask.expand(B, H, T, S).transpose(0, 1).reshape(H * B, T, S)\n"
    "        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n"
    "        return self.w_o(self.merge(heads.view(B, H, T, -1)))",
)
_changed(
    "mask-folded-otherwise",
    "Batch and heads are folded batch first, the mask is repeated heads first.",
    forward="B, T, S, H = *query.shape[:2], key.size(1), self.num_heads\n"
    "        q, k, v = (self.split(t).reshape(B * H, -1, self.d_k)\n"
    "                   for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
    "        if mask is not None:\n"
    "            mask = mask.expand(B, H, T, S).transpose(0, 1).reshape(B * H, T, S)\n"
    "        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n"
    "        return self.w_o(self.merge(heads.view(B, H, T, -1)))",
)
_changed(
    "heads-before-batch",
    "Heads are axis 0 and the batch axis 1, to which the mask does not line up.",
    split="return x.view(x.size(0), x.size(1), self.num_heads, self.d_k).permute(2, 0, 1, 3)",
    merge="return x.permute(1, 2, 0, 3).reshape(x.size(1), x.size(2), -1)",
)
_changed(
    "heads-averaged",
    "The mean of the heads, repeated to the full width.",
    "heads-averaged",
    merge="return x.mean(dim=1).repeat(1, 1, self.num_heads)",
)
_changed(
    "heads-added",
    "The sum of the heads, repeated to the full width.",
    merge="return x.sum(dim=1).repeat(1, 1, self.num_heads)",
)
_changed(
    "first-head-only",
    "The first head H times.",
    merge="return x[:, :1].expand_as(x).transpose(1, 2).flatten(2)",
)
_changed(
    "weights-averaged",
    "All heads use the mean of the weights, which PyTorch returns to be looked at.",
    weights="torch.softmax(scores, dim=-1).mean(dim=1, keepdim=True)",
)
_changed(
    "scores-added",
    "The scores of all heads are added before the softmax.",
    weights="torch.softmax(scores.sum(dim=1, keepdim=True), dim=-1)",
)

# ----------------------------------------------------------------------------------------------------- wrong: scale

_changed("no-scale", "No scaling.", "missing-scale", scores="q @ k.transpose(-2, -1)")
_changed(
    "scale-by-d_model",
    "The root of the whole width in place of that of a head.",
    "scaled-by-d-model",
    scores="q @ k.transpose(-2, -1) / math.sqrt(query.size(-1))",
)
_changed(
    "scale-by-width",
    "The width of a head, not its root.",
    "scaled-by-d-k",
    scores="q @ k.transpose(-2, -1) / self.d_k",
)
_changed(
    "scale-by-heads",
    "The root of the number of heads.",
    "scaled-by-heads",
    scores="q @ k.transpose(-2, -1) / math.sqrt(self.num_heads)",
)
_changed(
    "scale-by-length",
    "The root of the number of keys.",
    scores="q @ k.transpose(-2, -1) / math.sqrt(k.size(-2))",
)
_changed(
    "scaled-up",
    "Multiplied by the root.",
    scores="q @ k.transpose(-2, -1) * math.sqrt(self.d_k)",
)
_changed(
    "scaled-twice",
    "The queries are divided by the root, and the kernel does it again.",
    "scaled-by-d-k",
    q="self.split(self.w_q(query)) / math.sqrt(self.d_k)",
)
_changed(
    "scale-of-the-paper",
    "The 8 of the paper's heads, whatever their width.",
    scores="q @ k.transpose(-2, -1) / 8",
)
_changed(
    "whole-root",
    "The root is cut down to a whole number: right for heads of width 4 and 64.",
    scores="q @ k.transpose(-2, -1) / int(math.sqrt(self.d_k))",
)
_changed(
    "scale-baked-in",
    "The scale is in the initial weights of w_q: weights that are loaded are not scaled.",
    "missing-scale",
    init="+with torch.no_grad():\n"
    "            self.w_q.weight.div_(math.sqrt(self.d_k))\n"
    "            self.w_q.bias.div_(math.sqrt(self.d_k))",
    scores="q @ k.transpose(-2, -1)",
)
_changed(
    "bias-not-scaled",
    "The weight of w_q is scaled and its bias is not.",
    q="self.split(F.linear(query, self.w_q.weight / math.sqrt(self.d_k), self.w_q.bias))",
    scores="q @ k.transpose(-2, -1)",
)
_changed(
    "scaled-after-softmax",
    "The weights are divided, not the scores.",
    scores="q @ k.transpose(-2, -1)",
    weights="torch.softmax(scores, dim=-1) / math.sqrt(self.d_k)",
)

# ----------------------------------------------------------------------------------------------- wrong: projections

_changed(
    "keys-by-query-layer",
    "Keys come from w_q; w_k is never used.",
    "keys-from-the-query-projection",
    k="self.split(self.w_q(key))",
)
_changed(
    "values-by-key-layer", "Values come from w_k.", "values-from-the-key-projection", v="self.split(self.w_k(value))"
)
_changed(
    "layers-swapped",
    "w_k projects the query, w_q the key.",
    "projections-exchanged",
    q="self.split(self.w_k(query))",
    k="self.split(self.w_q(key))",
)
_changed(
    "inputs-swapped",
    "The query asks as a key would: query and key change places.",
    q="self.split(self.w_q(key))",
    k="self.split(self.w_k(query))",
)
_changed(
    "roles-swapped",
    "Key and value attend to the query: the output is as long as the key.",
    "roles-exchanged",
    q="self.split(self.w_q(key))",
    k="self.split(self.w_k(query))",
    v="self.split(self.w_v(query))",
)
_changed(
    "values-from-key", "The key is also taken for the value.", "values-from-the-key", v="self.split(self.w_v(key))"
)
_changed(
    "keys-from-value", "The value is also taken for the key.", "keys-from-the-value", k="self.split(self.w_k(value))"
)
_changed(
    "keys-and-values-swapped",
    "Key and value change places.",
    "keys-and-values-exchanged",
    before="key, value = value, key",
)
_changed("values-from-query", "The values are those of the query.", v="self.split(self.w_v(query))")
_changed(
    "self-attention-only",
    "The query is attended to, whatever key and value are.",
    "always-self-attention",
    before="key = value = query",
)
_changed(
    "self-attention-where-lengths-agree",
    "Three inputs of one shape are taken for the same tensor.",
    before="if query.shape == key.shape:\n            key = value = query",
)
_changed(
    "keys-are-values-where-lengths-agree",
    "A joint projection of the key serves as keys and values, when all lengths agree.",
    before="if query.shape == value.shape:\n            value = key",
)
_changed(
    "value-is-query-where-query-is-key",
    "Where query and key are one tensor, value is not looked at any more.",
    before="if query is key:\n            value = query",
)
_changed(
    "length-of-the-query",
    "All three are split with the length of the query, which cross-attention does not have.",
    "length-of-the-query-for-all",
    q="self.w_q(query).view(B, T, self.num_heads, self.d_k).transpose(1, 2)",
    k="self.w_k(key).view(B, T, self.num_heads, self.d_k).transpose(1, 2)",
    v="self.w_v(value).view(B, T, self.num_heads, self.d_k).transpose(1, 2)",
)
_changed(
    "merged-to-the-length-of-the-key",
    "The output is reshaped to the length of the key.",
    result="self.w_o(heads.transpose(1, 2).reshape(B, S, -1))",
)
_changed(
    "not-projected",
    "Query, key and value are split as they are.",
    "nothing-projected",
    q="self.split(query)",
    k="self.split(key)",
    v="self.split(value)",
)
_changed("values-not-projected", "The values are split as they are.", "values-not-projected", v="self.split(value)")
_changed(
    "projected-twice",
    "Projected once for all heads, and once more as if for each.",
    "projected-twice",
    q="self.split(self.w_q(self.w_q(query)))",
    k="self.split(self.w_k(self.w_k(key)))",
    v="self.split(self.w_v(self.w_v(value)))",
)
_changed(
    "weights-not-transposed",
    "Products with the weights as they are stored, (out, in).",
    q="self.split(query @ self.w_q.weight + self.w_q.bias)",
    k="self.split(key @ self.w_k.weight + self.w_k.bias)",
    v="self.split(value @ self.w_v.weight + self.w_v.bias)",
)
_changed(
    "relu-after-projections",
    "A ReLU after each projection.",
    "nonlinearity-added",
    q="self.split(torch.relu(self.w_q(query)))",
    k="self.split(torch.relu(self.w_k(key)))",
    v="self.split(torch.relu(self.w_v(value)))",
)
_changed(
    "biases-unused",
    "Products with the weights alone.",
    q="self.split(query @ self.w_q.weight.T)",
    k="self.split(key @ self.w_k.weight.T)",
    v="self.split(value @ self.w_v.weight.T)",
)
_changed("query-bias-unused", "The bias of w_q is left out.", q="self.split(F.linear(query, self.w_q.weight))")
_changed("no-output-layer", "The merged heads are the output.", "no-output-projection", result="self.merge(heads)")
_changed(
    "output-bias-unused",
    "The bias of w_o is left out.",
    result="F.linear(self.merge(heads), self.w_o.weight)",
)
_changed(
    "output-layer-not-transposed",
    "A product with the weight of w_o as it is stored.",
    result="self.merge(heads) @ self.w_o.weight + self.w_o.bias",
)
_changed(
    "output-layer-twice",
    "w_o is applied twice.",
    "output-projected-twice",
    result="self.w_o(self.w_o(self.merge(heads)))",
)
_changed(
    "output-bias-per-head",
    "Each head goes through w_o on its own, and its bias is added H times.",
    result="sum(self.w_o(F.pad(heads[:, i], (i * self.d_k, (self.num_heads - 1 - i) * self.d_k)))\n"
    "                   for i in range(self.num_heads))",
)
_changed(
    "residual",
    "The query is added, which is the layer's task.",
    "residual-inside",
    result="query + self.w_o(self.merge(heads))",
)
_changed(
    "normalised",
    "Query added and layer norm taken inside.",
    result="F.layer_norm(query + self.w_o(self.merge(heads)), query.shape[-1:])",
)
_changed("tanh", "A tanh around the output.", result="torch.tanh(self.w_o(self.merge(heads)))")

# ------------------------------------------------------------------------------------------------------ wrong: masks

_changed("mask-ignored", "The mask is accepted and forgotten.", "mask-ignored", masked="scores")
_changed(
    "mask-inverted", "True is taken for blocked.", "mask-inverted", masked="scores.masked_fill(mask, float('-inf'))"
)
_changed(
    "mask-turned-for-the-kernel",
    "The mask is turned round for PyTorch's kernel, which wants it as it is.",
    "mask-inverted",
    forward="q, k, v = (self.split(t) for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
    "        m = None if mask is None else ~mask\n"
    "        return self.w_o(self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=m)))",
)
_changed(
    "mask-first-head-only",
    "The mask reaches the first head only.",
    "mask-for-one-head",
    masked="torch.cat([scores[:, :1].masked_fill(~mask[..., :1, :, :] if mask.dim() > 2 else ~mask, -1e9),"
    " scores[:, 1:]], 1)",
)
_changed(
    "mask-of-the-first-head",
    "All heads get the mask of the first one.",
    "first-heads-mask-for-all",
    masked="scores.masked_fill(~(mask[..., :1, :, :] if mask.dim() > 2 else mask), -1e9)",
)
_changed(
    "mask-of-the-first-sentence",
    "All sentences get the mask of the first one.",
    "first-sentences-mask-for-all",
    masked="scores.masked_fill(~(mask[:1] if mask.dim() == 4 else mask), -1e9)",
)
_changed(
    "mask-of-the-last-query",
    "All queries get the mask of the last one.",
    masked="scores.masked_fill(~mask[..., -1:, :], -1e9)",
)
_changed(
    "mask-of-any-query",
    "A key that any query may attend to is open to all.",
    masked="scores.masked_fill(~mask.any(dim=-2, keepdim=True), -1e9)",
)
_changed(
    "mask-with-another-axis",
    "An axis for heads is inserted, which masks of four axes have already.",
    "mask-unsqueezed",
    masked="scores.masked_fill(~mask.unsqueeze(1), -1e9)",
)
_changed(
    "mask-of-two-axes-as-padding",
    "Two axes are read as (batch, keys), not (queries, keys).",
    masked="scores.masked_fill(~(mask[:, None, None, :] if mask.dim() == 2 else mask), -1e9)",
)
_changed(
    "mask-of-four-axes-only",
    "Expands a mask that must have all four axes.",
    masked="scores.masked_fill(~torch.cat([mask] * (self.num_heads // mask.size(1)), dim=1)"
    ".view(mask.size(0), self.num_heads, mask.size(2), mask.size(3)), -1e9)",
)
_changed(
    "mask-squeezed",
    "The mask loses its axes of size 1, and what is left lines up with others.",
    masked="scores.masked_fill(~mask.squeeze(), -1e9)",
)
_changed(
    "mask-transposed",
    "The mask is read as (keys, queries).",
    masked="scores.masked_fill(~mask.transpose(-2, -1), -1e9)",
)
_changed(
    "mask-after-softmax",
    "Blocked weights are set to 0 after the softmax, and the rest no longer sum to 1.",
    "mask-after-softmax",
    masked="scores",
    weights="torch.softmax(scores, dim=-1) * (1 if mask is None else mask)",
)
_changed("mask-tiny-fill", "A fill close to 0.", "fill-of-zero", masked="scores.masked_fill(~mask, -1e-9)")
_changed(
    "mask-shallow-fill",
    "A fill of −5, which is no lower than scores can be.",
    "fill-too-small",
    masked="scores.masked_fill(mask == False, -5.0)",
)
_changed("mask-multiplied", "Scores are multiplied by the mask.", "fill-of-zero", masked="scores * mask")
_changed("mask-added", "The mask is added as 0 and 1.", "mask-added", masked="scores + mask")
_changed(
    "mask-added-to-the-kernel",
    "A float mask of 0 and 1 is handed to PyTorch's kernel, which adds it.",
    "mask-added",
    forward="q, k, v = (self.split(t) for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
    "        m = None if mask is None else mask.to(q.dtype)\n"
    "        return self.w_o(self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=m)))",
)
_changed(
    "mask-on-values",
    "The values of keys that nobody may attend to are set to 0; their weights stay, and other masks do nothing.",
    masked="scores",
    heads="weights @ (v if mask is None else v * mask.any(-2, keepdim=True).transpose(-2, -1))",
)
_changed(
    "mask-ignored-in-training",
    "No mask in training mode.",
    masked="scores if self.training else scores.masked_fill(~mask, -1e9)",
)
_changed(
    "mask-turned-in-place",
    "The caller's mask is turned over in place.",
    masked="scores.masked_fill(mask.logical_not_(), -1e9)",
)
_changed(
    "causal-without-mask",
    "No mask is taken for a causal one.",
    "always-causal",
    forward="q, k, v = (self.split(t) for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
    "        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)\n"
    "        return self.w_o(self.merge(heads))",
)
_changed(
    "causal-where-lengths-agree",
    "As many keys as queries are taken for a decoder, which must not look ahead.",
    before="if query.size(1) == key.size(1):\n"
    "            causal = torch.ones(query.size(1), key.size(1), dtype=torch.bool).tril()\n"
    "            mask = causal if mask is None else causal & (mask | torch.eye(key.size(1), dtype=torch.bool))",
)

# ---------------------------------------------------------------------------------------------------- wrong: softmax

_changed(
    "softmax-over-heads",
    "The softmax runs over the heads.",
    "softmax-over-heads",
    weights="torch.softmax(scores, dim=1)",
)
_changed(
    "softmax-over-queries",
    "The softmax runs over the queries.",
    "softmax-over-queries",
    weights="torch.softmax(scores, dim=-2)",
)
_changed(
    "softmax-over-everything",
    "One softmax over all queries and keys of a head.",
    weights="torch.softmax(scores.flatten(-2), dim=-1).view_as(scores)",
)
_changed("sigmoid", "A sigmoid for each score.", weights="torch.sigmoid(scores)")
_changed(
    "no-softmax",
    "The scores themselves, with 0 for what is blocked, average the values.",
    masked="scores.masked_fill(~mask, 0.0)",
    weights="scores / scores.size(-1)",
)

# -------------------------------------------------------------------------------------------------- wrong: gradients

_changed("weights-detached", "The heads are made with detached weights.", "gradient-cut", heads="weights.detach() @ v")
_changed("query-detached", "The query is detached.", "gradient-cut", q="self.split(self.w_q(query.detach()))")
_changed("key-detached", "The key is detached.", "gradient-cut", k="self.split(self.w_k(key.detach()))")
_changed(
    "memory-detached",
    "Key and value are detached, as if what comes from the encoder needed no gradient.",
    "gradient-cut",
    k="self.split(self.w_k(key.detach()))",
    v="self.split(self.w_v(value.detach()))",
)
_changed(
    "values-detached", "The projected values are detached.", "gradient-cut", v="self.split(self.w_v(value)).detach()"
)
_changed(
    "output-layer-frozen",
    "w_o is applied through .data.",
    "gradient-cut",
    result="F.linear(self.merge(heads), self.w_o.weight.data, self.w_o.bias.data)",
)
_changed(
    "heads-detached",
    "Only w_o is trained.",
    "gradient-cut",
    result="self.w_o(self.merge(heads).detach())",
)
_changed(
    "gradient-of-the-first-head",
    "Only the first head is part of the graph.",
    merge="return torch.cat([x[:, 0], *(head.detach() for head in x.unbind(1)[1:])], dim=-1)",
)
_changed(
    "numpy-round-trip",
    "The softmax is made in NumPy.",
    "gradient-cut",
    weights="torch.from_numpy(np.exp((s := scores.detach().numpy()) - s.max(-1, keepdims=True)))\n"
    "        weights = weights / weights.sum(-1, keepdim=True)",
)

# ------------------------------------------------------------------------------------------------ wrong: the module

_changed(
    "leftover-columns-dropped",
    "Layers of width H·K: where H does not divide D, nobody is told that the heads are fewer columns wide.",
    "columns-cut-off",
    check="pass",
    init="self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, num_heads * self.d_k) for _ in range(3))\n"
    "        self.w_o = nn.Linear(num_heads * self.d_k, d_model)",
)
_changed(
    "returns-pair", "Returns output and weights.", "pair-returned", result="(self.w_o(self.merge(heads)), weights)"
)
_changed("returns-weights", "Returns the weights.", "weights-returned", result="weights")
_changed("sequence-first", "Returns (T, B, D).", result="self.w_o(self.merge(heads)).transpose(0, 1)")
_changed(
    "batch-as-length",
    "Attends along the batch: axes 0 and 1 are exchanged first, as layers without batch_first have them.",
    "attends-across-the-batch",
    before="query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)",
    result="self.w_o(self.merge(heads)).transpose(0, 1)",
)
_changed(
    "sentences-mixed",
    "The batch is one long sequence.",
    before="B, T = query.shape[:2]\n"
    "        query, key, value = (t.flatten(0, 1)[None] for t in (query, key, value))\n"
    "        mask = None",
    result="self.w_o(self.merge(heads)).view(B, T, -1)",
)
_changed(
    "one-layer-for-all",
    "w_q, w_k and w_v are one layer.",
    "one-projection-for-all",
    init="self.w_q = self.w_k = self.w_v = nn.Linear(d_model, d_model)\n        self.w_o = nn.Linear(d_model, d_model)",
)
_changed(
    "no-biases",
    "Layers without biases.",
    "projections-without-bias",
    init=_LINES["init"].replace("d_model)", "d_model, bias=False)"),
)
_changed(
    "no-output-bias",
    "w_o has no bias.",
    init=_LINES["init"].replace("w_o = nn.Linear(d_model, d_model)", "w_o = nn.Linear(d_model, d_model, bias=False)"),
)
_changed(
    "other-names",
    "The layers are called q_proj, k_proj, v_proj and out_proj, as in other libraries.",
    init="\n        ".join(f"self.{name}_proj = nn.Linear(d_model, d_model)" for name in ("q", "k", "v", "out")),
    q="self.split(self.q_proj(query))",
    k="self.split(self.k_proj(key))",
    v="self.split(self.v_proj(value))",
    result="self.out_proj(self.merge(heads))",
)
_changed(
    "joint-layer",
    "One layer of width 3D for all three projections.",
    init="self.w_qkv, self.w_o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)",
    before="W, b = self.w_qkv.weight.chunk(3), self.w_qkv.bias.chunk(3)",
    q="self.split(F.linear(query, W[0], b[0]))",
    k="self.split(F.linear(key, W[1], b[1]))",
    v="self.split(F.linear(value, W[2], b[2]))",
)
_changed(
    "a-layer-for-each-head",
    "Lists of narrow layers, one for each head.",
    init="narrow = lambda: nn.ModuleList(nn.Linear(d_model, self.d_k) for _ in range(num_heads))\n"
    "        self.w_q, self.w_k, self.w_v = narrow(), narrow(), narrow()\n"
    "        self.w_o = nn.Linear(d_model, d_model)",
    q="torch.stack([w(query) for w in self.w_q], 1)",
    k="torch.stack([w(key) for w in self.w_k], 1)",
    v="torch.stack([w(value) for w in self.w_v], 1)",
)
_changed(
    "narrow-layers-shared",
    "Layers of width K that all heads share.",
    init="self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, self.d_k) for _ in range(3))\n"
    "        self.w_o = nn.Linear(d_model, d_model)",
    split="return x.unsqueeze(1).expand(-1, self.num_heads, -1, -1)",
)
_changed(
    "library-module",
    "PyTorch's module inside, with its own parameters.",
    init="self.inner = nn.MultiheadAttention(d_model, num_heads, batch_first=True)",
    forward="m = mask\n"
    "        if m is not None:\n"
    "            m = ~m.expand(query.size(0), self.num_heads, query.size(1), key.size(1)).flatten(0, 1)\n"
    "        return self.inner(query, key, value, attn_mask=m, need_weights=False)[0]",
)
_changed(
    "layer-norm-inside",
    "A layer norm that is among the parameters, at the start of the pass.",
    init="+self.norm = nn.LayerNorm(d_model)",
    before="query = self.norm(query)",
)
_changed(
    "unused-layer",
    "A fifth layer that nothing uses.",
    init="+self.w_out = nn.Linear(d_model, d_model)",
)
_changed(
    "saved-scale",
    "The scale is a buffer that is saved with the weights.",
    init="+self.register_buffer('scale', torch.tensor(self.d_k**-0.5))",
    scores="q @ k.transpose(-2, -1) * self.scale",
)
_changed(
    "layers-made-in-forward",
    "The layers are new in every call.",
    init="self.d_model = d_model",
    before="w_q, w_k, w_v, w_o = (nn.Linear(self.d_model, self.d_model, dtype=query.dtype) for _ in range(4))",
    q="self.split(w_q(query))",
    k="self.split(w_k(key))",
    v="self.split(w_v(value))",
    result="w_o(self.merge(heads))",
)
_changed(
    "weights-joined-at-the-start",
    "A joint weight is put together in the constructor, where loaded weights don't arrive.",
    init="+self.W = torch.cat([self.w_q.weight, self.w_k.weight, self.w_v.weight]).detach()",
    before="W = self.W.to(query.dtype).chunk(3)",
    q="self.split(F.linear(query, W[0], self.w_q.bias))",
    k="self.split(F.linear(key, W[1], self.w_k.bias))",
    v="self.split(F.linear(value, W[2], self.w_v.bias))",
)
_changed(
    "keys-of-the-first-call",
    "Keys and values are kept from the first call, as if it were decoding.",
    "first-call-kept",
    init="+self.kept = None",
    before="if self.kept is None or self.kept[0].shape != key.shape:\n"
    "            self.kept = key.detach().clone(), value.detach().clone()",
    k="self.split(self.w_k(self.kept[0] + 0 * key))",
    v="self.split(self.w_v(self.kept[1] + 0 * value))",
)
_changed(
    "memory-of-the-first-call",
    "Where key and value are one tensor and query another, their projections are kept from the first call.",
    "first-call-kept",
    init="+self.memory = None",
    before="k, v = self.w_k(key), self.w_v(value)\n"
    "        if key is value and key is not query:\n"
    "            k, v = self.memory = self.memory or (k, v)",
    k="self.split(k)",
    v="self.split(v)",
)
_changed(
    "keys-pile-up",
    "Keys and values of earlier calls are put before the new ones.",
    init="+self.past = None",
    before="if self.past is not None and mask is None:\n"
    "            key, value = (torch.cat([old, new], 1) for old, new in zip(self.past, (key, value)))\n"
    "        self.past = key.detach(), value.detach()",
)
_changed(
    "dropout-in-training",
    "A tenth of the weights is dropped while training.",
    "dropout-while-training",
    init="+self.dropout = nn.Dropout(0.1)",
    weights="self.dropout(torch.softmax(scores, dim=-1))",
)
_changed(
    "dropout-always",
    "Functional dropout, which stays on in evaluation mode.",
    "dropout-in-evaluation",
    result="F.dropout(self.w_o(self.merge(heads)), 0.1)",
)
_changed(
    "kernel-dropout-always",
    "PyTorch's kernel drops weights whenever it is told a probability, in evaluation too.",
    "dropout-in-evaluation",
    forward="q, k, v = (self.split(t) for t in (self.w_q(query), self.w_k(key), self.w_v(value)))\n"
    "        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)\n"
    "        return self.w_o(self.merge(heads))",
)
_changed(
    "query-scaled-in-place",
    "The caller's query is divided by the root.",
    before="query.data /= math.sqrt(self.d_k)",
    scores="q @ k.transpose(-2, -1)",
)
_changed(
    "key-centred-in-place",
    "The caller's keys are centred, which changes no weight.",
    before="centred = key - key.mean(1, keepdim=True)",
    result="(self.w_o(self.merge(heads)), key.data.copy_(centred.detach()))[0]",
)
_changed(
    "blocked-values-emptied",
    "What a padding mask blocks is set to 0 in the caller's values.",
    before="if mask is not None and mask.dim() == 4 and mask.size(-2) == 1:\n"
    "            value.data.masked_fill_(~mask.any(dim=1).transpose(-2, -1), 0.0)",
)
_changed(
    "one-sentence-without-batch",
    "A batch of one comes back without its axis.",
    result="self.w_o(self.merge(heads)).squeeze(0)",
)
_changed(
    "one-query-without-length",
    "A single query comes back without its axis.",
    result="self.w_o(self.merge(heads)).squeeze(1)",
)
_changed(
    "output-layer-only-for-many",
    "One head alone is handed back without w_o.",
    result="self.merge(heads) if self.num_heads == 1 else self.w_o(self.merge(heads))",
)
_changed(
    "heads-of-the-example",
    "Two heads wherever they divide the width, whatever is asked for.",
    check=_LINES["check"] + "\n        num_heads = 2 if d_model % 2 == 0 else num_heads",
    masked="scores.masked_fill(~(mask if mask.dim() < 3 else mask[..., :1, :, :]), float('-inf'))",
    misconception="first-heads-mask-for-all",
)
