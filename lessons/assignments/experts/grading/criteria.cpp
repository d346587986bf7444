#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"
#include "src/device/operation.hpp"

namespace lockstep::lessons {

namespace {

// The criteria expect this: plain loops over all tokens, without any order of copies.

/// The k experts of a token, and their weights.
struct ExpectedChoice {
    std::vector<std::int64_t> ids;
    std::vector<double> weights;
};

ExpectedChoice expected_choice(const std::vector<double>& logits, std::int64_t k) {
    ExpectedChoice choice;
    std::vector<std::int64_t> all(logits.size());
    std::iota(all.begin(), all.end(), std::int64_t{0});
    const auto logit = [&](std::int64_t e) {
        return logits[static_cast<std::size_t>(e)];
    };
    std::ranges::stable_sort(all, std::greater<>(), logit);
    choice.ids.assign(all.begin(), all.begin() + k);
    double sum = 0;
    for (const std::int64_t e : choice.ids)
        sum += choice.weights.emplace_back(std::exp(logit(e) - logit(all[0])));
    for (double& weight : choice.weights)
        weight /= sum;
    return choice;
}

void add_to(HostTensor& tensor, std::int64_t index, double value) {
    tensor.set(index, tensor.at(index) + value);
}

/// A row times a matrix (out, in), as a linear layer has it.
std::vector<double> times(const HostTensor& weight, const std::vector<double>& row) {
    const std::int64_t out = weight.shape()[0], in = weight.shape()[1];
    std::vector<double> y(static_cast<std::size_t>(out));
    for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t i = 0; i < in; ++i)
            y[static_cast<std::size_t>(o)] +=
                weight.at(o * in + i) * row[static_cast<std::size_t>(i)];
    return y;
}

/// The gradient of that row; adds to the matrix's.
std::vector<double> times_backward(const HostTensor& weight, HostTensor& d_weight,
                                   const std::vector<double>& row,
                                   const std::vector<double>& d_y) {
    const std::int64_t out = weight.shape()[0], in = weight.shape()[1];
    std::vector<double> d_row(row.size());
    for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t i = 0; i < in; ++i) {
            const double d = d_y[static_cast<std::size_t>(o)];
            d_row[static_cast<std::size_t>(i)] += weight.at(o * in + i) * d;
            add_to(d_weight, o * in + i, row[static_cast<std::size_t>(i)] * d);
        }
    return d_row;
}

std::vector<double> row_of(const HostTensor& matrix, std::int64_t row) {
    const std::int64_t columns = matrix.shape()[1];
    std::vector<double> values;
    for (std::int64_t i = 0; i < columns; ++i)
        values.push_back(matrix.at(row * columns + i));
    return values;
}

/// A layer of experts, and the tokens of each rank.
struct ExpertsCase {
    std::vector<std::int64_t> tokens;  ///< of each rank
    std::int64_t own_experts = 1;      ///< of each rank
    std::int64_t chosen = 1;
    std::int64_t hidden = 3;
    std::int64_t inner = 4;
    std::int64_t capacity = 0;
    bool crowded = false;  ///< all tokens' first choice is expert 0

    int ranks() const { return static_cast<int>(tokens.size()); }
    std::int64_t experts() const { return ranks() * own_experts; }
    std::int64_t all_tokens() const {
        return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
    }
    std::string name() const {
        return fmt::format(
            "{} rank{}, {} tokens to {} of {} experts{}{}", ranks(),
            ranks() == 1 ? "" : "s", all_tokens(), chosen, experts(),
            crowded ? ", all to expert 0" : "",
            capacity == 0 ? "" : fmt::format(" that take {} each", capacity));
    }
};

/// Values of a case.
struct LayerValues {
    HostTensor gate;                       ///< (E, h)
    std::vector<HostTensor> wide, narrow;  ///< of each expert (c, h) and (h, c)
    std::vector<HostTensor> x, dy;         ///< of each rank (N, h)
};

LayerValues draw_layer(const Judge& judge, const ExpertsCase& of) {
    const auto draw = [&](const std::string& what, const Shape& shape) {
        return judge.normal(fmt::format("{}: {}", of.name(), what), shape);
    };
    LayerValues values{draw("gate", {of.experts(), of.hidden}), {}, {}, {}, {}};
    for (std::int64_t e = 0; e < of.experts(); ++e) {
        values.wide.push_back(draw(fmt::format("wide {}", e), {of.inner, of.hidden}));
        values.narrow.push_back(draw(fmt::format("narrow {}", e), {of.hidden, of.inner}));
    }
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        const Shape shape{of.tokens[rank], of.hidden};
        values.x.push_back(draw(fmt::format("x {}", rank), shape));
        values.dy.push_back(draw(fmt::format("dy {}", rank), shape));
    }
    if (!of.crowded) return values;
    // The first column is 1, and expert 0's logit is far above all others.
    for (HostTensor& x : values.x)
        for (std::int64_t t = 0; t < x.shape()[0]; ++t)
            x.set(t * of.hidden, 1);
    values.gate.set(0, 100);
    return values;
}

/// A layer on one device that has all ranks' tokens gives this; and who gets how many.
struct ExpectedLayer {
    std::vector<HostTensor> y, dx;  ///< of each rank
    HostTensor d_gate;              ///< (E, h)
    std::vector<HostTensor> d_wide, d_narrow;
    /// Copies that rank r sends to rank s: [r][s].
    std::vector<std::vector<std::int64_t>> sent;
};

void add_row(HostTensor& to, std::int64_t row, const std::vector<double>& what) {
    const auto columns = static_cast<std::int64_t>(what.size());
    for (std::int64_t i = 0; i < columns; ++i)
        add_to(to, row * columns + i, what[static_cast<std::size_t>(i)]);
}

/// One copy, through its expert and back.
struct ThroughExpert {
    std::vector<double> made;   ///< times the weight
    std::vector<double> d_row;  ///< of the copy
    double d_weight = 0;
};

/// Adds to the expert's gradients.
ThroughExpert through_expert(const LayerValues& values, ExpectedLayer& expected,
                             std::size_t e, const std::vector<double>& row,
                             const std::vector<double>& d_y, double weight) {
    ThroughExpert through;
    std::vector<double> within = times(values.wide[e], row);
    for (double& value : within)
        value = std::tanh(value);
    through.made = times(values.narrow[e], within);
    std::vector<double> d_made = d_y;
    for (std::size_t i = 0; i < d_made.size(); ++i) {
        through.d_weight += d_y[i] * through.made[i];
        through.made[i] *= weight;
        d_made[i] *= weight;
    }
    std::vector<double> d_within =
        times_backward(values.narrow[e], expected.d_narrow[e], within, d_made);
    for (std::size_t i = 0; i < within.size(); ++i)
        d_within[i] *= 1 - within[i] * within[i];
    through.d_row = times_backward(values.wide[e], expected.d_wide[e], row, d_within);
    return through;
}

/// The gradient of all logits: of a softmax of those that were chosen.
std::vector<double> d_logits_of(const ExpectedChoice& choice,
                                const std::vector<double>& d_weights,
                                std::size_t experts) {
    double mean = 0;
    for (std::size_t j = 0; j < d_weights.size(); ++j)
        mean += choice.weights[j] * d_weights[j];
    std::vector<double> d_logits(experts);
    for (std::size_t j = 0; j < d_weights.size(); ++j)
        d_logits[static_cast<std::size_t>(choice.ids[j])] =
            choice.weights[j] * (d_weights[j] - mean);
    return d_logits;
}

ExpectedLayer expected_layer(const ExpertsCase& of, const LayerValues& values) {
    ExpectedLayer expected;
    expected.d_gate = HostTensor(values.gate.shape(), DType::f64);
    for (std::size_t e = 0; e < values.wide.size(); ++e) {
        expected.d_wide.emplace_back(values.wide[e].shape(), DType::f64);
        expected.d_narrow.emplace_back(values.narrow[e].shape(), DType::f64);
    }
    std::vector<std::int64_t> taken(values.wide.size());
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        HostTensor y(values.x[rank].shape(), DType::f64), dx = y;
        std::vector<std::int64_t> sent(of.tokens.size());
        for (std::int64_t t = 0; t < of.tokens[rank]; ++t) {
            const std::vector<double> row = row_of(values.x[rank], t);
            const std::vector<double> d_y = row_of(values.dy[rank], t);
            const ExpectedChoice choice =
                expected_choice(times(values.gate, row), of.chosen);
            std::vector<double> d_weights(choice.ids.size());
            for (std::size_t j = 0; j < choice.ids.size(); ++j) {
                const auto e = static_cast<std::size_t>(choice.ids[j]);
                if (of.capacity > 0 && taken[e] == of.capacity) continue;
                ++taken[e];
                ++sent[e / static_cast<std::size_t>(of.own_experts)];
                const ThroughExpert through =
                    through_expert(values, expected, e, row, d_y, choice.weights[j]);
                add_row(y, t, through.made);
                add_row(dx, t, through.d_row);
                d_weights[j] = through.d_weight;
            }
            add_row(dx, t,
                    times_backward(values.gate, expected.d_gate, row,
                                   d_logits_of(choice, d_weights, taken.size())));
        }
        expected.y.push_back(y);
        expected.dx.push_back(dx);
        expected.sent.push_back(sent);
    }
    return expected;
}

TaskRun task_run(const std::string& task, const ExpertsCase& of,
                 const LayerValues& values) {
    TaskRun asked{of.name(), {}};
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        RankTask given{task, {}, {}, /*may_download=*/true};
        given.numbers = {{"hidden", of.hidden},     {"inner", of.inner},
                         {"experts", of.experts()}, {"own experts", of.own_experts},
                         {"chosen", of.chosen},     {"capacity", of.capacity}};
        given.tensors = {{"x", {values.x[rank]}},
                         {"gate", {values.gate, MemoryCategory::parameters}}};
        if (task == "pass") given.tensors["dy"] = {values.dy[rank]};
        for (std::int64_t e = 0; e < of.own_experts; ++e) {
            const auto expert = rank * static_cast<std::size_t>(of.own_experts) +
                                static_cast<std::size_t>(e);
            const auto give = [&](const char* what, const HostTensor& tensor) {
                given.tensors[fmt::format("expert{} {}", e, what)] = {
                    tensor, MemoryCategory::parameters};
            };
            give("wide", values.wide[expert]);
            give("narrow", values.narrow[expert]);
        }
        asked.ranks.push_back(given);
    }
    return asked;
}

/// A run, and what it should have given.
struct Judged {
    const TaskResult& result;
    ExpectedLayer expected;
};

/// Runs the task, and judges y, or of a pass the gradients; y of a pass counts, too.
Judged run_right(Judge& judge, const std::string& task, const ExpertsCase& of) {
    const LayerValues values = draw_layer(judge, of);
    const ExpectedLayer expected = expected_layer(of, values);
    const TaskResult& result = judge.run(task_run(task, of, values));
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        const RankResult& left = result.ranks[rank];
        const auto compare = [&](const std::string& name, const HostTensor& whole) {
            judge.close(fmt::format("{}: rank {}: {} {}", of.name(), rank, name,
                                    whole.shape().text()),
                        judge.left(left, name), whole);
        };
        compare("y", expected.y[rank]);
        if (task != "pass") continue;
        compare("dx", expected.dx[rank]);
        compare("gate's gradient", expected.d_gate);
        for (std::int64_t e = 0; e < of.own_experts; ++e) {
            const auto expert = rank * static_cast<std::size_t>(of.own_experts) +
                                static_cast<std::size_t>(e);
            compare(fmt::format("expert{} wide's gradient", e), expected.d_wide[expert]);
            compare(fmt::format("expert{} narrow's gradient", e),
                    expected.d_narrow[expert]);
        }
    }
    return {result, expected};
}

/// One rank, ranks with unequal tokens, one without any, all tokens to one expert, as
/// many choices as experts, and a drawn layer.
std::vector<ExpertsCase> cases(const Judge& judge) {
    ExpertsCase drawn{{}, judge.draw("own experts", 1, 3), 2, 5, 3};
    for (std::int64_t rank = judge.draw("ranks", 5, 6); rank > 0; --rank)
        drawn.tokens.push_back(judge.draw(fmt::format("tokens {}", rank), 1, 6));
    return {{{6}, 4, 2},
            {{4, 4}, 2, 1},
            {{5, 0, 3}, 2, 2, 4, 5},
            {{3, 2, 4, 1}, 1, 4},
            {{4, 3, 5}, 2, 2, 3, 4, 0, true},
            drawn};
}

/// Those cases with experts that cannot take all; one whose capacity is just enough.
std::vector<ExpertsCase> full_cases(const Judge& judge) {
    std::vector<ExpertsCase> full;
    for (ExpertsCase of : cases(judge)) {
        const std::int64_t copies = of.all_tokens() * of.chosen;
        of.capacity = std::max<std::int64_t>(1, copies / of.experts() - 1);
        full.push_back(of);
    }
    full.push_back({{4, 3, 5}, 2, 2, 3, 4, 12, true});
    return full;
}

/// So wide that a copy has more bytes than all counts, and experts have all the work.
ExpertsCase wide_case(std::int64_t capacity = 0) {
    return {{9, 4, 7, 12}, 2, 2, 24, 160, capacity};
}

/// a9.1: choices among logits some of which are equal.
void judge_choice(Judge& judge) {
    struct Choice {
        std::int64_t tokens, experts, chosen;
        bool ties;
    };
    for (const Choice& of : {Choice{7, 5, 2, false}, Choice{9, 6, 3, true},
                             Choice{4, 4, 4, true}, Choice{5, 8, 1, true}}) {
        const std::string name =
            fmt::format("{} tokens to {} of {} experts{}", of.tokens, of.chosen,
                        of.experts, of.ties ? ", some of equal logits" : "");
        HostTensor logits = judge.normal(name, {of.tokens, of.experts});
        for (std::int64_t i = 0; of.ties && i < logits.elements(); ++i)
            logits.set(i, std::round(logits.at(i)));
        HostTensor ids({of.tokens, of.chosen}, DType::i32),
            weights(ids.shape(), DType::f64);
        for (std::int64_t t = 0; t < of.tokens; ++t) {
            const ExpectedChoice choice = expected_choice(row_of(logits, t), of.chosen);
            for (std::int64_t j = 0; j < of.chosen; ++j) {
                const auto place = static_cast<std::size_t>(j);
                ids.set(t * of.chosen + j, static_cast<double>(choice.ids[place]));
                weights.set(t * of.chosen + j, choice.weights[place]);
            }
        }
        RankTask given{"choose",
                       {{"logits", {logits}}},
                       {{"chosen", of.chosen}},
                       /*may_download=*/true};
        const RankResult& left = judge.run({name, {given}}).ranks.front();
        judge.same(name + ": ids " + ids.shape().text(), judge.left(left, "ids"), ids);
        judge.close(name + ": weights " + weights.shape().text(),
                    judge.left(left, "weights"), weights);
    }
}

void judge_values(Judge& judge, const std::string& task) {
    for (const ExpertsCase& of : cases(judge))
        run_right(judge, task, of);
}

/// Each copy crosses once each way; beside them there are counts: an all-to-all of E, and
/// an all-gather of as many, are the most. The sum of the gate's gradients counts apart.
void judge_bytes(Judge& judge, const std::string& task, const ExpertsCase& of) {
    const Judged judged = run_right(judge, task, of);
    const std::int64_t ways = task == "pass" ? 4 : 2, others = of.ranks() - 1;
    const std::int64_t counts =
        4 * of.experts() * others + 4 * of.experts() * others / of.ranks();
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        // As many rows come as go back.
        std::int64_t copies = 0;
        for (std::size_t other = 0; other < of.tokens.size(); ++other)
            if (other != rank)
                copies +=
                    judged.expected.sent[rank][other] + judged.expected.sent[other][rank];
        const RankReport& left = judged.result.report.ranks[rank];
        const std::int64_t fewest = copies * (ways / 2) * of.hidden * 8;
        const std::int64_t sent = left.bytes_sent() - left.bytes_sent_by("all_reduce");
        judge.ask(sent >= fewest && sent <= fewest + counts,
                  fmt::format("{}: rank {}: {} bytes of copies sent, and at most {} of "
                              "counts",
                              of.name(), rank, fewest, counts),
                  fmt::format("{} bytes", sent));
        // Two exchanges of counts, and the sum of the gate's gradients, beside the ways.
        const std::int64_t most = (ways + 4) * others;
        judge.ask(left.messages_sent() <= most,
                  fmt::format("{}: rank {}: one message each way to each other rank, and "
                              "those of counts and the gate's gradients: at most {}",
                              of.name(), rank, most),
                  fmt::format("{} messages", left.messages_sent()));
    }
}

/// A rank computes the rows that came for its experts, and its own tokens' gate.
void judge_work(Judge& judge) {
    const ExpertsCase of = wide_case();
    const Judged judged = run_right(judge, "forward", of);
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        std::int64_t rows = 0;
        for (const auto& sent : judged.expected.sent)
            rows += sent[rank];
        // Two products and a tanh a row, and the gate's product.
        const std::int64_t fewest = rows * of.inner * (4 * of.hidden + kTranscendental) +
                                    2 * of.tokens[rank] * of.hidden * of.experts();
        const std::int64_t most = fewest + fewest / 10;
        const std::int64_t flops = judged.result.report.ranks[rank].flops;
        judge.ask(flops >= fewest && flops <= most,
                  fmt::format("{}: rank {}: {} rows for its experts: {} to {} flops",
                              of.name(), rank, rows, fewest, most),
                  fmt::format("{} flops", flops));
    }
}

void judge_capacity(Judge& judge) {
    for (const ExpertsCase& of : full_cases(judge))
        run_right(judge, "pass", of);
}

Criterion criterion(const std::string& id, const std::string& title, int points, int step,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, fmt::format("experts, step {}", step), std::move(judge)};
}

}  // namespace

Assignment experts_assignment() {
    const auto of = [](auto judge, auto... rest) {
        return [=](Judge& with) { judge(with, rest...); };
    };
    return {
        "experts",
        "Experts",
        "A layer of experts on several devices: choose, send each token to its experts "
        "and what they make of it back, forward and backward, and drop what an expert "
        "has no room for.",
        {"experts.hpp", "experts.cpp", "adapters.cpp"},
        {criterion("a9.1-values", "choose gives the k best experts and their weights", 10,
                   2, judge_choice),
         criterion("a9.2-values", "forward is the layer on one device", 20, 3,
                   of(judge_values, "forward")),
         criterion("a9.2-bytes", "forward sends each copy once each way", 10, 3,
                   of(judge_bytes, "forward", wide_case())),
         criterion("a9.2-work", "experts compute the rows that came for them", 10, 4,
                   judge_work),
         criterion("a9.3-values", "backward gives the gradients of the layer", 20, 3,
                   of(judge_values, "pass")),
         criterion("a9.3-bytes", "backward sends each copy's gradient once each way", 10,
                   3, of(judge_bytes, "pass", wide_case())),
         criterion("a9.4-values", "a full expert takes the first copies, and no others",
                   10, 5, judge_capacity),
         criterion("a9.4-bytes", "what is dropped is not sent", 10, 5,
                   of(judge_bytes, "pass", wide_case(5)))}};
}

}  // namespace lockstep::lessons
