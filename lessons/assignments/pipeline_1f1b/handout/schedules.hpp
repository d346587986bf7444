#pragma once

#include "src/pipeline/schedule.hpp"

// Schedules of p = stages stages and m = micro_batches micro-batches, as orders of work:
// without messages, part s of the model on stage s, as empty_schedule() deals them out,
// and each stage's list ending as end_step() writes it. A forward takes t_f, a backward
// t_b, on every stage, and messages take no time. p and m are 1 or more; m may be less
// than p.

/// a4.1. 1F1B: each micro-batch forward once and backward once, whole. Stage s has at
/// most min(p - s, m) micro-batches in flight, and all is done after (m + p - 1)(t_f +
/// t_b).
lockstep::Schedule one_forward_one_backward(int stages, int micro_batches);

/// a4.2. The same work where memory is short: no stage ever has more than `limit` (1 or
/// more) micro-batches in flight. With L = min(limit, p) and g = ceil(m / L) - 1, all is
/// done after (m + p - 1 + g (p - L))(t_f + t_b), whatever t_f and t_b are: no order
/// under this limit is faster.
lockstep::Schedule with_memory_limit(int stages, int micro_batches, int limit);

/// a4.3. Backward in its halves I and W, for which t_f = t_i = t_w = t. Here a
/// micro-batch is held from its forward until its W is done, and no stage ever holds more
/// than `limit` (p or more) of them. The bubble is max(0, 2p - 1 - min(limit, m)) t: no
/// order under this limit has less.
lockstep::Schedule split_backward(int stages, int micro_batches, int limit);
