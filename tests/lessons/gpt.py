"""The lessons' GPT, with only the standard library: the forward of the PyTorch program in
lessons/04_tensor_parallel_block/README.md, a backward, and SGD."""

import math

from attention import attention, causal, places_of
from records import (add_scaled, dot, each, flat, gelu, gelu_slope, product, rows_of, turned,
                     zeros)

INITIAL = "gpt/initial/"
TABLE = "transformer.wte"


def plus(a, b):
    return each(float.__add__, a, b)


def scaled(matrix, factor):
    return [[factor * value for value in row] for row in matrix]


class Gpt:
    """The README's model, for one sequence at a time: x is (s, h). Without an lm_head the model is
    tied: the head uses the table wte, whose gradient is then the sum over both uses. If there are
    fewer heads of keys than of queries, consecutive heads of queries share keys and values.

    Each layer's method returns y, and a function of dy that returns dx and adds to self.gradients.
    """

    EPSILON = 1e-5
    gelu = staticmethod(gelu)
    core = staticmethod(attention)
    sees = staticmethod(causal)

    def __init__(self, initial, heads, kv_heads):
        self.heads, self.kv_heads = heads, kv_heads
        self.values = {name: scaled(value, 1) for name, value in initial.items()}
        self.layers = sum(name.endswith("c_fc.weight") for name in self.values)
        self.zero_gradients()

    def zero_gradients(self):
        self.gradients = {name: zeros(value) for name, value in self.values.items()}

    def add(self, name, gradient):
        add_scaled(self.gradients[name], gradient, 1)

    def linear(self, name, x):
        """Computes y = x weight^T + bias. The bias is optional."""
        weight, bias = self.values[name + ".weight"], self.values.get(name + ".bias")
        y = product(x, turned(weight))
        if bias:
            y = [[value + b for value, b in zip(row, bias[0])] for row in y]

        def backward(dy):
            self.add(name + ".weight", product(turned(dy), x))
            if bias:
                self.add(name + ".bias", [[sum(column) for column in turned(dy)]])
            return product(dy, weight)
        return y, backward

    def norm(self, name, x):
        """n = (x - mean) / deviation, y = n weight + bias, row by row."""
        (weight,), (bias,) = (self.values[f"{name}.{part}"] for part in ("weight", "bias"))
        size = len(weight)
        centred = [[value - sum(row) / size for value in row] for row in x]
        inverse = [1 / math.sqrt(dot(row, row) / size + self.EPSILON) for row in centred]
        n = [[value * r for value in row] for row, r in zip(centred, inverse)]
        y = [[value * w + b for value, w, b in zip(row, weight, bias)] for row in n]

        def backward(dy):
            self.add(name + ".weight", [list(map(dot, turned(dy), turned(n)))])
            self.add(name + ".bias", [[sum(column) for column in turned(dy)]])
            dx = []
            for slopes, row, r in zip(dy, n, inverse):
                dn = [slope * w for slope, w in zip(slopes, weight)]
                mean, along = sum(dn) / size, dot(dn, row) / size
                dx.append([r * (d - mean - value * along) for d, value in zip(dn, row)])
            return dx
        return y, backward

    def places(self, hidden):
        """Returns the first columns of each head's queries, keys and values in c_attn."""
        return places_of(self.heads, self.kv_heads, hidden // self.heads)

    def attention(self, name, x):
        hidden = len(x[0])
        qkv, c_attn = self.linear(name + ".c_attn", x)
        y, core = self.core(qkv, self.places(hidden), hidden // self.heads, self.sees)
        y, c_proj = self.linear(name + ".c_proj", y)
        return y, lambda dy: c_attn(core(c_proj(dy)))

    def mlp(self, name, x):
        u, c_fc = self.linear(name + ".c_fc", x)
        y, c_proj = self.linear(name + ".c_proj", each(self.gelu, u))
        return y, lambda dy: c_fc(each(lambda d, value: d * gelu_slope(value), c_proj(dy), u))

    def residual(self, layer, name, norm, x):
        """y = x + layer(norm(x))"""
        n, norm_backward = self.norm(norm, x)
        y, layer_backward = layer(name, n)
        return plus(x, y), lambda dy: plus(dy, norm_backward(layer_backward(dy)))

    def begin(self, ids, following, factor):
        """Returns a sequence's loss, and a function that adds the loss's gradients. Both are
        multiplied by factor."""
        wte, wpe = (self.values[f"{name}.weight"] for name in (TABLE, "transformer.wpe"))
        x = plus([wte[i] for i in ids], wpe)
        backwards = []
        for block in (f"transformer.h.{i}" for i in range(self.layers)):
            for layer, name, norm in ((self.attention, "attn", "ln_1"), (self.mlp, "mlp", "ln_2")):
                x, backward = self.residual(layer, f"{block}.{name}", f"{block}.{norm}", x)
                backwards.append(backward)
        head = "lm_head" if "lm_head.weight" in self.values else TABLE
        for layer, name in ((self.norm, "transformer.ln_f"), (self.linear, head)):
            x, backward = layer(name, x)
            backwards.append(backward)
        loss, d_logits = cross_entropy(x, following, factor)

        def backward_of_all():
            dx = d_logits
            for backward in reversed(backwards):
                dx = backward(dx)
            self.add("transformer.wpe.weight", dx)
            self.look_up_backward(ids, dx)
        return loss, backward_of_all

    def sequence(self, ids, following, factor):
        """Returns a sequence's loss and adds its gradients, both multiplied by factor."""
        loss, backward = self.begin(ids, following, factor)
        backward()
        return loss

    def look_up_backward(self, ids, dx):
        for i, row in zip(ids, dx):
            add_scaled([self.gradients[f"{TABLE}.weight"][i]], [row], 1)

    def batch(self, text, starts):
        """Returns the mean loss of the sequences that begin at `starts`. Computes its gradients."""
        length = len(self.values["transformer.wpe.weight"])
        self.zero_gradients()
        return sum(self.sequence(text[start:start + length], text[start + 1:start + length + 1],
                                 1 / (length * len(starts))) for start in starts)


def cross_entropy(logits, targets, factor):
    """Returns factor times the sum of -log softmax(logits)[target] over rows, and its gradient."""
    loss, gradient = 0.0, []
    for row, target in zip(logits, targets):
        largest = max(row)
        powers = [math.exp(logit - largest) for logit in row]
        total = sum(powers)
        loss += factor * (math.log(total) + largest - row[target])
        gradient.append([factor * power / total for power in powers])
        gradient[-1][target] -= factor
    return loss, gradient


class Sgd:
    """velocity = momentum velocity + gradient (velocity is first 0); value -= rate velocity."""

    MOMENTUM = 0.9

    def __init__(self, gpt, rate):
        self.gpt, self.rate = gpt, rate
        self.velocity = {name: zeros(value) for name, value in gpt.values.items()}

    def step(self):
        for name, velocity in self.velocity.items():
            self.velocity[name] = plus(scaled(velocity, self.MOMENTUM), self.gpt.gradients[name])
            add_scaled(self.gpt.values[name], self.velocity[name], -self.rate)


def initial(inputs):
    """Returns the parameters before the first step. They are in a lesson's inputs."""
    return {name[len(INITIAL):]: rows_of(tensor) for name, tensor in inputs.items()
            if name.startswith(INITIAL)}


def recompute(run, inputs, model=Gpt, optimizer=Sgd):
    """Returns everything that a variant records, as flat values by name: losses, the first step's
    gradients, and the parameters after the last step."""
    heads = run["settings"]["heads"]
    kv_heads = run["settings"].get("kv_heads", heads)
    gpt = model(initial(inputs), int(heads), int(kv_heads))
    trained = optimizer(gpt, float(run["settings"]["learning_rate"]))
    text, losses, recomputed = inputs["gpt/ids"][1], [], {}
    for starts in rows_of(inputs["gpt/starts"]):
        losses.append(gpt.batch(text, starts))
        if not recomputed:
            recomputed = {f"grad/{name}": flat(g) for name, g in gpt.gradients.items()}
        trained.step()
    return recomputed | {"loss": losses} | {n: flat(v) for n, v in gpt.values.items()}
