#include "src/cost/virtual_time.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

void refuse_uncountable(int rank, SourceLine at) {
    throw UsageError(
        fmt::format("rank {} would get beyond 2^63 picoseconds of virtual time, 106 "
                    "days, which is all that can be counted; give the cluster shorter "
                    "times or faster links and devices, or the program less to do",
                    rank),
        at);
}

}  // namespace lockstep
