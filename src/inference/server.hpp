#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

/// A request that has come to a service.
struct Arrived {
    std::int64_t id = 0;
    Picoseconds arrival = 0;
    std::optional<Picoseconds> first{};  ///< when it had a token, if it has one
};

/// How requests come to a service.
class Arrivals {
  public:
    virtual ~Arrivals() = default;
    /// Keeps the program until there is something to do. If its batcher has work, there
    /// is; else a request has to come. Gives false if none ever will.
    virtual bool go_on(bool has_work) = 0;
    /// Gives the batcher those that have come by now.
    virtual std::vector<Arrived> take_in(Batcher& batcher) = 0;
    /// True if a pass without rows is computed, too, since other ranks need it.
    virtual bool serves_others() const { return false; }
};

/// Answers requests as they come, in the time of the device, until all are answered.
/// Gives what became of them, in the order in which they ended. Throws UsageError if the
/// batcher has other requests, and for what it refuses.
std::vector<Served> serve(Device& device, Arrivals& arrivals, Batcher& batcher,
                          const ComputePass& compute);

/// The ranks that a rank answers requests with; either may be none (null).
struct ServiceRanks {
    /// They work on the same passes, and each has all of these requests. But no two
    /// clocks are alike: a rank that looked at its own would take in a request one pass
    /// before another does, and their messages would have different sizes. So rank 0 says
    /// before each pass how many have come: a broadcast of 4 bytes. Without numbers a
    /// broadcast brings none, and each rank goes by its own clock: virtual clocks of
    /// ranks that compute alike agree.
    Communicator* same = nullptr;
    /// They have requests of their own, but need each other in each pass: they share out
    /// experts. One that has nothing to do computes a pass without rows as long as any
    /// other has something (F13). So they say before each pass when they have something
    /// to do next, and the earliest counts: an all-reduce of 8 bytes. It needs numbers.
    Communicator* others = nullptr;
};

/// Answers requests that come at the times that they state. They stand in the order of
/// their arrivals; throws UsageError if they do not.
std::vector<Served> serve(Device& device, const ServiceRanks& ranks, Batcher& batcher,
                          const std::vector<Request>& requests,
                          const ComputePass& compute);

}  // namespace lockstep
