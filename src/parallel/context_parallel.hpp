#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/gpt.hpp"

namespace lockstep {

/// A way for ranks to attend to each other's tokens of a sharded sequence.
enum class ContextMethod {
    ring_self_attention,  ///< Li et al.: keys travel around the ring, and then
                          ///< values; keeps all scores
    ring_attention,       ///< Liu et al.: keys and values in one message; online softmax
    gather,               ///< Llama 3: an all-gather of keys and values
    ulysses               ///< Jacobs et al.: all-to-alls that trade tokens for heads
};

/// "ring-self-attention", "ring-attention", "gather", "ulysses".
const char* name_of(ContextMethod method);
const std::vector<ContextMethod>& all_context_methods();
/// Returns the method of that name. Throws UsageError if there is none.
ContextMethod context_method(const std::string& name);

/// Makes the module of that method; x and y are as in ContextAttention. Device and group
/// must outlive the module. Throws UsageError if the numbers of heads do not fit each
/// other, or, for Ulysses, if the ranks do not divide the heads.
std::unique_ptr<Module> make_context_attention(ContextMethod method, Device& device,
                                               Communicator& group,
                                               const AttentionSizes& sizes,
                                               TokenOrder order = TokenOrder::contiguous);

/// Context parallelism: the ranks of a model shard the tokens of each sequence. Only
/// attention and positions depend on the other tokens. The rest is data parallelism:
/// every rank has all weights, and their gradients are summed over the group. Beside
/// attention's messages, each rank sends 2(N-1)/N of the parameters' bytes once a step.
///
///     Mesh mesh(rank.world(), {{"dp", 2}, {"cp", 4}});
///     const GptKit kit =
///         context_parallel({}, mesh["cp"], ContextMethod::ring_attention, order);
///     auto gpt = make_gpt(init, sizes, kit);
///     declare_replicas_of(rank.world(), *gpt);
///     upload(dealt_rows(tokens, kit.tokens)) …
///     data_parallel_gradients(device, rank.world(), *gpt, loss, mine);
///
/// The weight of `mine` is 1/ranks, this rank's share of the batch's tokens.
///
/// The group must outlive the kit. SequenceParallel is something else: it shards the
/// sequence only between tensor-parallel regions, not inside attention.
GptKit context_parallel(GptKit kit, Communicator& group, ContextMethod method,
                        TokenOrder order = TokenOrder::contiguous);

}  // namespace lockstep
