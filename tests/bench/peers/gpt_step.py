"""Trains in PyTorch as gpt_step.cpp does in Lockstep. There is one process per rank, with
DistributedDataParallel over gloo."""

import json
import math
import os
import resource
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn import functional

RANKS, HIDDEN, TOKENS, SEQUENCES, LAYERS, HEADS, VOCABULARY, UNTIMED, STEPS = map(int, sys.argv[1:10])
WEIGHTS = sys.argv[10]
THREADS = int(os.environ.get("OMP_NUM_THREADS", "0"))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.c_proj = nn.Linear(HIDDEN, HIDDEN)
        self.later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(diagonal=1)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = (part.view(batch, tokens, HEADS, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(HIDDEN, dim=2))
        scores = q @ k.transpose(2, 3) * (1 / math.sqrt(HIDDEN // HEADS))
        y = scores.masked_fill(self.later, -math.inf).softmax(dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, HIDDEN))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(HIDDEN)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(),
                                 nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, HIDDEN)
        self.wpe = nn.Embedding(TOKENS, HIDDEN)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight
        return self.lm_head(self.ln_f(self.blocks(x)))


def load(model):
    numbers = torch.from_numpy(numpy.fromfile(WEIGHTS, dtype=numpy.float32))
    parameters = list(model.parameters())
    for parameter, own in zip(parameters, numbers.split([p.numel() for p in parameters])):
        parameter.data.copy_(own.view_as(parameter))


def batch_of(rank):
    sequence = torch.arange(rank * SEQUENCES, (rank + 1) * SEQUENCES)[:, None]
    number = sequence * (TOKENS + 1) + torch.arange(TOKENS + 1)[None]
    tokens = number * number % 7919 % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]


def used():
    of = resource.getrusage(resource.RUSAGE_SELF)
    return of.ru_utime + of.ru_stime, time.monotonic(), of.ru_minflt


def train(rank, results):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[11]}
    if THREADS:
        torch.set_num_threads(THREADS)
    if RANKS > 1:
        dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = Gpt()
    load(model)
    parallel = nn.parallel.DistributedDataParallel(model) if RANKS > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=0.01)
    ids, targets = batch_of(rank)
    losses = []
    for step in range(UNTIMED + STEPS):
        if step == UNTIMED:
            if RANKS > 1:
                dist.barrier()
            begin = used()
        optimizer.zero_grad(set_to_none=False)
        logits = parallel(ids)
        loss = functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        mean = loss.detach() / RANKS
        if RANKS > 1:
            dist.all_reduce(mean)
        losses.append(mean.item())
    if RANKS > 1:
        dist.barrier()
    results.put([(after - before) / STEPS for before, after in zip(begin, used())] + [losses])


def main():
    results = multiprocessing.get_context("spawn").SimpleQueue()
    if RANKS > 1:
        multiprocessing.spawn(train, (results,), nprocs=RANKS)
    else:
        train(0, results)
    cpu, wall, faults, losses = zip(*[results.get() for _ in range(RANKS)])
    print(json.dumps({"cpu": sum(cpu), "wall": max(wall), "faults": sum(faults),
                      "losses": losses[0]}))


if __name__ == "__main__":
    main()
