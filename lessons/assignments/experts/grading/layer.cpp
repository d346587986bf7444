#include "lessons/assignments/experts/grading/layer.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::lessons::experts {

Choice choice_of(const std::vector<double>& logits, std::int64_t chosen,
                 Weights weights) {
    Choice choice;
    Counts all(logits.size());
    std::iota(all.begin(), all.end(), std::int64_t{0});
    const auto logit = [&](std::int64_t e) {
        return logits[static_cast<std::size_t>(e)];
    };
    std::ranges::stable_sort(all, std::greater<>(), logit);
    choice.ids.assign(all.begin(), all.begin() + chosen);
    double sum = 0;
    for (const std::int64_t e : weights == Weights::of_all ? all : choice.ids)
        sum += std::exp(logit(e) - logit(all[0]));
    for (const std::int64_t e : choice.ids)
        choice.weights.push_back(std::exp(logit(e) - logit(all[0])) / sum);
    return choice;
}

std::vector<double> row_of(const HostTensor& matrix, std::int64_t row) {
    const std::int64_t columns = matrix.shape()[1];
    std::vector<double> values;
    for (std::int64_t i = 0; i < columns; ++i)
        values.push_back(matrix.at(row * columns + i));
    return values;
}

std::int64_t Sizes::all_tokens() const {
    return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
}

std::string Sizes::name() const {
    return fmt::format("{} rank{}, {} tokens of {} columns to {} of {} experts{}{}",
                       ranks(), ranks() == 1 ? "" : "s", fmt::join(tokens, " + "), hidden,
                       chosen, experts(), crowded ? ", all to expert 0" : "",
                       capacity == 0 ? "" : fmt::format(" that take {} each", capacity));
}

Values draw_values(const Judge& judge, const Sizes& of) {
    const auto draw = [&](const std::string& what, const Shape& shape) {
        return judge.normal(fmt::format("{}: {}", of.name(), what), shape);
    };
    Values values{draw("gate", {of.experts(), of.hidden}), {}, {}, {}, {}};
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

void add_to(HostTensor& sum, const HostTensor& values, double factor) {
    for (std::int64_t i = 0; i < sum.elements(); ++i)
        sum.set(i, sum.at(i) + factor * values.at(i));
}

HostTensor Layer::d_gate() const {
    HostTensor sum(gate_terms[0].shape(), DType::f64);
    for (const HostTensor& terms : gate_terms)
        add_to(sum, terms);
    return sum;
}

namespace {

void add_to(HostTensor& tensor, std::int64_t index, double value) {
    tensor.set(index, tensor.at(index) + value);
}

void add_row(HostTensor& to, std::int64_t row, const std::vector<double>& what) {
    const auto columns = static_cast<std::int64_t>(what.size());
    for (std::int64_t i = 0; i < columns; ++i)
        add_to(to, row * columns + i, what[static_cast<std::size_t>(i)]);
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

/// One of a token's choices.
struct Copy {
    std::size_t rank = 0;
    std::int64_t token = 0;
    std::size_t place = 0;   ///< among the token's choices
    std::size_t expert = 0;  ///< that was chosen
    std::size_t by = 0;      ///< that computes it
    double weight = 1;
    bool kept = true;
};

/// [rank][token]
using Choices = std::vector<std::vector<Choice>>;

Choices choices_of(const Way& way, const Sizes& of, const Values& values) {
    Choices choices(of.tokens.size());
    for (std::size_t rank = 0; rank < choices.size(); ++rank)
        for (std::int64_t t = 0; t < of.tokens[rank]; ++t)
            choices[rank].push_back(choice_of(
                times(values.gate, row_of(values.x[rank], t)), of.chosen, way.weights));
    return choices;
}

/// Returns how many copies of each rank an expert has room for.
Counts room_of(const Way& way, const Counts& wanted, std::int64_t capacity) {
    using enum Way::Room;
    if (capacity == 0 || way.room == unlimited) return wanted;
    if (way.room == one_more) ++capacity;
    Counts room = wanted;
    std::int64_t left = capacity;
    const auto take = [&](std::int64_t& count) {
        count = std::min(count, way.room == each_rank ? capacity : left);
        left -= count;
    };
    if (way.room == from_behind)
        std::for_each(room.rbegin(), room.rend(), take);
    else
        std::for_each(room.begin(), room.end(), take);
    return room;
}

/// Drops copies that experts have no room for.
void drop(std::vector<Copy>& copies, const Way& way, const Sizes& of) {
    for (std::size_t e = 0; e < static_cast<std::size_t>(of.experts()); ++e) {
        Counts wanted(of.tokens.size());
        for (const Copy& copy : copies)
            if (copy.expert == e) ++wanted[copy.rank];
        const Counts room = room_of(way, wanted, of.capacity);
        Counts come(of.tokens.size());
        for (Copy& copy : copies) {
            if (copy.expert != e) continue;
            const std::int64_t before = come[copy.rank]++;
            copy.kept = way.room == Way::Room::last_copies
                            ? before >= wanted[copy.rank] - room[copy.rank]
                            : before < room[copy.rank];
        }
    }
}

/// Lets each expert compute as many rows as come for it, but in the order in which they
/// come to its rank: rank by rank, of each expert by expert.
void mix_up(std::vector<Copy>& copies, const Sizes& of) {
    const auto own = static_cast<std::size_t>(of.own_experts);
    for (std::size_t here = 0; here < of.tokens.size(); ++here) {
        std::vector<Copy*> come;
        std::vector<std::size_t> experts;
        for (Copy& copy : copies)
            if (copy.kept && copy.expert / own == here) {
                come.push_back(&copy);
                experts.push_back(copy.expert);
            }
        std::ranges::stable_sort(come, {}, [](const Copy* copy) {
            return std::pair(copy->rank, copy->expert);
        });
        std::ranges::sort(experts);
        for (std::size_t i = 0; i < come.size(); ++i)
            come[i]->by = experts[i];
    }
}

/// In the order of ranks, tokens and choices.
std::vector<Copy> copies_of(const Way& way, const Sizes& of, const Choices& choices) {
    std::vector<Copy> copies;
    const auto own = static_cast<std::size_t>(of.own_experts);
    for (std::size_t rank = 0; rank < choices.size(); ++rank)
        for (std::size_t t = 0; t < choices[rank].size(); ++t)
            for (std::size_t j = 0; j < choices[rank][t].ids.size(); ++j) {
                const auto e = static_cast<std::size_t>(choices[rank][t].ids[j]);
                copies.push_back({rank, static_cast<std::int64_t>(t), j, e, e,
                                  choices[rank][t].weights[j]});
            }
    drop(copies, way, of);
    for (Copy& copy : copies) {
        if (way.only_own && copy.expert / own != copy.rank) copy.kept = false;
        if (way.only_first && copy.place > 0) copy.kept = false;
    }
    if (way.as_they_came) mix_up(copies, of);
    return copies;
}

/// Makes the weights of a token's kept copies add up to 1.
void add_up(std::vector<Copy>& copies) {
    for (auto first = copies.begin(); first != copies.end();) {
        const auto end = std::find_if(first, copies.end(), [&](const Copy& copy) {
            return copy.rank != first->rank || copy.token != first->token;
        });
        double sum = 0;
        for (auto copy = first; copy != end; ++copy)
            sum += copy->kept ? copy->weight : 0;
        for (auto copy = first; copy != end; ++copy)
            copy->weight /= copy->kept ? sum : 1;
        first = end;
    }
}

/// Takes a copy through its expert and back: adds to y and dx, and to the expert's
/// gradients; returns the gradient of its weight.
double through_expert(const Way& way, const Copy& copy, const Values& values,
                      Layer& layer) {
    const std::vector<double> row = row_of(values.x[copy.rank], copy.token);
    std::vector<double> d_made = row_of(values.dy[copy.rank], copy.token);
    std::vector<double> within = times(values.wide[copy.by], row);
    for (double& value : within)
        value = std::tanh(value);
    std::vector<double> made = times(values.narrow[copy.by], within);
    double d_weight = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
        d_weight += d_made[i] * made[i];
        if (way.weighs_forward) made[i] *= copy.weight;
        d_made[i] *= std::pow(copy.weight, way.weighs_backward);
    }
    add_row(layer.y[copy.rank], copy.token, made);
    std::vector<double> d_within =
        times_backward(values.narrow[copy.by], layer.d_narrow[copy.by], within, d_made);
    for (std::size_t i = 0; i < within.size(); ++i)
        d_within[i] *= 1 - within[i] * within[i];
    const std::vector<double> d_row =
        times_backward(values.wide[copy.by], layer.d_wide[copy.by], row, d_within);
    if (way.through_experts) add_row(layer.dx[copy.rank], copy.token, d_row);
    return d_weight;
}

/// The gradient of all logits: of a softmax of those that were chosen.
std::vector<double> d_logits_of(const Way& way, const Choice& choice,
                                const std::vector<double>& d_weights,
                                std::int64_t experts) {
    double mean = 0;
    for (std::size_t j = 0; j < d_weights.size(); ++j)
        mean += choice.weights[j] * d_weights[j];
    std::vector<double> d_logits(static_cast<std::size_t>(experts));
    for (std::size_t j = 0; j < d_weights.size(); ++j)
        d_logits[static_cast<std::size_t>(choice.ids[j])] =
            way.through_softmax ? choice.weights[j] * (d_weights[j] - mean)
                                : d_weights[j];
    return d_logits;
}

/// Nothing yet.
Layer empty_layer(const Sizes& of, const Values& values) {
    Layer layer;
    const auto zeros = [](const HostTensor& like) {
        return HostTensor(like.shape(), DType::f64);
    };
    for (std::size_t e = 0; e < values.wide.size(); ++e) {
        layer.d_wide.push_back(zeros(values.wide[e]));
        layer.d_narrow.push_back(zeros(values.narrow[e]));
    }
    for (const HostTensor& x : values.x) {
        layer.y.push_back(zeros(x));
        layer.dx.push_back(zeros(x));
        layer.gate_terms.push_back(zeros(values.gate));
        layer.sent.emplace_back(of.tokens.size());
    }
    return layer;
}

}  // namespace

Layer layer_by(const Way& way, const Sizes& of, const Values& values) {
    Layer layer = empty_layer(of, values);
    const Choices choices = choices_of(way, of, values);
    std::vector<Copy> copies = copies_of(way, of, choices);
    if (way.weights_add_up) add_up(copies);
    std::vector<std::vector<double>> d_weights;  // of each token, of all ranks
    for (const Copy& copy : copies) {
        if (copy.place == 0) d_weights.emplace_back(static_cast<std::size_t>(of.chosen));
        if (!copy.kept) continue;
        ++layer.sent[copy.rank][copy.expert / static_cast<std::size_t>(of.own_experts)];
        d_weights.back()[copy.place] = through_expert(way, copy, values, layer);
    }
    if (!way.through_gate) return layer;
    auto next = d_weights.begin();
    for (std::size_t rank = 0; rank < choices.size(); ++rank)
        for (std::int64_t t = 0; t < of.tokens[rank]; ++t)
            add_row(layer.dx[rank], t,
                    times_backward(
                        values.gate, layer.gate_terms[rank], row_of(values.x[rank], t),
                        d_logits_of(way, choices[rank][static_cast<std::size_t>(t)],
                                    *next++, of.experts())));
    return layer;
}

}  // namespace lockstep::lessons::experts
