"""Attention over one sequence, and its backward, with only the standard library. It computes
softmax(Q K^T / sqrt(width)) V head by head."""

import math

from records import dot, flat, product, turned, zeros


def columns(matrix, begin, end):
    return [row[begin:end] for row in matrix]


def beside(matrices):
    """Returns one matrix, in which the given matrices are side by side."""
    return [flat(rows) for rows in zip(*matrices)]


def places_of(heads, kv_heads, width):
    """Returns in which column of x each head's queries, keys and values begin. x has all heads'
    queries, then keys, then values. heads / kv_heads consecutive heads share keys and values."""
    group = heads // kv_heads
    return [(head * width, (heads + head // group) * width,
             (heads + kv_heads + head // group) * width) for head in range(heads)]


def scores(q, k):
    """Returns q k^T / sqrt(width)."""
    return [[score / math.sqrt(len(row)) for score in products]
            for row, products in zip(q, product(q, turned(k)))]


def softmax(row, seen):
    """Returns the softmax over the scores for which `seen` is true. Other scores get weight 0."""
    largest = max(score for score, see in zip(row, seen) if see)
    powers = [math.exp(score - largest) if see else 0.0 for score, see in zip(row, seen)]
    total = sum(powers)
    return [power / total for power in powers]


def head(q, k, v, sees):
    """Returns y and a function from dy to dq, dk, dv. Row i sees row j if sees(i, j)."""
    weights = [softmax(row, [sees(i, j) for j in range(len(row))])
               for i, row in enumerate(scores(q, k))]

    def backward(dy):
        d_scores = [[p * (d - dot(row, slopes)) / math.sqrt(len(q[0]))
                     for p, d in zip(row, slopes)]
                    for row, slopes in zip(weights, product(dy, turned(v)))]
        return product(d_scores, k), product(turned(d_scores), q), product(turned(weights), dy)
    return product(weights, v), backward


def causal(i, j):
    return j <= i


def everything(_i, _j):
    return True


def attention(x, places, width, sees=causal):
    """Returns y, with all heads side by side, and a function from dy to dx. Columns that several
    heads share get the sum of the heads' gradients."""
    heads = [head(*(columns(x, place, place + width) for place in of_head), sees)
             for of_head in places]

    def backward(dy):
        dx = zeros(x)
        for number, (of_head, (_, head_backward)) in enumerate(zip(places, heads)):
            parts = head_backward(columns(dy, number * width, (number + 1) * width))
            for place, part in zip(of_head, parts):
                for to, row in zip(dx, part):
                    to[place:place + width] = map(float.__add__, to[place:place + width], row)
        return dx
    return beside([y for y, _ in heads]), backward
