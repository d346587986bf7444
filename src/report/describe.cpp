#include "src/report/describe.hpp"

#include <utility>

namespace lockstep {

namespace {

void append_master(Json& optimizer, DType dtype) {
    if (dtype == DType::bf16) optimizer["master"] = name_of(DType::f32);
}

}  // namespace

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
