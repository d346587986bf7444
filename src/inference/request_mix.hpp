#pragma once

#include <cstdint>
#include <vector>

#include "src/inference/batcher.hpp"

namespace lockstep {

/// Random requests; the same seed gives the same requests.
struct RequestMix {
    std::int64_t count = 0;
    double per_second = 0;  ///< arrivals on average, at random times; 0: all arrive
                            ///< at once
    std::int64_t least_prompt = 1, most_prompt = 1;  ///< lengths, all equally likely
    std::int64_t least_output = 1, most_output = 1;
    std::int64_t vocabulary = 1;
    std::uint64_t seed = 0;
};

/// Arrivals are a Poisson process: the time from one to the next is -log(u) / per_second.
/// Throws UsageError for numbers that are not positive, or if `least_…` > `most_…`.
std::vector<Request> make_requests(const RequestMix& mix);

}  // namespace lockstep
