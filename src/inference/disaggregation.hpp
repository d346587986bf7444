#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "src/inference/server.hpp"

namespace lockstep {

// Prompts are computed on some devices, and tokens are generated on others. A prompt's
// pass is long, and arithmetic limits its speed; a decode is short, and the memory's
// bandwidth limits its speed. On the same devices, prompts and decodes make each other
// wait. On separate devices, both can have the batches and the sharding that suit them.
// The price is that keys and values are sent between the devices (Zhong et al. 2024,
// DistServe, 2401.09670, section 3; Patel et al. 2024, Splitwise, 2311.18677).

/// Returns keys and values of these tokens, from the pages of all layers: (layers tokens,
/// columns).
Tensor packed_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                     SourceLine at = SourceLine::here());
/// Copies packed tokens to the pages of `cache`, which must have the same layers and
/// columns as the cache that the tokens are from; its pages may have another size.
void unpack_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                   const Tensor& packed, SourceLine at = SourceLine::here());

/// Returns the same requests, but each asks only for its first token: the requests for
/// devices that compute prompts.
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
/// copy is kept until the other rank has received it.
class PrefillSender {
  public:
    /// If `most` prompts are under way, send() waits for the oldest. `to` is a rank of
    /// `pair`. `cache` and `pair` must outlive this object.
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

/// Requests that arrive from the rank that computes their prompts. Before each pass, at
/// most one request is given to the batcher. If the batcher has no room for a request,
/// the request waits, and so do all requests behind it. Rank 0 of the ranks that work on
/// the same passes decides whether a request has come (decided_by_first). To find out, it
/// copies 4 bytes to the host; the request has come if its message ends before the copy.
class PrefilledArrivals : public Arrivals {
  public:
    /// All `requests` come from rank `from` of `pair`, in their order. All arguments must
    /// outlive this object. `alike` has the ranks that work on the same passes, or null.
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
    std::optional<Work> arrival_;  ///< receives both tensors; none once they are here
};

}  // namespace lockstep
