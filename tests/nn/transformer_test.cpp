#include <array>
#include <cmath>

#include "src/nn/activation.hpp"
#include "src/nn/attention.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/sequential.hpp"
#include "tests/nn/finite_difference.hpp"

namespace lockstep::nn_test {

namespace {

std::vector<std::string> names_of(Module& module) {
    std::vector<std::string> names;
    for (const Parameter* parameter : module.parameters())
        names.push_back(parameter->name());
    return names;
}

GptSizes small_gpt(NormKind norm = NormKind::layer_norm, MlpKind mlp = MlpKind::gelu) {
    return {/*vocabulary=*/7,
            /*context=*/5,
            /*layers=*/2,
            {/*hidden=*/6, /*heads=*/2, /*inner=*/5, norm, mlp, true}};
}

}  // namespace

TEST_CASE("RmsNorm's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    RmsNorm norm(one.init("norm"), 6);
    one.device.upload_into(norm.weight().value, normal_values({6}, "weight"));
    require_true_gradients(one.device, norm, normal_values({2, 3, 6}, "x"));
}

TEST_CASE("After RmsNorm the mean square of a row is 1", "[nn][sim]") {
    OneDevice one;
    RmsNorm norm(one.init(), 4, /*epsilon=*/0);
    Saved saved;
    const Tensor y = norm.forward(one.device.upload(f64({1, 4}, {1, 1, 5, 3})), saved);
    CHECK(relative_difference(one.device.download(y),
                              f64({1, 4}, {1.0 / 3, 1.0 / 3, 5.0 / 3, 1})) <= 1e-15);
}

TEST_CASE("Swiglu's gradient equals finite differences", "[nn][sim]") {
    OneDevice one;
    Swiglu swiglu(one.device);
    require_true_gradients(one.device, swiglu, normal_values({2, 3, 8}, "x"));
}

TEST_CASE("Swiglu gates the second half by the first", "[nn][sim]") {
    OneDevice one;
    Swiglu swiglu(one.device);
    Saved saved;
    const Tensor y = swiglu.forward(one.device.upload(f64({1, 4}, {0, 2, 5, -3})), saved);
    const double gate = 2 / (1 + std::exp(-2.0));
    CHECK(relative_difference(one.device.download(y), f64({1, 2}, {0, -3 * gate})) <=
          1e-15);
}

TEST_CASE("The layer Attention's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    for (const bool causal : {false, true}) {
        CAPTURE(causal);
        CoreAttention core(one.device, {2, causal});
        require_true_gradients(one.device, core, normal_values({4, 2, 18}, "x"));
        const auto attention = make_attention(one.init("attn"), 6, {2, causal});
        require_true_gradients(one.device, *attention, normal_values({4, 2, 6}, "x"));
    }
}

namespace {

/// Returns the mean of `values`. Its weights are the softmax of the scores.
template <std::size_t Width>
std::array<double, Width> weighted_mean(
    const std::vector<double>& scores,
    const std::vector<std::array<double, Width>>& values) {
    double sum = 0;
    std::array<double, Width> mean{};
    for (std::size_t j = 0; j < scores.size(); ++j) {
        const double weight = std::exp(scores[j]);
        sum += weight;
        for (std::size_t c = 0; c < Width; ++c)
            mean[c] += weight * values[j][c];
    }
    for (double& value : mean)
        value /= sum;
    return mean;
}

}  // namespace

TEST_CASE("Attention is softmax(Q K^T / sqrt(width)) V of each head and batch",
          "[nn][sim]") {
    constexpr std::int64_t kLength = 3, kBatch = 2, kHeads = 2, kWidth = 2;
    OneDevice one;
    CoreAttention core(one.device, {kHeads, /*causal=*/true});
    const HostTensor x = normal_values({kLength, kBatch, 3 * kHeads * kWidth}, "x");
    Saved saved;
    const HostTensor y = one.device.download(core.forward(one.device.upload(x), saved));
    const auto at = [&](std::int64_t token, std::int64_t batch, int part,
                        std::int64_t head, std::int64_t column) {
        return x.at((token * kBatch + batch) * 3 * kHeads * kWidth +
                    part * kHeads * kWidth + head * kWidth + column);
    };
    HostTensor expected({kLength, kBatch, kHeads * kWidth}, DType::f64);
    for (std::int64_t i = 0; i < kLength; ++i)
        for (std::int64_t batch = 0; batch < kBatch; ++batch)
            for (std::int64_t head = 0; head < kHeads; ++head) {
                std::vector<double> scores;
                std::vector<std::array<double, kWidth>> values;
                for (std::int64_t j = 0; j <= i; ++j) {
                    scores.push_back(
                        (at(i, batch, 0, head, 0) * at(j, batch, 1, head, 0) +
                         at(i, batch, 0, head, 1) * at(j, batch, 1, head, 1)) /
                        std::sqrt(static_cast<double>(kWidth)));
                    values.push_back(
                        {at(j, batch, 2, head, 0), at(j, batch, 2, head, 1)});
                }
                const auto mean = weighted_mean(scores, values);
                const std::int64_t first =
                    (i * kBatch + batch) * kHeads * kWidth + head * kWidth;
                expected.set(first, mean[0]);
                expected.set(first + 1, mean[1]);
            }
    CHECK(relative_difference(y, expected) <= 1e-14);
}

TEST_CASE("The MLPs' gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    const auto mlp = make_mlp(one.init("mlp"), 4, 6);
    require_true_gradients(one.device, *mlp, normal_values({3, 4}, "x"));
    CHECK(names_of(*mlp) == std::vector<std::string>{"mlp.c_fc.weight", "mlp.c_fc.bias",
                                                     "mlp.c_proj.weight",
                                                     "mlp.c_proj.bias"});
    const auto gated = make_swiglu_mlp(one.init("mlp"), 4, 6);
    require_true_gradients(one.device, *gated, normal_values({3, 4}, "x"));
    CHECK(names_of(*gated) ==
          std::vector<std::string>{"mlp.gate_up_proj.weight", "mlp.down_proj.weight"});
}

TEST_CASE("PositionEmbedding adds the vector of its place to each token", "[nn][sim]") {
    OneDevice one;
    PositionEmbedding places(one.init("wpe"), 6, 2);
    require_true_gradients(one.device, places, normal_values({4, 3, 2}, "x"));

    PositionEmbedding second_half(one.init("wpe"), 6, 2, {TokenOrder::contiguous, 2, 1});
    Saved saved;
    const HostTensor table = one.device.download(second_half.weight().value);
    const HostTensor y = one.device.download(
        second_half.forward(one.device.zeros({3, 1, 2}, DType::f64), saved));
    CHECK(one.device.download(one.device.upload(y).flat()) ==
          one.device.download(one.device.upload(table.rows(3, 3)).flat()));
}

TEST_CASE("A sequence longer than the context is refused", "[nn][errors]") {
    OneDevice one;
    PositionEmbedding places(one.init("wpe"), 6, 2);
    Saved saved;
    CHECK_THAT(refusal([&] {
                   places.forward(one.device.zeros({7, 1, 2}, DType::f64), saved);
               }),
               says("wpe.weight has 6 positions, but the sequence needs 7"));
}

TEST_CASE("Residual adds its input to the branch's output", "[nn][sim]") {
    OneDevice one;
    Residual residual(std::make_unique<Linear>(one.init("layer"), 4, 4));
    require_true_gradients(one.device, residual, normal_values({3, 4}, "x"));
}

TEST_CASE("Residual refuses a branch that changes the shape or keeps its output",
          "[nn][errors]") {
    OneDevice one;
    Saved saved, other;
    Residual wide(std::make_unique<Linear>(one.init("layer"), 4, 5));
    const Tensor x = one.device.zeros({3, 4}, DType::f64);
    CHECK_THAT(refusal([&] { wide.forward(x, saved); }),
               says("the branch gives (3, 5) for (3, 4)"));
    Residual keeping(std::make_unique<Tanh>(one.device));
    CHECK_THAT(refusal([&] { keeping.forward(x, other); }),
               says("that something else still uses"));
}

TEST_CASE("A block's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    const auto block = make_block(one.init("h.0"), small_gpt().block);
    require_true_gradients(one.device, *block, normal_values({4, 2, 6}, "x"));
    const auto modern =
        make_block(one.init("h.0"), small_gpt(NormKind::rms_norm, MlpKind::swiglu).block);
    require_true_gradients(one.device, *modern, normal_values({4, 2, 6}, "x"));
}

TEST_CASE("A GPT's gradients equal finite differences", "[nn][sim]") {
    OneDevice one;
    const auto gpt = make_gpt(one.init(), small_gpt());
    require_true_gradients(one.device, *gpt, i32({5, 2}, {0, 1, 6, 3, 2, 2, 5, 4, 0, 6}));
}

TEST_CASE("A GPT's parameters are named and laid out as in PyTorch", "[nn]") {
    OneDevice one;
    GptSizes sizes = small_gpt();
    sizes.layers = 1;
    const auto gpt = make_gpt(one.init(), sizes);
    CHECK(names_of(*gpt) ==
          std::vector<std::string>{
              "transformer.wte.weight", "transformer.wpe.weight",
              "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
              "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
              "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
              "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
              "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
              "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias",
              "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"});
    std::map<std::string, Shape> shapes;
    for (const Parameter* parameter : gpt->parameters())
        shapes[parameter->name()] = parameter->shape();
    CHECK(shapes["transformer.wte.weight"] == Shape{7, 6});
    CHECK(shapes["transformer.wpe.weight"] == Shape{5, 6});
    CHECK(shapes["transformer.h.0.attn.c_attn.weight"] == Shape{18, 6});
    CHECK(shapes["transformer.h.0.mlp.c_fc.weight"] == Shape{5, 6});
    CHECK(shapes["lm_head.weight"] == Shape{7, 6});
}

TEST_CASE("A causal GPT's logits do not depend on later tokens", "[nn][sim]") {
    OneDevice one;
    const auto gpt = make_gpt(one.init(), small_gpt());
    const auto logits = [&](std::int32_t last) {
        Saved saved;
        return one.device.download(
            gpt->forward(one.device.upload(i32({4, 1}, {0, 1, 6, last})), saved));
    };
    const HostTensor a = logits(2), b = logits(5);
    CHECK(a.rows(0, 3) == b.rows(0, 3));
    CHECK_FALSE(a.rows(3, 1) == b.rows(3, 1));
}

TEST_CASE("Heads that do not divide the columns are refused", "[nn][errors]") {
    OneDevice one;
    CHECK_THAT(refusal([&] {
                   make_attention(one.init("attn"), 10, {3, true});
               }),
               says("attn: attention of 3 heads over 10 columns"));
    CHECK_THAT(refusal([&] {
                   CoreAttention(one.device, {0, true});
               }),
               says("attention has 0 heads"));
    CoreAttention core(one.device, {2, true});
    Saved saved;
    CHECK_THAT(refusal([&] {
                   core.forward(one.device.zeros({4, 10}, DType::f64), saved);
               }),
               says("(sequence, batch, columns) is expected"));
}

}  // namespace lockstep::nn_test
