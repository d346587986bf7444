#pragma once

#include "src/nn/gpt_kit.hpp"

namespace lockstep {

// The sizes of published models, for runs of shapes only. `context` is the longest
// sequence. It costs no parameters, because positions are rotary.

/// LLaMA-2 13B: 13.0 billion parameters, equal numbers of heads of keys and of queries
/// (Touvron et al. 2023, 2307.09288, table 1).
GptSizes llama2_13b(std::int64_t context);

/// Llama 3.1 405B: 405.9 billion parameters, 8 heads of keys (Grattafiori et al. 2024,
/// 2407.21783, table 3).
GptSizes llama3_405b(std::int64_t context);

/// Qwen2.5 72B: 72.7 billion parameters, 8 heads of keys (Qwen Team 2024, 2412.15115,
/// table 1). The biases of its queries, keys and values are left out.
GptSizes qwen2_5_72b(std::int64_t context);

/// Mixtral 8x7B: 46.7 billion parameters; one token uses 12.9 billion of them (Jiang
/// et al. 2024, 2401.04088, table 1).
GptSizes mixtral_8x7b(std::int64_t context);

/// DeepSeek-V3: 671.0 billion parameters; one token uses 37.6 billion of them, or 36.6
/// without the table of tokens. The paper says 37 (DeepSeek-AI 2024, 2412.19437,
/// section 4.2). The module that predicts a second token is left out.
GptSizes deepseek_v3(std::int64_t context);

}  // namespace lockstep
