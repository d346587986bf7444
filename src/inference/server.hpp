#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/inference/batcher.hpp"

namespace lockstep {

/// An answered request, and when it arrived and had tokens.
struct Served {
    Answer answer;
    Picoseconds arrival = 0;
    Picoseconds first = 0;  ///< when it had its first token
    Picoseconds last = 0;   ///< when it had its last token

    /// The time to the first token (TTFT).
    Picoseconds to_first() const { return first - arrival; }
    /// The time per output token (TPOT): the average time from one token to the next; 0
    /// if there is only one token.
    Picoseconds per_token() const {
        const auto more = static_cast<Picoseconds>(answer.tokens.size()) - 1;
        return more > 0 ? (last - first) / more : 0;
    }
};

/// Computes a pass, and returns a token for each row that it wants: a model's infer, then
/// sample_rows.
using ComputePass =
    std::function<std::vector<std::int32_t>(const Pass&, const std::vector<Wanted>&)>;

/// A request that has come to a service.
struct Arrived {
    std::int64_t id = 0;
    Picoseconds arrival = 0;
    std::optional<Picoseconds> first{};  ///< when it had its first token, if any
};

/// How requests come to a service.
class Arrivals {
  public:
    virtual ~Arrivals() = default;
    /// Returns at once if the batcher has work; otherwise waits until a request comes.
    /// Returns false if no more requests will come.
    virtual bool go_on(bool has_work) = 0;
    /// Gives the batcher the requests that have come by now.
    virtual std::vector<Arrived> take_in(Batcher& batcher) = 0;
    /// Returns whether passes without rows are computed too, because other ranks need
    /// them.
    virtual bool serves_others() const { return false; }
};

/// Answers requests as they come, by the device's clock, until all are answered. Returns
/// them in the order in which they ended. Throws UsageError if the batcher has other
/// requests or answers, or refuses a request.
std::vector<Served> serve(Device& device, Arrivals& arrivals, Batcher& batcher,
                          const ComputePass& compute);

/// The ranks with which a rank answers requests; either may be null.
struct ServiceRanks {
    /// Ranks that work on the same passes; each has all requests. No two clocks agree
    /// exactly. If each rank used its own clock, one rank could accept a request one pass
    /// before another rank, and their messages would have different sizes. So before each
    /// pass rank 0 tells the others how many requests have come: a broadcast of 4 bytes.
    /// If only shapes are computed, a broadcast brings no number, and each rank uses its
    /// own clock. Virtual clocks agree if ranks compute the same.
    Communicator* same = nullptr;
    /// Ranks that have different requests, but need each other in each pass, because they
    /// shard experts. A rank without work computes passes without rows as long as another
    /// rank has work (F13). So before each pass the ranks find the earliest time at which
    /// one of them has work: an all-reduce of 8 bytes. This needs a run with numbers.
    Communicator* others = nullptr;
};

/// Answers requests that come at their arrival times. Throws UsageError unless the
/// requests are in the order of their arrivals.
std::vector<Served> serve(Device& device, const ServiceRanks& ranks, Batcher& batcher,
                          const std::vector<Request>& requests,
                          const ComputePass& compute);

}  // namespace lockstep
