#pragma once

#include "adapters.hpp"

/// a10.1. PipeDream-2BW for p = stages stages, m = micro_batches micro-batches and an
/// update behind every k = per_update of them: p, k and m are 1 or more, k is p - 1 or
/// more, and m is a multiple of k. An order of work, without messages. Stage s holds at
/// most min(p - s, m) micro-batches, and all is done after (m + p - 1)(t_f + t_b),
/// whatever t_f and t_b are, where updates take no time.
lockstep::Schedule two_buffers(int stages, int micro_batches, int per_update);

/// a10.2. Returns each version of the weights that a stage with this list has, version 0
/// first: one more than the list has U.
std::vector<Kept> kept_versions(const std::vector<lockstep::Instruction>& list);

/// a10.3. Returns the bytes that the stage holds at most, when the pipeline of so many
/// stages trains by this choice for long.
std::int64_t most_bytes(const Choice& choice, int stages, int stage,
                        const StageBytes& bytes);

/// a10.4. Returns the choice that takes least time for a micro-batch, in the long run, of
/// those that the setting allows; none if it allows none.
std::optional<Choice> fastest(const Setting& setting);
