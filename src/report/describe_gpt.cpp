#include "src/nn/gpt.hpp"
#include "src/report/describe.hpp"

namespace lockstep {

namespace {

Json describe(const ExpertSizes& experts, const BlockSizes& block) {
    constexpr const char* kForms[] = {"softmax_then_top_k", "top_k_then_softmax",
                                      "sigmoid"};
    const GateOptions& gate = experts.gate;
    return {{"count", experts.count},
            {"inner", block.expert_columns()},
            {"shared", experts.shared},
            {"capacity", experts.capacity},
            {"order", experts.order == CopyOrder::tokens ? "tokens" : "choices_first"},
            {"gate",
             {{"chosen", gate.chosen},
              {"form", kForms[static_cast<int>(gate.form)]},
              {"normalized", gate.normalized},
              {"factor", gate.factor},
              {"noise", gate.noise},
              {"groups", gate.groups},
              {"chosen_groups", gate.chosen_groups},
              {"balance", gate.balance},
              {"z", gate.z},
              {"biased", gate.biased}}}};
}

}  // namespace

Json describe(const GptSizes& sizes) {
    const BlockSizes& block = sizes.block;
    const bool gated = block.mlp == MlpKind::swiglu;
    Json model{{"kind", "gpt"},
               {"vocabulary", sizes.vocabulary},
               {"context", sizes.context},
               {"layers", sizes.layers},
               {"hidden", block.hidden},
               {"heads", block.heads},
               {"kv_heads", block.attention().key_heads()},
               {"head_width", block.hidden / block.heads},
               {"causal", block.causal},
               {"positions", sizes.learns_positions() ? "learned" : "rotary"},
               {"norm", block.norm == NormKind::layer_norm ? "layer_norm" : "rms_norm"},
               {"norm_epsilon", block.epsilon},
               {"mlp", gated ? "swiglu" : "gelu"},
               {"inner", block.inner_columns()},
               {"bias", block.bias},
               {"tied", sizes.tied}};
    if (!sizes.learns_positions()) model["rotary_base"] = block.rotary_base;
    if (!gated) model["gelu"] = block.gelu == GeluForm::exact ? "exact" : "tanh";
    if (const LatentSizes& latent = block.latent; latent.query_rank > 0)
        model["latent_attention"] = {{"query_rank", latent.query_rank},
                                     {"key_rank", latent.key_rank},
                                     {"width", latent.width},
                                     {"rotary", latent.rotary},
                                     {"value", latent.value}};
    if (block.experts.count > 0) {
        model["experts"] = describe(block.experts, block);
        model["dense_blocks"] = sizes.dense_blocks;
        model["active_parameters"] = sizes.active_parameters();
    }
    model["parameters"] = sizes.parameters();
    return model;
}

}  // namespace lockstep
