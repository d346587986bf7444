#pragma once

#include <deque>
#include <vector>

#include "src/inference/batcher.hpp"

namespace lockstep {

/// Continuous batching in its simplest form (Yu et al. 2022, Orca, OSDI, section 3).
/// Batcher (batcher.hpp) generates the same tokens, but needs fewer pages.
///
/// Each pass computes the missing tokens of every sequence: all of its prompt at first,
/// then one token a pass. A request begins when fewer than `most_sequences` are under way
/// and there are pages for all tokens that it will have. So no request is preempted. A
/// request's pages are released when it has its last token.
class PlainBatcher {
  public:
    /// Throws UsageError unless all sizes are positive.
    PlainBatcher(const CacheSizes& cache, std::int64_t most_sequences);

    /// Throws UsageError if the prompt is empty, no token is asked for, or the cache has
    /// too few pages.
    void add(Request request);
    bool idle() const { return running_.empty() && waiting_.empty(); }
    /// Returns what to compute next. take() then expects a token for each sequence in the
    /// pass, chosen as wanted() says.
    Pass next();
    std::vector<Wanted> wanted() const;
    void take(const std::vector<std::int32_t>& tokens);
    /// Returns the requests that have been answered since the last call.
    std::vector<Answer> answers();

  private:
    struct Sequence {
        Request request;
        std::vector<std::int32_t> ids;  ///< the prompt and the tokens after it
        std::vector<std::int32_t> pages{};
        std::int64_t computed = 0;  ///< tokens
    };
    std::int64_t pages_for(const Request& request) const;

    CacheSizes cache_;
    std::size_t most_sequences_;
    std::vector<std::int32_t> free_;  ///< pages
    std::deque<Sequence> waiting_;
    std::vector<Sequence> running_;
    std::vector<Answer> answers_;
};

}  // namespace lockstep
