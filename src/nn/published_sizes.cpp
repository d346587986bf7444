#include "src/nn/published_sizes.hpp"

namespace lockstep {

namespace {

/// All these models have RMS norms, SwiGLU and rotary positions, but no biases.
BlockSizes block_of(std::int64_t hidden, std::int64_t heads, std::int64_t inner) {
    BlockSizes block;
    block.hidden = hidden;
    block.heads = heads;
    block.inner = inner;
    block.norm = NormKind::rms_norm;
    block.mlp = MlpKind::swiglu;
    block.bias = false;
    return block;
}

}  // namespace

GptSizes llama2_13b(std::int64_t context) {
    GptSizes sizes{32'000, context, 40, block_of(5120, 40, 13'824)};
    sizes.block.rotary_base = 10'000;
    return sizes;
}

GptSizes llama3_405b(std::int64_t context) {
    GptSizes sizes{128'256, context, 126, block_of(16'384, 128, 53'248)};
    sizes.block.kv_heads = 8;
    sizes.block.rotary_base = 500'000;
    return sizes;
}

GptSizes qwen2_5_72b(std::int64_t context) {
    GptSizes sizes{152'064, context, 80, block_of(8192, 64, 29'568)};
    sizes.block.kv_heads = 8;
    sizes.block.rotary_base = 1e6;
    return sizes;
}

GptSizes mixtral_8x7b(std::int64_t context) {
    GptSizes sizes{32'000, context, 32, block_of(4096, 32, 14'336)};
    sizes.block.kv_heads = 8;
    sizes.block.rotary_base = 1e6;
    sizes.block.experts.count = 8;
    sizes.block.experts.gate.chosen = 2;
    return sizes;
}

GptSizes deepseek_v3(std::int64_t context) {
    GptSizes sizes{129'280, context, 61, block_of(7168, 128, 18'432)};
    sizes.dense_blocks = 3;
    sizes.block.rotary_base = 10'000;
    sizes.block.latent = {1536, 512, 128, 64, 128};
    ExpertSizes& experts = sizes.block.experts;
    experts.count = 256;
    experts.inner = 2048;
    experts.shared = 2048;
    experts.gate.chosen = 8;
    experts.gate.form = GateForm::sigmoid;
    experts.gate.normalized = true;
    experts.gate.factor = 2.5;
    experts.gate.groups = 8;
    experts.gate.chosen_groups = 4;
    experts.gate.biased = true;
    return sizes;
}

}  // namespace lockstep
