#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/gpt.hpp"

namespace lockstep {

/// A way in which ranks that share out the tokens of a sequence attend to each other's.
enum class ContextMethod {
    ring_self_attention,  ///< Li et al.: keys round, then values; all
                          ///< scores
    ring_attention,       ///< Liu et al.: both together, online softmax
    gather,               ///< Llama 3: an all-gather of both
    ulysses               ///< Jacobs et al.: an all-to-all, heads for tokens
};

/// "ring-self-attention", "ring-attention", "gather", "ulysses".
const char* name_of(ContextMethod method);
const std::vector<ContextMethod>& all_context_methods();
/// The method of that name. Throws UsageError for another.
ContextMethod context_method(const std::string& name);

/// The module of that method; x and y as ContextAttention has them. Device
/// and group must stay. Throws UsageError for heads that do not fit each
/// other, or that Ulysses' ranks cannot share out.
std::unique_ptr<Module> make_context_attention(ContextMethod method, Device& device,
                                               Communicator& group,
                                               const AttentionSizes& sizes,
                                               TokenOrder order = TokenOrder::contiguous);

/// Context parallelism: a model whose ranks share out the tokens of each sequence. To all
/// but attention and places a token is a token, so to the rest it is data parallelism:
/// every rank has all weights, and their gradients are added up over the group, which
/// once a step sends 2(N-1)/N of the parameters beside attention's messages.
///
///     Mesh mesh(rank.world(), {{"dp", 2}, {"cp", 4}});
///     const GptKit kit =
///         context_parallel({}, mesh["cp"], ContextMethod::ring_attention, order);
///     auto gpt = make_gpt(init, sizes, kit);
///     declare_replicas_of(rank.world(), *gpt);
///     upload(dealt_rows(tokens, kit.tokens)) …
///     data_parallel_gradients(device, rank.world(), *gpt, loss, mine);
///
/// `mine` has the weight 1/ranks, its share of the batch's tokens.
///
/// The group must stay. "Sequence parallelism" is also a name of what SequenceParallel
/// does between tensor-parallel regions, which needs no attention across ranks.
GptKit context_parallel(GptKit kit, Communicator& group, ContextMethod method,
                        TokenOrder order = TokenOrder::contiguous);

}  // namespace lockstep
