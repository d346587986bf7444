#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::lessons {

namespace {

// Six keys in two blocks, one query 1 and heads of width 1, so that the
// scores are the keys.
constexpr int kBlock = 3;
constexpr double kScores[] = {1, 3, 2, 5, 4, 0};
constexpr double kValues[] = {10, 20, 30, 40, 50, 60};
constexpr int kCount = 6;

/// What online softmax holds.
struct State {
    double maximum = -std::numeric_limits<double>::infinity();
    double sum = 0;
    double y = 0;

    void take_in(int first, bool rescale) {
        double larger = maximum;
        for (int i = first; i < first + kBlock; ++i)
            larger = std::max(larger, kScores[i]);
        const double by =
            rescale ? formulas::rescaling(maximum, larger) : 1;
        sum *= by;
        y *= by;
        maximum = larger;
        for (int i = first; i < first + kBlock; ++i) {
            const double p = std::exp(kScores[i] - maximum);
            sum += p;
            y += p * kValues[i];
        }
    }
};

/// The softmax's weighted mean, all at once.
double at_once() {
    double sum = 0, y = 0;
    for (int i = 0; i < kCount; ++i) {
        sum += std::exp(kScores[i]);
        y += std::exp(kScores[i]) * kValues[i];
    }
    return y / sum;
}

/// The same on a device, which keeps its state after each block, and "y".
RunReport run_blocks(Cluster& cluster, DType dtype) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto upload = [&](const std::vector<double>& values) {
            const auto rows = static_cast<std::int64_t>(values.size());
            return device.upload(
                HostTensor::of(Shape{rows, 1, 1}, values).as(dtype));
        };
        const Heads query{upload({1}), 1, 1, 0};
        const OnlineAttention state = device.begin_attention(query);
        for (int first = 0; first < kCount; first += kBlock) {
            const auto block = [&](const double* from) {
                return Heads{upload({from + first, from + first + kBlock}),
                             1, 1, 0};
            };
            device.attend(state, {query, block(kScores), block(kValues)});
            rank.keep(fmt::format("sum_{}", first / kBlock), state.sum);
        }
        device.finish_attention(state);
        rank.keep("y", state.y);
    });
}

}  // namespace

void RingLesson::show_pencil(Page& page) {
    page.text(
        "A query with six scores 1 3 2 | 5 4 0, whose keys come in two "
        "blocks of three, and values 10 20 30 | 40 50 60. Hold the "
        "largest score m so far, l, the sum of exp(score - m), and o, "
        "that of exp(score - m) times value. When a block brings a larger "
        "m', what was added up relative to m has to be relative to m': "
        "multiply l and o by exp(m - m').");
    Table table{{"after", "m", "rescaled by", "l", "o", "o/l"}, {}};
    State state;
    for (int first = 0; first < kCount; first += kBlock) {
        const double before = state.maximum;
        state.take_in(first, /*rescale=*/true);
        table.rows.push_back(
            {fmt::format("block {}", first / kBlock + 1),
             fmt::format("{:g}", state.maximum),
             first == 0 ? ""
                        : fmt::format("e^({:g} - {:g}) = {:.4f}", before,
                                      state.maximum,
                                      std::exp(before - state.maximum)),
             fmt::format("{:.4f}", state.sum),
             fmt::format("{:.4f}", state.y),
             fmt::format("{:.4f}", state.y / state.sum)});
    }
    page.table(table);
    page.check(
        Check::at_most("o/l against the softmax of all six at once, off by",
                       std::abs(state.y / state.sum - at_once()), 1e-13));
    State wrong;
    for (int first = 0; first < kCount; first += kBlock)
        wrong.take_in(first, /*rescale=*/false);
    page.text(fmt::format(
        "Forget to rescale, and it gives {:.4f}: no crash, no NaN, and as "
        "plausible as {:.4f}.",
        wrong.y / wrong.sum, at_once()));
}

void RingLesson::online(Page& page) {
    page.text(
        "Ring Self-Attention keeps all scores of its rows, since a "
        "softmax divides by a sum over the whole row. But the sum can be "
        "put together block by block (Milakov & Gimelshein 2018), and the "
        "output with it.");
    show_pencil(page);
    if (has_numbers()) {
        State state;
        state.take_in(0, true);
        const RunReport report =
            run_blocks(*make_cluster(options(), 1), options().dtype);
        const auto& kept = report.ranks.front().kept;
        page.check(Check::at_most(
            "l after the first block on a device, as attend() leaves it, "
            "off by",
            std::abs(kept.at("sum_0").at(0) - state.sum), bound()));
        page.check(Check::at_most(
            "its y, relatively off by",
            std::abs(kept.at("y").at(0) - at_once()) / at_once(), bound()));
    }
    page.text(
        "So keys and values can travel together, and a block is forgotten "
        "when it has been attended to: Ring Attention (Liu et al. 2023). "
        "attend() takes one block in; m, l and o stay on the device.");
    page.quote("ring-attention");
    page.text(
        "Backward needs the weights again. What is kept of them is one "
        "number a row, m + log l: a weight is exp(score - that). The "
        "blocks travel once more, and what each device adds to the "
        "gradients of a block travels behind it, one hop later, until it "
        "is home.");
    page.quote("ring-attention-backward");
    check_method(page, ContextMethod::ring_attention);
}

}  // namespace lockstep::lessons
