#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/inference/batcher.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::test {

/// Requests that one model answers.
struct Serving {
    GptSizes sizes;
    std::vector<Request> requests;
    CacheSizes cache{.pages = 64, .page_rows = 4};
    BatchRules rules{};
    bool reuse = true;  ///< of pages
    int ways = 1;       ///< ranks that share out heads and columns
    /// The same ranks share out experts instead, and each has requests of its own: every
    /// so many, by their numbers.
    bool own_requests = false;
    DType dtype = DType::f64;
    bool row_by_row = false;
    bool numbers = true;
    /// Requests are added so many passes apart, in their order.
    int apart = 0;
};

struct Outcome {
    std::map<std::int64_t, Answer> answers;  ///< by request
    /// The logits that each of a request's tokens was chosen by, (V).
    std::map<std::int64_t, std::vector<HostTensor>> logits;
    std::int64_t passes = 0;
    std::int64_t most_rows = 0;
    std::int64_t preemptions = 0;
    std::int64_t free_pages = 0;  ///< at the end
    RunReport report;
};

Outcome serve(const Serving& serving);

/// Sizes as GPT-2's, and as Llama's; `kv_heads` of 8 heads.
GptSizes small_sizes(bool llama, std::int64_t kv_heads = 8);

/// A request with a prompt of random tokens, the same for the same id.
Request random_request(std::int64_t id, std::int64_t prompt, std::int64_t output,
                       std::int64_t vocabulary, const Sampling& sampling = {});

/// The logits of the last of these tokens, from a forward of all of them at once by a
/// model without a cache.
HostTensor whole_logits(const GptSizes& sizes, DType dtype,
                        const std::vector<std::int32_t>& ids);

}  // namespace lockstep::test
