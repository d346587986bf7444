// Compares latent attention with its formula, head by head.

#include "src/nn/latent_attention.hpp"

#include <cmath>

#include "src/nn/gpt.hpp"
#include "tests/nn/finite_difference.hpp"
#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

namespace {

constexpr std::int64_t kTokens = 5, kSequences = 2, kWide = 6, kHeadCount = 2;
constexpr LatentSizes kLatent{4, 3, 3, 2, 5};
constexpr double kBase = 100;

using Row = std::vector<double>;

/// Computes the formula in plain loops.
class ByHand {
  public:
    explicit ByHand(const std::map<std::string, HostTensor>& values) : values_(values) {}

    HostTensor y(const HostTensor& x) const {
        HostTensor y(x.shape(), DType::f64);
        for (std::int64_t b = 0; b < kSequences; ++b)
            for (std::int64_t i = 0; i < kTokens; ++i) {
                const Row out = linear("o_proj.weight", attended(x, b, i));
                for (std::int64_t h = 0; h < kWide; ++h)
                    y.set((i * kSequences + b) * kWide + h, out[at(h)]);
            }
        return y;
    }

  private:
    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

    Row linear(const std::string& name, const Row& x) const {
        const HostTensor& w = values_.at(name);
        Row y(at(w.shape()[0]));
        for (std::size_t o = 0; o < y.size(); ++o)
            for (std::size_t i = 0; i < x.size(); ++i)
                y[o] += w.at(static_cast<std::int64_t>(o * x.size() + i)) * x[i];
        return y;
    }
    Row normed(const std::string& name, Row x) const {
        double squares = 0;
        for (const double a : x)
            squares += a * a;
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] *= values_.at(name).at(static_cast<std::int64_t>(i)) /
                    std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
        return x;
    }
    static Row slice(const Row& x, std::int64_t from, std::int64_t count) {
        return {x.begin() + from, x.begin() + from + count};
    }
    static Row turned(Row x, std::int64_t position) {
        const std::size_t half = x.size() / 2;
        for (std::size_t j = 0; j < half; ++j) {
            const double angle = static_cast<double>(position) *
                                 std::pow(kBase, -2.0 * static_cast<double>(j) /
                                                     static_cast<double>(x.size()));
            const double a = x[j], b = x[j + half];
            x[j] = a * std::cos(angle) - b * std::sin(angle);
            x[j + half] = a * std::sin(angle) + b * std::cos(angle);
        }
        return x;
    }
    static double product(const Row& a, const Row& b) {
        double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i)
            sum += a[i] * b[i];
        return sum;
    }
    Row token(const HostTensor& x, std::int64_t b, std::int64_t i) const {
        Row row;
        for (std::int64_t h = 0; h < kWide; ++h)
            row.push_back(x.at((i * kSequences + b) * kWide + h));
        return row;
    }

    /// Returns the results of all heads for token i, side by side.
    Row attended(const HostTensor& x, std::int64_t b, std::int64_t i) const {
        const std::int64_t w = kLatent.width, r = kLatent.rotary, v = kLatent.value;
        const Row q = linear(
            "q_b_proj.weight",
            normed("q_a_layernorm.weight", linear("q_a_proj.weight", token(x, b, i))));
        Row all;
        for (std::int64_t head = 0; head < kHeadCount; ++head) {
            Row scores, made(at(v));
            double sum = 0;
            std::vector<Row> values;
            for (std::int64_t j = 0; j <= i; ++j) {
                const Row down = linear("kv_a_proj_with_mqa.weight", token(x, b, j));
                const Row kv = linear(
                    "kv_b_proj.weight",
                    normed("kv_a_layernorm.weight", slice(down, 0, kLatent.key_rank)));
                const double score =
                    product(slice(q, head * w, w), slice(kv, head * w, w)) +
                    product(turned(slice(q, kHeadCount * w + head * r, r), i),
                            turned(slice(down, kLatent.key_rank, r), j));
                scores.push_back(std::exp(score / std::sqrt(static_cast<double>(w + r))));
                sum += scores.back();
                values.push_back(slice(kv, kHeadCount * w + head * v, v));
            }
            for (std::size_t j = 0; j < scores.size(); ++j)
                for (std::size_t c = 0; c < made.size(); ++c)
                    made[c] += scores[j] / sum * values[j][c];
            all.insert(all.end(), made.begin(), made.end());
        }
        return all;
    }

    std::map<std::string, HostTensor> values_;
};

}  // namespace

TEST_CASE("Latent attention equals its formula, head by head", "[nn]") {
    OneDevice one;
    LatentAttention attention(one.init(), kWide, kHeadCount, kLatent, kBase, 1e-5);
    std::map<std::string, HostTensor> values;
    std::int64_t numbers = 0;
    for (const Parameter* parameter : attention.parameters()) {
        values[parameter->name()] = normal_values(parameter->shape(), parameter->name());
        one.device.upload_into(parameter->value, values[parameter->name()]);
        numbers += parameter->shape().elements();
    }
    CHECK(numbers == latent_parameters(kWide, kHeadCount, kLatent));
    const HostTensor x = normal_values({kTokens, kSequences, kWide}, "x");
    Saved saved;
    const HostTensor y =
        one.device.download(attention.forward(one.device.upload(x), saved));
    CHECK(relative_difference(y, ByHand(values).y(x)) <= 1e-13);
}

TEST_CASE("Latent attention has true gradients, also within a GPT", "[nn]") {
    OneDevice one;
    LatentAttention attention(one.init(), kWide, kHeadCount, kLatent, kBase, 1e-5);
    require_true_gradients(one.device, attention,
                           normal_values({kTokens, kSequences, kWide}, "x"));
    GptSizes sizes{5, 4, /*layers=*/1, {kWide, kHeadCount}};
    sizes.block.latent = kLatent;
    sizes.block.rotary_base = kBase;
    sizes.block.norm = NormKind::rms_norm;
    const auto gpt = make_gpt(one.init(), sizes);
    std::int64_t numbers = 0;
    for (const Parameter* parameter : gpt->parameters())
        numbers += parameter->shape().elements();
    CHECK(numbers == sizes.parameters());
    require_true_gradients(one.device, *gpt, ids_below({4, 2}, 5, "ids"));
}

TEST_CASE("Impossible latent attention is refused", "[nn][errors]") {
    OneDevice one;
    CHECK_THAT(refusal([&] {
                   LatentAttention(one.init("attn"), kWide, 0, kLatent, kBase, 1e-5);
               }),
               says("attn: latent attention of 0 heads, with ranks 4 and 3"));
    BlockSizes sizes{kWide, kHeadCount};
    sizes.latent = kLatent;
    CHECK_THAT(
        refusal([&] { make_block(one.init("h.0"), sizes); }),
        says("h.0.attn: latent attention must be causal and have rotary positions"));
}

}  // namespace lockstep::nn_test
