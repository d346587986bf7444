#pragma once

#include "adapters.hpp"

// Generating tokens with a cache of keys and values (Pope et al. 2022, 2211.05102,
// section 2; Kwon et al. 2023, PagedAttention, 2309.06180, section 4).

/// a12.1. Returns the tokens that follow each prompt. Each token has the largest logit
/// after the tokens before it. Every token goes through the GPT once.
std::vector<Tokens> generate(lockstep::Rank& rank, const Gpt& gpt,
                             const std::vector<Prompt>& prompts, std::int64_t page_rows);

/// a12.2. The same, by all t ranks together. Each rank has a / t heads, g / t heads of
/// keys and values, and c / t columns of each MLP, in the order of the ranks.
std::vector<Tokens> generate_shared(lockstep::Rank& rank, const Gpt& gpt,
                                    const std::vector<Prompt>& prompts,
                                    std::int64_t page_rows);

/// a12.3. Makes a batcher that plans passes under these rules.
std::unique_ptr<Batching> make_batcher(const Rules& rules);
