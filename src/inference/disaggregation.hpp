#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "src/inference/server.hpp"

namespace lockstep {

// Prompts are computed on some devices, and tokens are generated on others. A prompt's
// pass is long, because it computes; a decode is short, because it reads. On the same
// devices, prompts and decodes make each other wait. On separate devices, both have the
// batches and the sharding that suit them. The price is that keys and values are sent
// between the devices (Zhong et al. 2024, DistServe, 2401.09670, section 3; Patel et al.
// 2024, Splitwise, 2311.18677).

/// Returns keys and values of these tokens, from the pages of all layers: (layers tokens,
/// columns).
Tensor packed_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                     SourceLine at = SourceLine::here());
/// Puts packed tokens on the pages of another cache. This cache has the same layers and
/// columns; its pages may have another size.
void unpack_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                   const Tensor& packed, SourceLine at = SourceLine::here());

/// Returns the same requests, but each asks only for its first token. Devices that
/// compute prompts are given these.
std::vector<Request> first_tokens_of(std::vector<Request> requests);

/// Sends the results of prompts from the rank that computes them to the rank that
/// generates the other tokens. For each prompt, in the order of requests, it sends the
/// first token (4 bytes), and the keys and values (tokens · cache_bytes_of_token, divided
/// by the number of ranks that shard the heads).
///
///     serve(device, ranks, batcher, first_tokens_of(requests),
///           [&](const Pass& pass, const auto& wanted) {
///               auto tokens = compute(pass, wanted);
///               sender.send(pass, tokens);
///               return tokens;
///           });
///     sender.finish();
///
/// Keys and values are copied out of the cache, so their pages can be released at once. A
/// copy stays until the other rank has received it.
class PrefillSender {
  public:
    /// The queue holds at most `most` prompts. If it is full, the program waits. `to` is
    /// a rank of `pair`. Cache and pair must stay.
    PrefillSender(const KeyValueCache& cache, Communicator& pair, int to, int most = 8);

    /// Sends the prompts that the pass completes. The pass must have been issued;
    /// `tokens` are the tokens of its wanted rows.
    void send(const Pass& pass, const std::vector<std::int32_t>& tokens,
              SourceLine at = SourceLine::here());
    /// Waits until the other rank has received all prompts.
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

/// Requests that come from a rank that computes their prompts, at most one before each
/// pass. If the batcher has no room for a request, the request waits, and so do all
/// requests behind it. Rank 0 of the ranks that work on the same passes decides whether a
/// request has come (decided_by_first). To find out, it copies 4 bytes to the host; this
/// copy ends after everything that has come before.
class PrefilledArrivals : public Arrivals {
  public:
    /// All `requests` come from rank `from` of `pair`, in their order. All arguments must
    /// outlive it. `alike` has the ranks that work on the same passes; it may be null.
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
