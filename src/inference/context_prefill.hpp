#pragma once

#include <cstdint>
#include <span>

#include "src/inference/key_value_cache.hpp"
#include "src/inference/page_pool.hpp"

namespace lockstep {

/// Returns a kit with the same attention, which also stores the keys and values of its
/// rows in a cache. Positions come from the pass, and the head computes only the wanted
/// rows. So ranks that shard the tokens of a long prompt can compute the prompt together,
/// by any method of context_parallel. At the end each rank has the keys and values of its
/// own tokens:
///
///     const GptKit kit = context_parallel({}, mesh["cp"], ContextMethod::ring_attention,
///                                         TokenOrder::zigzag);
///     auto gpt = make_gpt(init.for_inference(), sizes, filling_cache(kit, cache));
///     const Pass pass = prompt_share(kit.tokens, pages, prompt, 16);
///     const Tensor logits = gpt->infer(cache.begin(pass));
///
/// Attention runs over whole sequences, so a pass has exactly one prompt, from its first
/// token on. Models made with the kit can only infer (Yang et al. 2024, Context
/// Parallelism for Scalable Million-Token Inference, 2411.01783, section 3).
GptKit filling_cache(GptKit kit, KeyValueCache& cache);

/// Returns the rows of a prompt that this rank computes. All ranks have the same number
/// of rows, so there is padding at the prompt's end; later tokens overwrite the padding.
/// Only the rank that has the prompt's last token computes that token's logits. `pages`
/// are the sequence's pages, grown for filled_up(deal, prompt) tokens.
Pass prompt_share(const TokenDeal& deal, const SequencePages& pages,
                  std::span<const std::int32_t> prompt, std::int64_t page_rows);
/// Returns the smallest number of tokens, at least `tokens`, that ranks can shard
/// equally.
std::int64_t filled_up(const TokenDeal& deal, std::int64_t tokens);
/// Returns only the rows of the tokens before `token`: so a prompt loses its padding.
PagedTokens before(PagedTokens rows, std::int64_t token);

}  // namespace lockstep
