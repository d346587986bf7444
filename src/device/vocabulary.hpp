#pragma once

#include "src/device/check.hpp"
#include "src/device/options.hpp"

namespace lockstep {

/// The shard with its `whole` filled in, where a shard of `extent` entries can be one.
VocabularyShard checked_shard(const Check& check, const VocabularyShard& shard,
                              std::int64_t extent);

}  // namespace lockstep
