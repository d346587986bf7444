#pragma once

#include "adapters.hpp"

/// a10.1. PipeDream-2BW for p = stages stages, m = micro_batches micro-batches, and an
/// update after every k = per_update micro-batches. p, k and m are 1 or more, k is at
/// least p - 1, and m is a multiple of k. Returns an order of work, without messages.
/// Stage s holds at most min(p - s, m) micro-batches. If updates take no time, all work
/// is done after (m + p - 1)(t_f + t_b), for any t_f and t_b.
lockstep::Schedule two_buffers(int stages, int micro_batches, int per_update);

/// a10.2. Returns each version of the weights that a stage with this list has, from
/// version 0 on. There is one more version than the list has U.
std::vector<Kept> kept_versions(const std::vector<lockstep::Instruction>& list);

/// a10.3. Returns the maximum number of bytes that the stage holds while the pipeline of
/// `stages` stages trains by this choice for a long time.
std::int64_t most_bytes(const Choice& choice, int stages, int stage,
                        const StageBytes& bytes);

/// a10.4. Returns the allowed choice with the least time for a micro-batch in the long
/// run. Returns none if the setting allows no choice.
std::optional<Choice> fastest(const Setting& setting);
