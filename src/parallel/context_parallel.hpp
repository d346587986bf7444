#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/gpt.hpp"

namespace lockstep {

/// A way for ranks to attend to each other's tokens of a sharded sequence.
enum class ContextMethod {
    ring_self_attention,  ///< Li et al.: keys round the ring, then values; keeps
                          ///< all scores
    ring_attention,       ///< Liu et al.: both together, online softmax
    gather,               ///< Llama 3: an all-gather of both
    ulysses               ///< Jacobs et al.: all-to-alls that trade tokens for heads
};

/// "ring-self-attention", "ring-attention", "gather", "ulysses".
const char* name_of(ContextMethod method);
const std::vector<ContextMethod>& all_context_methods();
/// Returns the method of that name. Throws UsageError if there is none.
ContextMethod context_method(const std::string& name);

/// Makes the module of that method; x and y are as in ContextAttention. Device and group
/// must outlive it. Throws UsageError if the numbers of heads do not fit each other, or
/// if Ulysses' ranks do not divide them.
std::unique_ptr<Module> make_context_attention(ContextMethod method, Device& device,
                                               Communicator& group,
                                               const AttentionSizes& sizes,
                                               TokenOrder order = TokenOrder::contiguous);

/// Context parallelism: the ranks of a model shard the tokens of each sequence. Only
/// attention and positions depend on the other tokens, so the rest is data parallelism:
/// every rank has all weights, and their gradients are summed over the group. Beside
/// attention's messages, this sends 2(N-1)/N of the parameters once a step.
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
/// The group must outlive the kit. "Sequence parallelism" is also a name of what
/// SequenceParallel does between tensor-parallel regions, without attention across ranks.
GptKit context_parallel(GptKit kit, Communicator& group, ContextMethod method,
                        TokenOrder order = TokenOrder::contiguous);

}  // namespace lockstep
