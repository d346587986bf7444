#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "src/inference/server.hpp"

namespace lockstep {

// Prompts are computed on some devices, and tokens generated on others. A prompt's pass
// is long, since it computes; a decode is short, since it reads. Together, each makes the
// other wait; apart, each has the batches, and the sharing out, that suit it. What it
// costs is that keys and values go from one to the other (Zhong et al. 2024, DistServe,
// 2401.09670, section 3; Patel et al. 2024, Splitwise, 2311.18677).

/// Returns keys and values of these tokens, from the pages of all layers: (layers tokens,
/// columns).
Tensor packed_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                     SourceLine at = SourceLine::here());
/// Puts them on the pages of another cache, of the same layers and columns. It may have
/// pages of another size.
void unpack_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                   const Tensor& packed, SourceLine at = SourceLine::here());

/// Returns the same requests, of which the first token alone is asked for: what devices
/// that compute prompts are given.
std::vector<Request> first_tokens_of(std::vector<Request> requests);

/// Sends what a rank that computes prompts has made of them to the rank that goes on: of
/// each, in the order of requests, its keys and values, tokens · cache_bytes_of_token
/// over the ranks that share out heads, and its first token, 4 bytes.
///
///     serve(device, ranks, batcher, first_tokens_of(requests),
///           [&](const Pass& pass, const auto& wanted) {
///               auto tokens = compute(pass, wanted);
///               sender.send(pass, tokens);
///               return tokens;
///           });
///     sender.finish();
///
/// Values are copied out of the cache, so their pages may go back at once; a copy waits
/// until the other rank takes it.
class PrefillSender {
  public:
    /// Up to `most` prompts wait to be taken; then the program does. `to` is a rank of
    /// `pair`. Both must stay.
    PrefillSender(const KeyValueCache& cache, Communicator& pair, int to, int most = 8);

    /// The pass has been issued, and these are the tokens of the rows that it wants.
    void send(const Pass& pass, const std::vector<std::int32_t>& tokens,
              SourceLine at = SourceLine::here());
    /// Waits until all have been taken.
    void finish(SourceLine at = SourceLine::here());

  private:
    struct Sent {
        Tensor packed, token;
        Work work;
    };
    const KeyValueCache& cache_;
    Communicator& pair_;
    int to_;
    std::size_t most_;
    std::deque<Sent> sent_;
};

/// Requests that come from a rank that computes their prompts, one before each pass at
/// most. A batcher takes one in that has come if it has room for it; else it waits, and
/// so do those behind it. Whether one has come, rank 0 of the ranks that work alike says
/// (decided_by_first); it finds out by a copy of 4 bytes to the host, which ends after
/// what has come already.
class PrefilledArrivals : public Arrivals {
  public:
    /// All `requests` come from rank `from` of `pair`, in their order. All must stay;
    /// `alike` may be null.
    PrefilledArrivals(const KeyValueCache& cache, Communicator& pair, int from,
                      Communicator* alike, std::span<const Request> requests,
                      SourceLine at = SourceLine::here());

    bool go_on(bool has_work) override;
    std::vector<Arrived> take_in(Batcher& batcher) override;

  private:
    void expect_next();
    bool has_come();

    const KeyValueCache& cache_;
    Device& device_;
    Communicator& pair_;
    int from_;
    Communicator* alike_;
    std::span<const Request> left_;
    SourceLine at_;
    Tensor packed_, token_;        ///< of the next request
    std::optional<Work> arrival_;  ///< of both; none once they have come
};

}  // namespace lockstep
