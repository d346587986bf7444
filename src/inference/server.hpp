#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/inference/batcher.hpp"

namespace lockstep {

/// A request that was answered, and when.
struct Served {
    Answer answer;
    Picoseconds arrival = 0;
    Picoseconds first = 0;  ///< its first token was there
    Picoseconds last = 0;   ///< and its last one

    /// The time to the first token (TTFT).
    Picoseconds to_first() const { return first - arrival; }
    /// The time per output token (TPOT): from one to the next, on average; 0 if there is
    /// one alone.
    Picoseconds per_token() const {
        const auto more = static_cast<Picoseconds>(answer.tokens.size()) - 1;
        return more > 0 ? (last - first) / more : 0;
    }
};

/// Gives the tokens of a pass: what follows each row that it wants. A model's infer, and
/// sample_rows.
using ComputePass =
    std::function<std::vector<std::int32_t>(const Pass&, const std::vector<Wanted>&)>;

/// Answers requests as they come, in the time of the device, until all are answered.
/// Gives what became of them, in the order in which they ended.
///
/// Ranks of a group work on the same passes, and each has all requests, but no two clocks
/// are alike: a rank that looked at its own would take in a request one pass before
/// another does, and their messages would have different sizes. So rank 0 of the group
/// says before each pass how many have come: a broadcast of 4 bytes. A rank alone has no
/// group (null). Without numbers a broadcast brings none, and each rank goes by its own
/// clock: virtual clocks of ranks that compute alike agree.
///
/// Requests stand in the order of their arrivals, and the batcher has no others. Throws
/// UsageError if that is not so, and for what the batcher refuses.
std::vector<Served> serve(Device& device, Communicator* group, Batcher& batcher,
                          const std::vector<Request>& requests,
                          const ComputePass& compute);

/// What users of a service ask for, its objectives (SLO; Zhong et al. 2024, DistServe,
/// 2401.09670, section 2).
struct ServiceLimits {
    Picoseconds to_first = 0;  ///< 0: none
    Picoseconds per_token = 0;

    bool keeps(const Served& of) const {
        return (to_first == 0 || of.to_first() <= to_first) &&
               (per_token == 0 || of.per_token() <= per_token);
    }
};

/// What a service has come to.
struct ServiceReport {
    std::int64_t requests = 0;
    std::int64_t tokens = 0;  ///< that were generated
    std::int64_t preemptions = 0;
    std::int64_t reused = 0;  ///< tokens of prompts whose pages were found
    double seconds = 0;       ///< from the first arrival to the last token
    double kept = 0;          ///< the part of requests that was within the limits
    double goodput = 0;       ///< requests within the limits, a second

    /// Percentiles, by the nearest rank: half of all, nine of ten, 99 of 100.
    struct Spread {
        Picoseconds half = 0, most = 0, nearly_all = 0;
    };
    Spread to_first;
    Spread per_token;  ///< of requests with two tokens and more
};

ServiceReport report_of(const std::vector<Served>& served, const ServiceLimits& limits);

/// Requests at random, the same for the same seed.
struct RequestMix {
    std::int64_t count = 0;
    double per_second = 0;  ///< arrivals, at times that do not depend on each other; 0:
                            ///< all come at once
    std::int64_t least_prompt = 1, most_prompt = 1;  ///< lengths, all as often
    std::int64_t least_output = 1, most_output = 1;
    std::int64_t vocabulary = 1;
    std::uint64_t seed = 0;
};

/// Arrivals are a Poisson process: from one to the next it takes -log(u) / per_second.
/// Throws UsageError for numbers that are not positive, or in the wrong order.
std::vector<Request> make_requests(const RequestMix& mix);

}  // namespace lockstep
