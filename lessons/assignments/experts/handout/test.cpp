// These tests are public. The grader tests more: other layers, other numbers of ranks,
// and what your program costs.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/public_test.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

using namespace lockstep;

constexpr std::int64_t kHidden = 6, kInner = 10;

/// The numbers of tokens on each rank, of experts on a rank, and of experts for a token.
struct Sizes {
    std::vector<std::int64_t> tokens;
    std::int64_t own_experts = 1;
    std::int64_t chosen = 1;
    std::int64_t capacity = 0;

    std::int64_t ranks() const { return static_cast<std::int64_t>(tokens.size()); }
    std::int64_t experts() const { return ranks() * own_experts; }
    std::int64_t first_token(int rank) const {
        return std::accumulate(tokens.begin(), tokens.begin() + rank, std::int64_t{0});
    }
    std::int64_t all_tokens() const { return first_token(static_cast<int>(ranks())); }
};

/// Returns rows [begin, begin + count) of random values; `name` is their seed.
HostTensor rows_of(const std::string& name, std::int64_t begin, std::int64_t count) {
    const RandomStream stream(1, name);
    HostTensor rows({count, kHidden}, DType::f64);
    for (std::int64_t i = 0; i < rows.elements(); ++i)
        rows.set(i, stream.normal(static_cast<std::uint64_t>(begin * kHidden + i)));
    return rows;
}

/// The modules of experts [first, first + count), and the module of the gate.
class Modules {
  public:
    Modules(Device& device, const Sizes& sizes, std::int64_t first, std::int64_t count)
        : gate_({device, DType::f64, 1, "gate"}, kHidden, sizes.experts(), false) {
        layer_ = {&gate_, {}, sizes.chosen, sizes.capacity};
        for (std::int64_t e = first; e < first + count; ++e) {
            const ParameterInit init{device, DType::f64, 1, fmt::format("expert{}", e)};
            Sequential& expert = *experts_.emplace_back(std::make_unique<Sequential>());
            expert.add<Linear>(init.child("wide"), kHidden, kInner, false);
            expert.add<Tanh>(device);
            expert.add<Linear>(init.child("narrow"), kInner, kHidden, false);
            layer_.experts.push_back(&expert);
        }
    }

    const Layer& layer() const { return layer_; }
    void keep_gradients(Rank& rank) {
        rank.keep("the gate's gradient", gate_.weight().gradient);
        for (const auto& expert : experts_)
            for (Parameter* parameter : expert->parameters())
                rank.keep(parameter->name(), parameter->gradient);
    }

  private:
    Linear gate_;
    std::vector<std::unique_ptr<Sequential>> experts_;
    Layer layer_{};
};

/// A token's choice, computed on the host.
struct Choice {
    std::vector<std::size_t> ids;
    std::vector<double> weights;
};

Choice choose_alone(const HostTensor& logits, std::int64_t token, std::int64_t chosen) {
    const std::int64_t experts = logits.shape()[1];
    std::vector<std::size_t> order(static_cast<std::size_t>(experts));
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto logit = [&](std::size_t e) {
        return logits.at(token * experts + static_cast<std::int64_t>(e));
    };
    std::ranges::stable_sort(order, std::greater<>(), logit);
    Choice choice{{order.begin(), order.begin() + chosen}, {}};
    double sum = 0;
    for (const std::size_t e : choice.ids)
        sum += choice.weights.emplace_back(std::exp(logit(e)));
    for (double& weight : choice.weights)
        weight /= sum;
    return choice;
}

/// The choices of all tokens. Each expert has a weight for each token. The weight is 0 if
/// the expert was not chosen, or had no room.
struct Choices {
    std::vector<Choice> of_token;
    std::vector<HostTensor> weights;  ///< for each expert, (tokens)

    Choices(const HostTensor& logits, const Sizes& sizes)
        : weights(static_cast<std::size_t>(sizes.experts()),
                  HostTensor({sizes.all_tokens()}, DType::f64)) {
        std::vector<std::int64_t> taken(weights.size());
        for (std::int64_t t = 0; t < sizes.all_tokens(); ++t) {
            const Choice& own =
                of_token.emplace_back(choose_alone(logits, t, sizes.chosen));
            for (std::size_t j = 0; j < own.ids.size(); ++j) {
                const std::size_t e = own.ids[j];
                if (sizes.capacity == 0 || taken[e]++ < sizes.capacity)
                    weights[e].set(t, own.weights[j]);
            }
        }
    }

    /// Returns the gradient of the logits, computed from the gradients of `weights`. A
    /// dropped copy contributes nothing to it.
    HostTensor d_logits(const std::vector<HostTensor>& d_weights) const {
        const auto experts = static_cast<std::int64_t>(weights.size());
        HostTensor d({static_cast<std::int64_t>(of_token.size()), experts}, DType::f64);
        for (std::int64_t t = 0; t < d.shape()[0]; ++t) {
            const Choice& own = of_token[static_cast<std::size_t>(t)];
            std::vector<double> d_own;
            double mean = 0;
            for (std::size_t j = 0; j < own.ids.size(); ++j) {
                const bool kept = weights[own.ids[j]].at(t) != 0;
                d_own.push_back(kept ? d_weights[own.ids[j]].at(t) : 0);
                mean += own.weights[j] * d_own.back();
            }
            for (std::size_t j = 0; j < own.ids.size(); ++j)
                d.set(t * experts + static_cast<std::int64_t>(own.ids[j]),
                      own.weights[j] * (d_own[j] - mean));
        }
        return d;
    }
};

/// Runs every expert on every token, on one device, and applies the weights.
RunReport run_alone(const Sizes& sizes) {
    return sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const std::int64_t tokens = sizes.all_tokens(), experts = sizes.experts();
        Modules modules(device, sizes, 0, experts);
        const Layer& layer = modules.layer();
        const Tensor x = device.upload(rows_of("x", 0, tokens));
        const Tensor dy = device.upload(rows_of("dy", 0, tokens));
        Saved of_gate;
        const Choices choices(device.download(layer.gate->forward(x, of_gate)), sizes);

        const Tensor y = device.zeros(x.shape(), DType::f64);
        const Tensor dx = device.zeros(x.shape(), DType::f64);
        std::vector<HostTensor> d_weights;
        for (std::size_t e = 0; e < layer.experts.size(); ++e) {
            Saved saved;
            const Tensor made = layer.experts[e]->forward(x, saved);
            const Tensor weight = device.upload(choices.weights[e]);
            const Tensor products = device.empty({tokens}, DType::f64);
            device.row_products(products, dy, made);
            d_weights.push_back(device.download(products));
            const Tensor weighted = device.empty(x.shape(), DType::f64);
            device.copy(weighted, made);
            device.scale_rows(weighted, weight);
            device.add(y, weighted);
            device.copy(weighted, dy);
            device.scale_rows(weighted, weight);
            device.add(dx, layer.experts[e]->backward(weighted, saved));
        }
        const Tensor d_logits = device.upload(choices.d_logits(d_weights));
        device.add(dx, layer.gate->backward(d_logits, of_gate));
        rank.keep("y", y);
        rank.keep("dx", dx);
        modules.keep_gradients(rank);
    });
}

/// Runs your layer, with one rank for each entry of `tokens`.
RunReport run_ranks(const Sizes& sizes, bool backward) {
    return sim::make_cluster(static_cast<int>(sizes.ranks()))->run([&](Rank& rank) {
        Device& device = rank.device();
        Modules modules(device, sizes, rank.index() * sizes.own_experts,
                        sizes.own_experts);
        const auto own = [&](const char* name) {
            return device.upload(
                rows_of(name, sizes.first_token(rank.index()),
                        sizes.tokens[static_cast<std::size_t>(rank.index())]));
        };
        if (!backward) {
            rank.keep("y", adapters::forward(rank, modules.layer(), own("x")));
            return;
        }
        const Passed passed = adapters::pass(rank, modules.layer(), own("x"), own("dy"));
        rank.keep("y", passed.y);
        rank.keep("dx", passed.dx);
        modules.keep_gradients(rank);
    });
}

void test_layer(const Sizes& sizes, bool backward) {
    const RunReport alone = run_alone(sizes), ranks = run_ranks(sizes, backward);
    for (int rank = 0; rank < static_cast<int>(sizes.ranks()); ++rank)
        for (const auto& [name, got] : ranks.ranks[rank].kept) {
            const HostTensor& all = alone.ranks[0].kept.at(name);
            const bool of_tokens = name == "y" || name == "dx";
            expect_close(
                got, of_tokens ? all.rows(sizes.first_token(rank), got.shape()[0]) : all,
                fmt::format("{} of rank {}", name, rank));
        }
}

/// Tests the bytes of the copies that are sent to the experts and back.
void test_bytes() {
    const Sizes sizes{{7, 5, 4, 8}, 1, 4};  // a copy of each token for each rank
    const RunReport report = run_ranks(sizes, false);
    for (int rank = 0; rank < 4; ++rank) {
        const std::int64_t own = sizes.tokens[static_cast<std::size_t>(rank)];
        const std::int64_t copies = 3 * own + (sizes.all_tokens() - own);
        expect_equal(report.ranks[rank].bytes_sent_by("send"), copies * kHidden * 8,
                     fmt::format("bytes of copies that rank {} sends", rank));
    }
}

void test_choose() {
    const HostTensor logits =
        HostTensor::of<double>({3, 4}, {1, 3, 2, 0, 0, 0, 5, 5, 7, 7, 7, 7});
    const RunReport report = sim::make_cluster(1)->run([&](Rank& rank) {
        const Chosen chosen = adapters::choose(rank, rank.device().upload(logits), 2);
        rank.keep("ids", chosen.ids);
        rank.keep("weights", chosen.weights);
    });
    const HostTensor& ids = report.ranks[0].kept.at("ids");
    const std::int64_t expected[] = {1, 2, 2, 3, 0, 1};
    expect_equal(ids.elements(), 6, "elements of ids");
    for (std::int64_t i = 0; i < 6; ++i)
        expect_equal(static_cast<std::int64_t>(ids.at(i)), expected[i],
                     fmt::format("choice {} of token {}", i % 2, i / 2));
    const double best = 1 / (1 + std::exp(-1.0));
    expect_close(report.ranks[0].kept.at("weights"),
                 HostTensor::of<double>({3, 2}, {best, 1 - best, 0.5, 0.5, 0.5, 0.5}),
                 "weights");
}

int main() {
    const Sizes alone{{6}, 4, 2}, four{{4, 4, 4, 4}, 2, 2}, uneven{{5, 0, 3}, 2, 3};
    PublicTest test;
    test.check("a9.1 choose, with equal logits", test_choose);
    test.check("a9.2 forward, 1 rank", [=] { test_layer(alone, false); });
    test.check("a9.2 forward, 4 ranks", [=] { test_layer(four, false); });
    test.check("a9.2 forward, 3 ranks, one without tokens",
               [=] { test_layer(uneven, false); });
    test.check("a9.2 forward sends each copy once each way", test_bytes);
    test.check("a9.3 backward, 1 rank", [=] { test_layer(alone, true); });
    test.check("a9.3 backward, 4 ranks", [=] { test_layer(four, true); });
    test.check("a9.3 backward, 3 ranks, one without tokens",
               [=] { test_layer(uneven, true); });
    test.check("a9.4 forward, 4 ranks, experts that take 3 copies", [] {
        test_layer({{4, 4, 4, 4}, 2, 2, 3}, false);
    });
    test.check("a9.4 backward, 3 ranks, experts that take 2 copies", [] {
        test_layer({{5, 0, 3}, 2, 3, 2}, true);
    });
    return test.finish();
}
