#include "src/report/describe.hpp"

#include <utility>

namespace lockstep {

namespace {

void append_master(Json& optimizer, DType dtype) {
    if (dtype == DType::bf16) optimizer["master"] = name_of(DType::f32);
}

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

Json describe(const CharModelSizes& sizes) {
    return {{"kind", "char_model"},
            {"vocabulary", sizes.vocabulary},
            {"context", sizes.context},
            {"width", sizes.width},
            {"hidden", sizes.hidden},
            {"activation", "tanh"},
            {"parameters", sizes.parameters()}};
}

Json describe_linear(std::int64_t in, std::int64_t out) {
    return {{"kind", "linear"},
            {"in", in},
            {"out", out},
            {"bias", true},
            {"parameters", in * out + out}};
}

Json describe(const SgdOptions& options, DType dtype) {
    Json optimizer{{"kind", "sgd"},
                   {"lr", options.learning_rate},
                   {"momentum", options.momentum},
                   {"weight_decay", options.weight_decay}};
    append_master(optimizer, dtype);
    return optimizer;
}

Json describe(const AdamWOptions& options, DType dtype) {
    Json optimizer{{"kind", "adamw"},
                   {"lr", options.learning_rate},
                   {"betas", Json(Json::Array{options.beta1, options.beta2})},
                   {"eps", options.epsilon},
                   {"weight_decay", options.weight_decay}};
    append_master(optimizer, dtype);
    return optimizer;
}

Json trained(Json model, Json optimizer, const char* loss, double factor, int steps) {
    model["optimizer"] = std::move(optimizer);
    model["loss"] = {{"kind", loss}, {"factor", factor}};
    model["steps"] = steps;
    return model;
}

}  // namespace lockstep
