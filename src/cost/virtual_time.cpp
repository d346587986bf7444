#include "src/cost/virtual_time.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

void refuse_uncountable(int rank, SourceLine at) {
    throw UsageError(
        fmt::format("rank {} would exceed 2^63 picoseconds (106 days) of virtual time, "
                    "the most that can be counted; give the cluster shorter times or "
                    "faster links and devices, or the program less work",
                    rank),
        at);
}

}  // namespace lockstep
