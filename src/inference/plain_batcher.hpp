#pragma once

#include <deque>
#include <vector>

#include "src/inference/batcher.hpp"

namespace lockstep {

/// Continuous batching, as plainly as it can be said (Yu et al. 2022, Orca, OSDI, section
/// 3). Batcher (batcher.hpp) gives the same tokens with fewer pages.
///
/// Each pass has of every sequence the tokens that have not been computed: all of a
/// prompt at first, then one token a pass. A request begins as soon as there is a place
/// and there are pages for all that it will ever have, so that none is sent back; its
/// pages are free again when it has its last token.
class PlainBatcher {
  public:
    /// Throws UsageError unless all sizes are positive.
    PlainBatcher(const CacheSizes& cache, std::int64_t most_sequences);

    /// Throws UsageError if the prompt is empty, no token is asked for, or the cache has
    /// too few pages.
    void add(Request request);
    bool idle() const { return running_.empty() && waiting_.empty(); }
    /// Gives what to compute next; take() takes a token for each sequence in it, which is
    /// chosen as wanted() says.
    Pass next();
    std::vector<Wanted> wanted() const;
    void take(const std::vector<std::int32_t>& tokens);
    /// Requests that have been answered since the last call.
    std::vector<Answer> answers();

  private:
    struct Sequence {
        Request request;
        std::vector<std::int32_t> ids;  ///< the prompt, and what followed
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
