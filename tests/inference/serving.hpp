#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/inference/batcher.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::test {

/// Requests, and the settings of the model and server that answer them.
struct Serving {
    GptSizes sizes;
    std::vector<Request> requests;
    CacheSizes cache{.pages = 64, .page_rows = 4};
    BatchRules rules{};
    bool reuse = true;  ///< prefix caching: full pages can be found again
    int ways = 1;       ///< the number of ranks that shard heads and columns
    /// If true, the ranks shard experts instead, and rank r answers only the
    /// requests whose id modulo `ways` is r.
    bool own_requests = false;
    DType dtype = DType::f64;
    bool row_by_row = false;
    bool numbers = true;
    /// One more request is added every `apart` passes, or when none is under way.
    int apart = 0;
};

struct Outcome {
    std::map<std::int64_t, Answer> answers;  ///< by request
    /// For each request, the logits (V) from which each token was chosen.
    std::map<std::int64_t, std::vector<HostTensor>> logits;
    std::int64_t passes = 0;
    std::int64_t most_rows = 0;
    std::int64_t preemptions = 0;
    std::int64_t free_pages = 0;  ///< at the end
    RunReport report;
};

Outcome serve(const Serving& serving);

/// Sizes like GPT-2's or like Llama's, with 8 heads of queries and `kv_heads` of keys.
GptSizes small_sizes(bool llama, std::int64_t kv_heads = 8);

/// A request with a prompt of random tokens; the same id gives the same prompt.
Request random_request(std::int64_t id, std::int64_t prompt, std::int64_t output,
                       std::int64_t vocabulary, const Sampling& sampling = {});

/// Returns the logits of the last of these tokens. They are computed without a cache,
/// with one forward of all tokens.
HostTensor whole_logits(const GptSizes& sizes, DType dtype,
                        const std::vector<std::int32_t>& ids);

}  // namespace lockstep::test
