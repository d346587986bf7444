#pragma once

#include "src/pipeline/schedule.hpp"

// Schedules of p = stages stages and m = micro_batches micro-batches, as orders of
// work without messages. Part s of the model is on stage s, as in empty_schedule(),
// and each stage's list ends with the instructions that end_step() adds. On every
// stage a forward takes t_f and a backward takes t_b; messages take no time. p and m
// are 1 or more. m may be less than p.

/// a4.1. 1F1B: each micro-batch has one forward and one whole backward. Stage s has at
/// most min(p - s, m) micro-batches in flight, and all work is done after
/// (m + p - 1)(t_f + t_b).
lockstep::Schedule one_forward_one_backward(int stages, int micro_batches);

/// a4.2. The same work with little memory: no stage ever has more than `limit` (1 or
/// more) micro-batches in flight. With L = min(limit, p) and g = ceil(m / L) - 1, all
/// work is done after (m + p - 1 + g (p - L))(t_f + t_b), for any t_f and t_b. No order
/// under this limit is faster.
lockstep::Schedule with_memory_limit(int stages, int micro_batches, int limit);

/// a4.3. Backward in two halves, I and W, with t_f = t_i = t_w = t. Here a stage holds a
/// micro-batch from its forward until its W is done, and never holds more than `limit` (p
/// or more). The bubble is max(0, 2p - 1 - min(limit, m)) t. No order under this limit
/// has a smaller bubble.
lockstep::Schedule split_backward(int stages, int micro_batches, int limit);
