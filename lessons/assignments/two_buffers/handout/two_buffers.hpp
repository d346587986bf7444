#pragma once

#include "adapters.hpp"

/// a10.1. PipeDream-2BW for p = stages stages, m = micro_batches micro-batches, and an
/// update after every k = per_update micro-batches. p, k and m are 1 or more, k is at
/// least p - 1, and m is a multiple of k. Returns an order of work, without messages.
/// Stage s holds at most min(p - s, m) micro-batches. If updates take no time, all work
/// is done after (m + p - 1)(t_f + t_b), for any t_f and t_b.
lockstep::Schedule two_buffers(int stages, int micro_batches, int per_update);

/// a10.2. Returns when a stage with this list keeps each version of its weights, from
/// version 0 on. The number of versions is the number of U in the list, plus 1.
std::vector<Kept> kept_versions(const std::vector<lockstep::Instruction>& list);

/// a10.3. Returns the maximum number of bytes that the stage holds while the pipeline of
/// `stages` stages trains many batches with this choice.
std::int64_t most_bytes(const Choice& choice, int stages, int stage,
                        const StageBytes& bytes);

/// a10.4. Returns the allowed choice with the smallest average time for a micro-batch.
/// Returns none if the setting allows no choice.
std::optional<Choice> fastest(const Setting& setting);
