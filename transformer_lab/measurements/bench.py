"""What makes training fast, one change at a time, on the machine at hand; and what a cache does for decoding.

    python -m transformer_lab bench

trains one model in several ways, each with one change more than the one before it, and ``torch.nn.Transformer`` with the
same weights on the same batches. All take turns, a few steps each, so that whatever else the machine does hits all alike;
the median of the turns counts. It writes ``results/bench-cpu.json`` or ``results/bench-cuda.json``.

On a processor the last way is to share every batch among as many processes as there are threads, but not above
``MOST_PROCESSES`` (see :mod:`~transformer_lab.distributed`): they meet once a step, where threads meet in every product.

That the changes change nothing but speed is measured too: with the weights that all begin with, the loss of one common batch
and its gradients, against those of the first way.

Model FLOP utilisation is the share of the machine's speed that went into the model's own sums: three times the products of
the forward pass over *real* tokens (:func:`model_flops`; the backward pass takes two for one), by the time that was taken,
by the speed at which the machine multiplies two large square matrices in the same number format (:func:`matmul_flops`).
Padding, softmax, norms and the optimiser count as time and not as work.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import random
import signal
import socket
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_lab import (
    accumulation,
    builtin,
    decoding,
    devices,
    distributed,
    fused,
    pieces,
    results,
    token_batches,
    translation,
)
from transformer_lab.data import BOS, PAD, default_corpus, pad
from transformer_lab.distributed import ALONE, Ranks
from transformer_lab.token_batches import IdPair, TokenBatches

COMMAND = "python -m transformer_lab bench"
CODE = [
    __file__,
    accumulation.__file__,
    builtin.__file__,
    decoding.__file__,
    devices.__file__,
    distributed.__file__,
    fused.__file__,
    token_batches.__file__,
    translation.__file__,
]

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Plan:
    """How large the model is and how much is measured."""

    config: translation.Config
    pairs: int
    turns: int
    steps: int
    decoded: int
    decoded_length: int
    rate: float = 1e-4


_SMALL = translation.Config(d_model=128, num_heads=4, d_ff=512, num_layers=3)
_BASE = translation.Config(d_model=512, num_heads=8, d_ff=2048, num_layers=6)

PLANS = {
    "small": Plan(_SMALL, pairs=4000, turns=7, steps=4, decoded=100, decoded_length=30),
    "base": Plan(replace(_BASE, batch_size=128), pairs=20000, turns=7, steps=10, decoded=100, decoded_length=30),
    "quick": Plan(
        translation.Config(d_model=16, num_heads=2, d_ff=32, num_layers=1, batch_size=8),
        pairs=120,
        turns=2,
        steps=1,
        decoded=4,
        decoded_length=6,
    ),
}
#: The last rows' batches have so many times the tokens of the rows before.
LARGER = 4
#: A process of more has few rows of a batch left.
MOST_PROCESSES = 8


@dataclass(frozen=True)
class Way:
    """One way to train: everything that the rows of the table differ in."""

    name: str
    setting: devices.Setting
    fused: bool = False
    bucketed: bool = False
    compiled: bool = False
    larger: bool = False
    processes: int = 1
    reference: bool = False  # torch.nn.Transformer instead of the pieces


def staircase(setting: devices.Setting, compiled: bool = False, processes: int = 1) -> list[Way]:
    """The ways to train that a machine knows, each with one change more than the one before; and the references last.

    A change that the device cannot make has no row, and one process none of its own.
    """
    plain = replace(setting, dtype=torch.float32, scaled=False, tf32=False, fused=False)
    ways = [Way("pieces in float32", plain)]

    def add(name: str, **changes: Any) -> None:
        ways.append(replace(ways[-1], name=name, **changes))

    if setting.tf32:
        add("TF32", setting=replace(plain, tf32=True))
    if setting.dtype != torch.float32:
        short = str(setting.dtype).removeprefix("torch.")
        add(short, setting=replace(ways[-1].setting, dtype=setting.dtype, scaled=setting.scaled))
    add("fused attention", fused=True)
    add("batches by length", bucketed=True)
    if compiled:
        add("torch.compile", compiled=True)
    if setting.fused:
        add("fused Adam", setting=replace(ways[-1].setting, fused=True))
    add(f"{LARGER} times the batch", larger=True)
    if processes > 1:
        add(f"{processes} processes", processes=processes)
    last = ways[-1]
    fair = replace(setting, fused=False)
    return [
        *ways,
        Way("torch.nn.Transformer, first batches", plain, reference=True),
        Way("torch.nn.Transformer, last batches", fair, bucketed=True, larger=last.larger, reference=True),
    ]


# ------------------------------------------------------------------------------------------------------------- the work


def model_flops(config: translation.Config, vocabulary: int, sources: Sequence[int], targets: Sequence[int]) -> float:
    """Floating-point operations of one training step: three times those of the forward pass's products, without padding.

    A multiplication with its addition counts as two. Causal attention counts in full, as kernels mostly do it.

    Parameters
    ----------
    config
        The model's sizes D, F (``d_ff``) and N (``num_layers``).
    vocabulary
        How many target tokens there are.
    sources, targets
        For each sentence how many real tokens go into the encoder and into the decoder.
    """
    width, hidden, layers = config.d_model, config.d_ff, config.num_layers
    multiplications = 0
    for s, t in zip(sources, targets, strict=True):
        encoder = s * (4 * width**2 + 2 * width * hidden) + 2 * s * s * width
        own = t * (4 * width**2 + 2 * width * hidden) + 2 * t * t * width
        crossing = 2 * (s + t) * width**2 + 2 * s * t * width
        multiplications += layers * (encoder + own + crossing) + t * width * vocabulary
    return 3 * 2 * float(multiplications)


def matmul_flops(setting: devices.Setting, size: int = 2048, seconds: float = 1.0) -> float:
    """How many floating-point operations a second the device does in the product of two square matrices, at best."""
    setting.apply()
    a = torch.randn(size, size, device=setting.device, dtype=setting.dtype)
    best, end = math.inf, time.perf_counter() + seconds
    repeat = 1 if setting.device == "cpu" else 20
    while time.perf_counter() < end or best == math.inf:
        start = _now(setting.device)
        for _ in range(repeat):
            a @ a
        best = min(best, (_now(setting.device) - start) / repeat)
    return 2 * size**3 / best


def _now(device: str) -> float:
    """The time when the device has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


# ---------------------------------------------------------------------------------------------------------- the reference


class TorchTransformer(nn.Module):
    """``torch.nn.Transformer`` with embeddings and a tied output, as one would write it: source, target → logits.

    Parameters
    ----------
    like
        A pre-norm ``Transformer`` of pieces, of which it takes sizes and a copy of the weights.
    config
        Its sizes.
    """

    def __init__(self, like: Any, config: translation.Config):
        super().__init__()
        if not config.norm_first:
            raise ValueError("torch.nn.Transformer has a norm behind its layers: compare with norm_first=True.")
        self.source_embed, self.target_embed = copy.deepcopy(like.source_embed), copy.deepcopy(like.target_embed)
        sizes = config.d_model, config.num_heads, config.num_layers, config.num_layers, config.d_ff, config.dropout
        with warnings.catch_warnings():  # it says that it has a faster way for post-norm layers that do not train
            warnings.simplefilter("ignore", UserWarning)
            self.transformer = nn.Transformer(*sizes, batch_first=True, norm_first=True)
        self.to(next(like.parameters()).dtype)
        for own, theirs in (
            (self.transformer.encoder, like.encoder),
            (self.transformer.decoder, like.decoder),
        ):
            _copy_norm(own.norm, theirs.norm)
            for layer, model in zip(own.layers, theirs.layers, strict=True):
                _copy_layer(layer, model)

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        hidden_source, length = source_ids == PAD, target_ids.size(1)
        future = torch.ones(length, length, dtype=torch.bool, device=target_ids.device).triu(1)
        hidden = self.transformer(
            self.source_embed(source_ids),
            self.target_embed(target_ids),
            tgt_mask=future,
            src_key_padding_mask=hidden_source,
            tgt_key_padding_mask=target_ids == PAD,
            memory_key_padding_mask=hidden_source,
            tgt_is_causal=True,
        )
        return hidden @ self.target_embed.get_parameter("token.embedding.weight").T


@torch.no_grad()
def _copy_layer(own: Any, theirs: Any) -> None:
    attentions = [(own.self_attn, theirs.self_attention)]
    norms = [(own.norm1, theirs.norm1), (own.norm2, theirs.norm2)]
    if hasattr(own, "multihead_attn"):
        attentions.append((own.multihead_attn, theirs.cross_attention))
        norms.append((own.norm3, theirs.norm3))
    for attention, piece in attentions:
        weight, bias = fused.stacked(piece.w_q, piece.w_k, piece.w_v)
        attention.in_proj_weight.copy_(weight)
        attention.in_proj_bias.copy_(bias)
        attention.out_proj.load_state_dict(piece.w_o.state_dict())
    for norm, piece in norms:
        _copy_norm(norm, piece)
    own.linear1.load_state_dict(theirs.feed_forward.linear1.state_dict())
    own.linear2.load_state_dict(theirs.feed_forward.linear2.state_dict())


@torch.no_grad()
def _copy_norm(own: Any, theirs: Any) -> None:
    own.weight.copy_(theirs.gamma)
    own.bias.copy_(theirs.beta)
    own.eps = theirs.eps


# ------------------------------------------------------------------------------------------------------------ the training


class Prepared:
    """What all ways to train begin with: batches, and a model of certain pieces.

    Parameters
    ----------
    name
        What the model is made of, as :func:`transformer_lab.pieces.load` takes it.
    """

    def __init__(self, plan: Plan, name: str):
        self.plan, self.name, self.pieces = plan, name, pieces.load(name)
        self.task = translation.Task.of(default_corpus(plan.pairs, 10, 10))
        self.ids: list[IdPair] = [
            (self.task.source.encode(pair.source), self.task.target.encode(pair.target))
            for pair in self.task.corpus.train
        ]
        self.model = translation.build(plan.config, self.task, self.pieces)
        size = plan.config.batch_size
        #: By whether they are bucketed and whether they are larger.
        self.batches = {
            (False, False): fixed_batches(self.ids, size),
            (True, False): bucketed_batches(self.ids, size),
            (True, True): bucketed_batches(self.ids, LARGER * size),
        }

    def flops(self, sources: Sequence[int], targets: Sequence[int]) -> float:
        """Of one training step, see :func:`model_flops`."""
        return model_flops(self.plan.config, len(self.task.target), sources, targets)


class Entrant:
    """One way to train, on some batches, and how fast it has been in its turns."""

    def __init__(self, way: Way, prepared: Prepared):
        self.way, self.prepared = way, prepared
        self.batches = prepared.batches[way.bucketed, way.larger]
        self.rates: list[float] = []
        self.flops: list[float] = []
        self._place = 0

    def beginning(self, batch: Batch) -> tuple[float, Tensor]:
        """The loss of a batch with the weights that all begin with, and its gradients as one vector, names in order."""
        raise NotImplementedError

    def advance(self, first: int, steps: int) -> None:
        """Some steps, the batches from ``first`` on, and from the beginning again behind the last."""
        raise NotImplementedError

    def peak_memory(self) -> int | None:
        """Bytes that parameters, gradients, the optimiser and one step's intermediate results take at most.

        None on an Apple GPU, which does not count them.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End what goes on beside this process."""

    def turn(self) -> None:
        """A few steps against the clock."""
        steps, device = self.prepared.plan.steps, self.way.setting.device
        own = [self.batches[place % len(self.batches)] for place in range(self._place, self._place + steps)]
        start = _now(device)
        self.advance(self._place, steps)
        seconds = _now(device) - start
        self._place += steps
        work = [(_lengths(source), [n - 1 for n in _lengths(target)]) for source, target in own]
        self.rates.append(sum(sum(targets) for _, targets in work) / seconds)
        self.flops.append(sum(self.prepared.flops(*counts) for counts in work) / seconds)


class Contestant(Entrant):
    """An entrant in this process, with a model of its own that begins with the common weights.

    Parameters
    ----------
    ranks
        Which of several processes this is, each with its rows of every batch.
    """

    def __init__(self, way: Way, prepared: Prepared, ranks: Ranks = ALONE):
        super().__init__(way, prepared)
        self.ranks, self.pieces = ranks, prepared.pieces
        self.device, model, config = way.setting.device, prepared.model, prepared.plan.config
        own: nn.Module = TorchTransformer(model, config) if way.reference else copy.deepcopy(model)
        if way.fused:
            fused.fuse(own, config.num_heads)
        self.module = own.to(self.device).train()
        if way.compiled:
            own.compile(dynamic=True)
        self.model = ranks.wrap(own)
        self.optimiser = devices.adam(own.parameters(), way.setting)
        for group in self.optimiser.param_groups:
            group["lr"] = prepared.plan.rate
        self.scaler = way.setting.scaler()

    @contextlib.contextmanager
    def _as_said(self) -> Iterator[None]:
        """PyTorch's settings as this way wants them: scores and softmax one after the other where nothing is fused."""
        self.way.setting.apply()
        plain = not self.way.fused and not self.way.reference
        with sdpa_kernel(SDPBackend.MATH) if plain else contextlib.nullcontext():
            yield

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss of a batch over its real tokens, and their number."""
        source, target = (ids.to(self.device, non_blocking=True) for ids in batch)
        given, wanted = self.pieces.shift_targets(target)
        with self.way.setting.autocast():
            logits = self.model(source, given)
            mean = self.pieces.label_smoothed_cross_entropy(logits.flatten(0, 1), wanted.flatten(), PAD)
        return mean, (wanted != PAD).sum()

    def backward(self, batch: Batch, scale: Callable[[Tensor], Tensor] = lambda loss: loss) -> Tensor:
        """Set the gradients of a batch, of which each of several processes takes some rows; the mean loss of all of it."""
        ranks = self.ranks
        if ranks.world == 1:
            self.optimiser.zero_grad(set_to_none=True)
            mean, _ = self.loss(batch)
            scale(mean).backward()
            return mean.detach()
        source, target = batch
        share = source[ranks.rank :: ranks.world], target[ranks.rank :: ranks.world]
        mean, _ = distributed.accumulate(ranks, self.model, lambda _, part: self.loss(part), [share])
        return mean

    def step(self, batch: Batch) -> None:
        self.backward(batch, self.scaler.scale)
        self.scaler.step(self.optimiser)
        self.scaler.update()

    def beginning(self, batch: Batch) -> tuple[float, Tensor]:
        with self._as_said():
            value = self.backward(batch)
        vector = gradients(self.module)
        self.module.zero_grad(set_to_none=True)
        return value.item(), vector

    def advance(self, first: int, steps: int) -> None:
        with self._as_said():
            for place in range(first, first + steps):
                self.step(self.batches[place % len(self.batches)])

    def peak_memory(self) -> int | None:
        if self.device == "mps":
            return None
        batch = max(self.batches, key=lambda batch: batch[0].numel() + batch[1].numel())
        with self._as_said():
            self.step(batch)  # the optimiser has its state now
            self.optimiser.zero_grad(set_to_none=True)
            return peak_memory(self.device, lambda: self.step(batch)) + self._kept()

    def _kept(self) -> int:
        state = [t for own in self.optimiser.state.values() for t in own.values() if isinstance(t, Tensor)]
        tensors = [*self.module.parameters(), *self.module.buffers(), *state]
        return sum(t.numel() * t.element_size() for t in tensors)


class Team(Entrant):
    """An entrant of several processes: a contestant in each of them, to whom this one gives the orders.

    Parameters
    ----------
    prepared
        Every process prepares the same by itself.

    Raises
    ------
    RuntimeError
        From any method: a process has failed.
    """

    def __init__(self, way: Way, prepared: Prepared):
        super().__init__(way, prepared)
        context = mp.get_context("spawn")  # threads do not survive a fork
        pipes = [context.Pipe() for _ in range(way.processes)]
        self._pipes = [own for own, _ in pipes]
        common = _free_port(), max(1, torch.get_num_threads() // way.processes), way, prepared.plan, prepared.name
        self._members = [
            context.Process(target=_member, args=(rank, theirs, *common), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for member, (_, theirs) in zip(self._members, pipes, strict=True):
            member.start()
            theirs.close()  # so that a member that dies is noticed

    def beginning(self, batch: Batch) -> tuple[float, Tensor]:
        return self._ask("beginning", batch)[0]

    def advance(self, first: int, steps: int) -> None:
        self._ask("advance", first, steps)

    def peak_memory(self) -> int | None:
        return sum(self._ask("peak_memory"))

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for member in self._members:
            member.join(2)
            member.kill()
            member.join()

    def _ask(self, what: str, *given: Any) -> list[Any]:
        """Let all members do something, and wait for their answers."""
        answers: dict[int, Any] = {}
        try:
            for pipe in self._pipes:
                pipe.send((what, given))
            while len(answers) < len(self._pipes):
                ready = connection.wait([pipe for rank, pipe in enumerate(self._pipes) if rank not in answers])
                for rank, pipe in enumerate(self._pipes):
                    if pipe not in ready:
                        continue
                    answers[rank] = answer = pipe.recv()
                    if isinstance(answer, Exception):  # the others may wait for it for ever
                        raise RuntimeError(f"A process of “{self.way.name}” failed: {answer}") from answer
        except (EOFError, OSError) as error:
            raise RuntimeError(f"A process of “{self.way.name}” ended before its time.") from error
        return [answers[rank] for rank in range(len(answers))]


def _member(rank: int, pipe: Any, port: int, threads: int, way: Way, plan: Plan, name: str) -> None:
    """What one process of a team does: what it is told, until nobody tells it any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the one that gives the orders, and so all
    torch.set_num_threads(threads)
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": way.processes, "MASTER_PORT": port}
    os.environ |= {"MASTER_ADDR": "127.0.0.1"} | {key: str(number) for key, number in numbers.items()}
    with contextlib.suppress(EOFError), distributed.group() as ranks:
        contestant: Contestant | None = None
        while True:
            what, given = pipe.recv()
            try:
                contestant = contestant or Contestant(way, Prepared(plan, name), ranks)
                answer = getattr(contestant, what)(*given)
            except Exception as error:
                answer = error
            pipe.send(answer)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def gradients(module: nn.Module) -> Tensor:
    """All gradients in the pieces' order and layout as one vector, those of ``torch.nn.Transformer`` too."""
    if isinstance(module, TorchTransformer):
        parts = [*module.source_embed.parameters(), *module.target_embed.parameters()]
        for stack in (module.transformer.encoder, module.transformer.decoder):
            for layer in stack.layers:
                for attention in (
                    layer.self_attn,
                    *([layer.multihead_attn] if hasattr(layer, "multihead_attn") else []),
                ):
                    parts += [attention.in_proj_weight, attention.in_proj_bias, *attention.out_proj.parameters()]
                parts += [*layer.linear1.parameters(), *layer.linear2.parameters()]
        return torch.cat([_gradient(p) for p in parts])
    model: Any = module
    parts = [_gradient(p) for side in (model.source_embed, model.target_embed) for p in side.parameters()]
    for stack in (model.encoder, model.decoder):
        for layer in stack.layers:
            for attention in (
                layer.self_attention,
                *([layer.cross_attention] if hasattr(layer, "cross_attention") else []),
            ):
                layers = (attention.w_q, attention.w_k, attention.w_v)
                parts += [_gradient(own.weight) for own in layers] + [_gradient(own.bias) for own in layers]
                parts += [_gradient(p) for p in attention.w_o.parameters()]
            ahead = layer.feed_forward
            parts += [_gradient(p) for own in (ahead.linear1, ahead.linear2) for p in own.parameters()]
    return torch.cat(parts)


def _gradient(parameter: nn.Parameter) -> Tensor:
    return (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).detach().flatten().double().cpu()


def peak_memory(device: str, action: Callable[[], Any]) -> int:
    """How many bytes of tensors ``action`` has at most beyond those that were there before it.

    On a CUDA device PyTorch counts itself; on a processor its profiler writes every allocation down.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        action()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would say on the terminal that it begins and ends
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        action()
    # The result of a profile that PyTorch itself reads its memory table from.
    events = [(e.start_ns(), e.nbytes()) for e in profile.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        now += size
        most = max(most, now)
    return most


def fixed_batches(pairs: Sequence[IdPair], batch_size: int, seed: int = 0) -> list[Batch]:
    """Batches of equally many sentences in random order, as a first program has them."""
    order = list(range(len(pairs)))
    random.Random(seed).shuffle(order)
    groups = [[pairs[i] for i in order[start : start + batch_size]] for start in range(0, len(order), batch_size)]
    return [(pad([source for source, _ in rows]), pad([target for _, target in rows])) for rows in groups]


def bucketed_batches(pairs: Sequence[IdPair], batch_size: int, seed: int = 0) -> list[Batch]:
    """Batches of sentences of like length with as many real tokens, on average, as ``batch_size`` sentences have."""
    longest = [max(len(source), len(target)) for source, target in pairs]
    budget = max(max(longest), math.ceil(batch_size * statistics.fmean(longest)))
    return list(TokenBatches(pairs, budget, seed=seed).epoch(0))


def padding(batches: Sequence[Batch]) -> float:
    """Which share of the tokens of some batches is padding."""
    tensors = [ids for batch in batches for ids in batch]
    return sum(int((ids == PAD).sum()) for ids in tensors) / sum(ids.numel() for ids in tensors)


def _lengths(ids: Tensor) -> list[int]:
    return (ids != PAD).sum(1).tolist()


# ----------------------------------------------------------------------------------------------------------- the results


def measure(
    plan: Plan,
    setting: devices.Setting,
    *,
    name: str = "builtin",
    compiled: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """The rows of the table: training, the references, and decoding.

    Parameters
    ----------
    name
        Which pieces the first way is made of, as :func:`transformer_lab.pieces.load` takes it.
    compiled
        Whether ``torch.compile`` has a row; it needs a compiler, and minutes on a processor.
    """
    prepared = Prepared(plan, name)
    ways = staircase(setting, compiled, _processes(setting))
    with contextlib.ExitStack() as stack:
        entrants: list[Entrant] = []
        for way in ways:
            entrants.append(Team(way, prepared) if way.processes > 1 else Contestant(way, prepared))
            stack.callback(entrants[-1].close)
        common = prepared.batches[False, False][0]
        beginnings = [one.beginning(common) for one in entrants]
        for one in entrants:
            say(f"warming up: {one.way.name}")
            one.advance(0, 2)
        for number in range(plan.turns):
            say(f"turn {number + 1} of {plan.turns}")
            for one in entrants:
                one.turn()
        memory = [one.peak_memory() for one in entrants]
    peaks = {s: matmul_flops(s, *((256, 0.05) if plan is PLANS["quick"] else ())) for s in {w.setting for w in ways}}
    first_loss, first_gradients = beginnings[0]
    rows = []
    for one, (loss, gradient), most in zip(entrants, beginnings, memory, strict=True):
        loss_off = abs(loss - first_loss) / first_loss
        gradient_off = float((gradient - first_gradients).norm() / first_gradients.norm())
        rows.append(
            {
                "part": "reference" if one.way.reference else "training",
                "name": one.way.name,
                "tokens_per_second": round(statistics.median(one.rates), 1),
                "slowest": round(min(one.rates), 1),
                "fastest": round(max(one.rates), 1),
                "memory_mb": None if most is None else round(most / 1e6, 1),
                "padding": round(padding(one.batches), 4),
                "utilisation": round(statistics.median(one.flops) / peaks[one.way.setting], 4),
                "loss_difference": float(f"{loss_off:.2g}"),
                "gradient_difference": float(f"{gradient_off:.2g}"),
                "other_sentences": None,
            }
        )
    return rows + decoded(plan, setting, prepared.model, prepared.ids, say)


def _processes(setting: devices.Setting) -> int:
    """How many processes a processor's threads make; a GPU belongs to one."""
    alone = setting.device != "cpu" or not (dist.is_available() and dist.is_gloo_available())
    return 1 if alone else min(MOST_PROCESSES, torch.get_num_threads())


def decoded(
    plan: Plan, setting: devices.Setting, model: Any, pairs: Sequence[IdPair], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of decoding: greedy and by beam, without and with a cache, all sentences to the same length.

    The model is not trained, so that no sentence ends by itself; with a beam every sentence counts once.
    """
    setting.apply()
    own = copy.deepcopy(model).to(setting.device).eval()
    source = pad([source for source, _ in pairs[: plan.decoded]]).to(setting.device)
    length = plan.decoded_length
    never = -1

    def greedy(decoder: decoding.Decoder) -> Tensor:
        return decoding.greedy_decode(decoder, source, BOS, never, PAD, length)

    def beam(decoder: decoding.Decoder) -> Tensor:
        return decoding.beam_search(decoder, source, BOS, never, PAD, length, beam_size=4, length_penalty=0.6)[0]

    plain = decoding.PlainDecoder(own)
    cached = decoding.decoder_for(own, source, plan.config.num_heads)
    rows = []
    for name, search in (("greedy", greedy), ("beam of 4", beam)):
        rates: dict[str, list[float]] = {"without a cache": [], "with a cache": []}
        found: dict[str, Tensor] = {}
        with torch.no_grad(), setting.autocast():
            for _ in range(max(2, plan.turns // 2)):
                say(f"decoding: {name}")
                for kind, decoder in (("without a cache", plain), ("with a cache", cached)):
                    start = _now(setting.device)
                    found[kind] = search(decoder)
                    rates[kind].append(len(source) * (length - 1) / (_now(setting.device) - start))
        other = (found["without a cache"] != found["with a cache"]).any(1).double().mean()
        for kind, own_rates in rates.items():
            rows.append(
                {
                    "part": "decoding",
                    "name": f"{name}, {kind}",
                    "tokens_per_second": round(statistics.median(own_rates), 1),
                    "slowest": round(min(own_rates), 1),
                    "fastest": round(max(own_rates), 1),
                    "memory_mb": None,
                    "padding": None,
                    "utilisation": None,
                    "loss_difference": None,
                    "gradient_difference": None,
                    "other_sentences": float(other),
                }
            )
    return rows


def run(
    size: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    name: str = "builtin",
    compiled: bool | None = None,
    folder: Path | None = results.FOLDER,
    command: str = COMMAND,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Measure on the machine at hand, and keep what came out in ``folder``, or nowhere where that is None."""
    setting = devices.choose(devices.look(), device, dtype)
    say(setting.sentence)
    gpu = setting.device == "cuda"
    plan = PLANS[size or ("base" if gpu else "small")]
    rows = measure(plan, setting, name=name, compiled=gpu if compiled is None else compiled, say=say)
    if folder is not None:
        threads = f", {torch.get_num_threads()} threads" if setting.device == "cpu" else ""
        results.save(
            f"bench-{setting.device}",
            rows,
            command=command,
            code=CODE,
            seed=0,
            machine=results.describe_machine(setting.device) + threads,
            folder=folder,
        )
    return rows


HEADS = ("", "tokens/s", "range", "times", "MB", "padding", "MFU", "loss off by", "gradient off by", "other output")


def lines(rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The table as texts, a tuple for each row: as in ``HEADS``.

    *tokens/s* counts real target tokens; *times* is the speed against the first row, and in decoding against the same search
    without a cache; *other output* is the share of sentences that came out otherwise with it.
    """
    table: list[tuple[str, ...]] = []
    for row in rows:
        base = rows[0]
        if row["part"] == "decoding":  # greedy against greedy, beam against beam
            base = next(r for r in rows if r["name"].split(",")[0] == row["name"].split(",")[0])
        table.append(
            (
                row["name"],
                f"{row['tokens_per_second']:,.0f}",
                f"{row['slowest']:,.0f}–{row['fastest']:,.0f}",
                f"{row['tokens_per_second'] / base['tokens_per_second']:.2f}",
                _or_nothing(row["memory_mb"], ",.0f"),
                _or_nothing(row["padding"], ".1%"),
                _or_nothing(row["utilisation"], ".1%"),
                _or_nothing(row["loss_difference"], ".1g"),
                _or_nothing(row["gradient_difference"], ".1g"),
                _or_nothing(row["other_sentences"], ".1%"),
            )
        )
    return table


def _or_nothing(value: float | None, how: str) -> str:
    return "" if value is None else format(value, how)
