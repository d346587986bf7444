#pragma once

#include <cstdint>
#include <span>

#include "src/inference/key_value_cache.hpp"
#include "src/inference/page_pool.hpp"

namespace lockstep {

/// A kit whose attention stays what it is, and leaves the keys and values of its rows in
/// a cache; whose positions are those of the pass, and whose head computes the wanted
/// rows alone. So ranks that share out the tokens of a long prompt compute it together,
/// by any of the ways of context_parallel, and each has the keys and values of its own
/// tokens at the end:
///
///     const GptKit kit = context_parallel({}, mesh["cp"], ContextMethod::ring_attention,
///                                         TokenOrder::zigzag);
///     auto gpt = make_gpt(init.for_inference(), sizes, filling_cache(kit, cache));
///     const Pass pass = prompt_share(kit.tokens, pages, prompt, 16);
///     const Tensor logits = gpt->infer(cache.begin(pass));
///
/// Attention is that of whole sequences, so a pass has one prompt, from its first token
/// on. Its models only infer. (Yang et al. 2024, Context Parallelism for Scalable
/// Million-Token Inference, 2411.01783, section 3.)
GptKit filling_cache(GptKit kit, KeyValueCache& cache);

/// Returns the rows of a prompt that this rank of the deal computes. Ranks have equally
/// many, so the prompt is filled up at its end; what is computed there is written over by
/// the tokens that follow. The logits of the prompt's last token are wanted from the rank
/// that has it, of others none. `pages` are those of the sequence, grown for
/// filled_up(deal, prompt) tokens.
Pass prompt_share(const TokenDeal& deal, const SequencePages& pages,
                  std::span<const std::int32_t> prompt, std::int64_t page_rows);
/// Returns the tokens that ranks can share out equally: at least so many.
std::int64_t filled_up(const TokenDeal& deal, std::int64_t tokens);
/// Leaves out the rows that are not tokens before that one: those that filled up a
/// prompt.
PagedTokens before(PagedTokens rows, std::int64_t token);

}  // namespace lockstep
