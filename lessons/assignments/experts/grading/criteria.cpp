#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/experts/grading/layer.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"
#include "src/device/operation.hpp"

namespace lockstep::lessons {

namespace {

using namespace experts;

// a9.1: choices.

struct Logits {
    std::int64_t tokens, experts, chosen;
    bool ties;

    std::string name() const {
        return fmt::format("{} tokens to {} of {} experts{}", tokens, chosen, experts,
                           ties ? ", some of equal logits" : "");
    }
};

/// The first has no ties.
std::vector<Logits> all_logits(const Judge& judge) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    return {{draw("chosen by few", 6, 9), 5, 2, false},
            {draw("chosen by more", 8, 12), draw("to choose from", 6, 7), 3, true},
            {draw("chosen by all", 3, 5), 4, 4, true},
            {draw("chosen by one each", 4, 6), 8, 1, true}};
}

HostTensor logits_of(const Judge& judge, const Logits& of) {
    HostTensor logits = judge.normal(of.name(), {of.tokens, of.experts});
    for (std::int64_t i = 0; of.ties && i < logits.elements(); ++i)
        logits.set(i, std::round(logits.at(i)));
    return logits;
}

struct Chosen {
    HostTensor ids, weights;
};

Chosen chosen_of(const HostTensor& logits, std::int64_t chosen, Weights by) {
    const Shape shape{logits.shape()[0], chosen};
    Chosen all{HostTensor(shape, DType::i32), HostTensor(shape, DType::f64)};
    for (std::int64_t t = 0; t < shape[0]; ++t) {
        const Choice choice = choice_of(row_of(logits, t), chosen, by);
        for (std::int64_t j = 0; j < chosen; ++j) {
            const auto place = static_cast<std::size_t>(j);
            all.ids.set(t * chosen + j, static_cast<double>(choice.ids[place]));
            all.weights.set(t * chosen + j, choice.weights[place]);
        }
    }
    return all;
}

TaskRun choosing(const Judge& judge, const Logits& of) {
    const RankTask given{"choose",
                         {{"logits", {logits_of(judge, of)}}},
                         {{"chosen", of.chosen}},
                         /*may_download=*/true};
    return {of.name(), {given}};
}

/// Says that ids are of the experts asked for, but in another order.
std::string cause_of_ids(const HostTensor& got, const HostTensor& ids) {
    if (got.shape() != ids.shape() || got.dtype() != ids.dtype()) return "";
    const std::int64_t chosen = ids.shape()[1];
    for (std::int64_t t = 0; t < ids.shape()[0]; ++t) {
        std::multiset<double> here, there;
        for (std::int64_t j = 0; j < chosen; ++j) {
            here.insert(got.at(t * chosen + j));
            there.insert(ids.at(t * chosen + j));
        }
        if (here != there) return "";
    }
    return "these are the experts asked for, in another order: the largest logit comes "
           "first, of equal ones the lower number";
}

void judge_choice(Judge& judge) {
    for (const Logits& of : all_logits(judge)) {
        const std::string name = of.name();
        const HostTensor logits = logits_of(judge, of);
        const Chosen right = chosen_of(logits, of.chosen, Weights::of_chosen);
        const RankResult& left = judge.run(choosing(judge, of)).ranks.front();
        const HostTensor& ids = judge.left(left, "ids");
        const HostTensor& weights = judge.left(left, "weights");
        try {
            judge.same(name + ": ids " + right.ids.shape().text(), ids, right.ids);
        } catch (Judge::No& no) {
            no.said = cause_of_ids(ids, right.ids);
            throw;
        }
        try {
            judge.close(name + ": weights " + right.weights.shape().text(), weights,
                        right.weights);
        } catch (Judge::No& no) {
            if (Judge::are_close(weights,
                                 chosen_of(logits, of.chosen, Weights::of_all).weights))
                no.said =
                    "that is the softmax of all logits; the softmax of the k chosen is "
                    "asked, which adds up to 1. The layer is judged with yours";
            throw;
        }
    }
}

/// Returns by what the student's choose weighs. If it takes the softmax of all logits,
/// that is said of a9.1, and costs no more.
Weights weights_of(Judge& judge) {
    const Logits of = all_logits(judge).front();
    const TaskResult& result = judge.tried(choosing(judge, of));
    if (result.trouble) return Weights::of_chosen;
    const auto& tensors = result.ranks.front().tensors;
    const auto left = tensors.find("weights");
    const Chosen by_all = chosen_of(logits_of(judge, of), of.chosen, Weights::of_all);
    const bool is_by_all =
        left != tensors.end() && Judge::are_close(left->second, by_all.weights);
    return is_by_all ? Weights::of_all : Weights::of_chosen;
}

// The grader's cases of a layer; drawn anew for each grading.

Counts draw_tokens(const Judge& judge, const std::string& name, std::int64_t ranks,
                   std::int64_t low, std::int64_t high) {
    Counts tokens;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
        tokens.push_back(judge.draw(fmt::format("{}: tokens {}", name, rank), low, high));
    return tokens;
}

/// One expert on each rank: nothing special, which comes first, and a single choice, a
/// rank without tokens, as many choices as experts, all tokens to one expert, and more
/// ranks.
std::vector<Sizes> lone_cases(const Judge& judge) {
    const std::int64_t each = judge.draw("each of two", 3, 6);
    Counts uneven = draw_tokens(judge, "uneven", 3, 2, 5);
    uneven[static_cast<std::size_t>(judge.draw("without tokens", 0, 2))] = 0;
    return {
        {draw_tokens(judge, "plain", 3, 3, 5), 1, 2},
        {{each, each}, 1, 1},
        {uneven, 1, 2, 4, 5},
        {draw_tokens(judge, "all experts", 4, 1, 4), 1, 4},
        {draw_tokens(judge, "to one of few", 3, 3, 5), 1, 2, 3, 4, 0, true},
        {draw_tokens(judge, "more ranks", judge.draw("ranks", 5, 6), 1, 6), 1, 2, 5, 3}};
}

/// Several experts on each rank: all on one rank, two, three, and all tokens to one.
std::vector<Sizes> shared_cases(const Judge& judge) {
    Counts uneven = draw_tokens(judge, "uneven, several", 3, 3, 6);
    uneven[static_cast<std::size_t>(judge.draw("without tokens, several", 0, 2))] = 0;
    return {
        {draw_tokens(judge, "alone", 1, 5, 8), 4, 2},
        {draw_tokens(judge, "two", 2, 5, 8), 3, 2, 4, 5},
        {uneven, 2, 2, 4, 5},
        {draw_tokens(judge, "to one", 3, 3, 5), 2, 2, 3, 4, 0, true},
        {draw_tokens(judge, "more", 4, 2, 6), judge.draw("own experts", 2, 3), 3, 5, 3}};
}

/// Those cases with experts that cannot take all; one whose capacity is just enough.
std::vector<Sizes> full_cases(const Judge& judge) {
    std::vector<Sizes> full;
    for (const auto& cases : {lone_cases(judge), shared_cases(judge)})
        for (Sizes of : cases) {
            const std::int64_t copies = of.all_tokens() * of.chosen;
            of.capacity = std::max<std::int64_t>(1, copies / of.experts() - 1);
            full.push_back(of);
        }
    Sizes enough{draw_tokens(judge, "just enough", 3, 3, 5), 2, 2, 3, 4, 0, true};
    enough.capacity = enough.all_tokens();
    full.push_back(enough);
    return full;
}

/// So wide that a copy has more bytes than all counts, and experts have all the work.
Sizes wide_case(const Judge& judge, std::int64_t own_experts) {
    const std::int64_t more = judge.draw("wide: tokens", 0, 3);
    return {{3 + more, 16 - more, 5 + more, 11 - more}, own_experts, 2, 24, 160};
}

/// With room for fewer copies than come.
Sizes wide_full_case(const Judge& judge) {
    Sizes of = wide_case(judge, 1);
    of.capacity =
        of.all_tokens() * of.chosen / of.experts() * judge.draw("room", 55, 75) / 100;
    return of;
}

TaskRun task_run(const std::string& task, const Sizes& of, const Values& values) {
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

// Why values are wrong, as far as can be seen.

/// A typical mistake, and what it is.
struct Mistake {
    Way way;
    const char* sentence;
};

std::vector<Mistake> mistakes(Weights weights) {
    std::vector<Mistake> all{
        {{.weighs_forward = false, .weighs_backward = 0},
         "the weights are missing in it"},
        {{.weighs_backward = 2}, "the weights are in it twice"},
        {{.only_own = true},
         "what comes from experts, or tokens, of other ranks is "
         "missing in it"},
        {{.only_first = true}, "that is what the first choice of each token gives alone"},
        {{.as_they_came = true},
         "experts compute rows of other experts: what arrives lies rank by rank, and is "
         "to be sorted expert by expert, and back"},
        {{.through_gate = false}, "what goes back through the gate is missing in it"},
        {{.through_experts = false},
         "it has what goes back through the gate alone, and no copy's gradient"},
        {{.through_softmax = false},
         "the gradient of the weights is taken for that of the logits: what goes back "
         "through the softmax is missing"},
        {{.weights = Weights::of_all},
         "the weights are the softmax of all logits; that of the k chosen is asked"}};
    for (Mistake& mistake : all)
        if (weights == Weights::of_all) mistake.way.weights = weights;
    return all;
}

/// Says by which mistake a tensor would be so; `of` takes it out of a layer.
std::string cause_by_mistake(const HostTensor& got, const Sizes& sizes,
                             const Values& values, Weights weights,
                             const std::function<HostTensor(const Layer&)>& of) {
    for (const Mistake& mistake : mistakes(weights))
        if (Judge::are_close(got, of(layer_by(mistake.way, sizes, values))))
            return mistake.sentence;
    return "";
}

/// A run of a layer, which is compared with what it should have left.
class Ran {
  public:
    Ran(Judge& judge, const std::string& task, const Sizes& of)
        : judge_(judge),
          of_(of),
          weights_(weights_of(judge)),
          values_(draw_values(judge, of)),
          expected_(layer_by({.weights = weights_}, of, values_)),
          result_(judge.run(task_run(task, of, values_))) {}

    const RunReport& report() const { return result_.report; }
    const Layer& expected() const { return expected_; }

    void y() const {
        for (std::size_t rank = 0; rank < of_.tokens.size(); ++rank)
            close(rank, "y", expected_.y[rank],
                  [&](const Layer& layer) { return layer.y[rank]; });
    }
    /// dx, and the gradients of experts.
    void gradients() const {
        for (std::size_t rank = 0; rank < of_.tokens.size(); ++rank)
            close(rank, "dx", expected_.dx[rank],
                  [&](const Layer& layer) { return layer.dx[rank]; });
        for (std::size_t rank = 0; rank < of_.tokens.size(); ++rank)
            for (std::int64_t e = 0; e < of_.own_experts; ++e) {
                expert(rank, e, "wide", &Layer::d_wide);
                expert(rank, e, "narrow", &Layer::d_narrow);
            }
    }
    /// The gate's gradient, whole on every rank.
    void gate() const {
        const HostTensor expected = expected_.d_gate();
        const std::vector<HostTensor> all = gates();
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            const std::string cause = suspected_sum(all, expected);
            close(
                rank, kGate, expected, [](const Layer& layer) { return layer.d_gate(); },
                cause);
        }
    }
    /// The same, but each rank may have its terms alone: whether they are added up is
    /// asked elsewhere.
    void gate_terms() const {
        const std::vector<HostTensor> all = gates();
        const HostTensor expected = expected_.d_gate();
        if (!suspected_sum(all, expected).empty()) return;
        gate();
    }
    /// Asks that all that was given is as it was.
    void given() const {
        for (std::size_t rank = 0; rank < of_.tokens.size(); ++rank) {
            const auto same = [&](const std::string& name, const HostTensor& values) {
                judge_.close(
                    fmt::format("{}: rank {}: {} afterwards", of_.name(), rank, name),
                    left(rank, "given " + name), values, 0);
            };
            same("x", values_.x[rank]);
            if (result_.ranks[rank].tensors.contains("dx")) same("dy", values_.dy[rank]);
        }
    }

  private:
    static constexpr const char* kGate = "gate's gradient";

    const HostTensor& left(std::size_t rank, const std::string& name) const {
        return judge_.left(result_.ranks[rank], name);
    }
    std::vector<HostTensor> gates() const {
        std::vector<HostTensor> all;
        for (std::size_t rank = 0; rank < of_.tokens.size(); ++rank)
            all.push_back(left(rank, kGate));
        return all;
    }
    void close(std::size_t rank, const std::string& name, const HostTensor& expected,
               const std::function<HostTensor(const Layer&)>& of,
               const std::string& cause = "") const {
        const HostTensor& got = left(rank, name);
        try {
            judge_.close(fmt::format("{}: rank {}: {} {}", of_.name(), rank, name,
                                     expected.shape().text()),
                         got, expected);
        } catch (Judge::No& no) {
            no.said =
                cause.empty() ? cause_by_mistake(got, of_, values_, weights_, of) : cause;
            throw;
        }
    }
    void expert(std::size_t rank, std::int64_t own, const char* what,
                std::vector<HostTensor> Layer::*of) const {
        const auto at = [&](std::size_t of_rank) {
            return of_rank * static_cast<std::size_t>(of_.own_experts) +
                   static_cast<std::size_t>(own);
        };
        const std::string name = fmt::format("expert{} {}'s gradient", own, what);
        HostTensor sum((expected_.*of)[0].shape(), DType::f64);
        for (std::size_t each = 0; each < of_.tokens.size(); ++each)
            add_to(sum, (expected_.*of)[at(each)]);
        const bool is_sum = of_.ranks() > 1 && Judge::are_close(left(rank, name), sum);
        close(
            rank, name, (expected_.*of)[at(rank)],
            [&](const Layer& layer) { return (layer.*of)[at(rank)]; },
            is_sum ? "that is the sum over the ranks, whose experts are others: each has "
                     "its own gradient"
                   : "");
    }

    Judge& judge_;
    Sizes of_;
    Weights weights_;
    Values values_;
    Layer expected_;
    const TaskResult& result_;
};

void judge_forward(Judge& judge, const std::vector<Sizes>& cases) {
    for (const Sizes& of : cases) {
        const Ran ran(judge, "forward", of);
        ran.y();
        ran.given();
    }
}

void judge_lone_forward(Judge& judge) {
    judge_forward(judge, lone_cases(judge));
}

/// Asks that a forward of a few ranks with an expert each is right, without which nothing
/// else can be.
void needs_forward(const Judge& judge) {
    needs(judge, "a9.2-values",
          [](Judge& asking) { judge_forward(asking, {lone_cases(asking).front()}); });
}

void judge_shared_forward(Judge& judge) {
    needs_forward(judge);
    judge_forward(judge, shared_cases(judge));
}

/// y is not asked for: a9.2 does.
void judge_backward(Judge& judge) {
    needs(judge, "a9.2-values",
          [](Judge& asking) { Ran(asking, "forward", lone_cases(asking).front()); });
    for (const auto& cases : {lone_cases(judge), shared_cases(judge)})
        for (const Sizes& of : cases) {
            const Ran ran(judge, "pass", of);
            ran.gradients();
            ran.given();
        }
}

void judge_gate(Judge& judge) {
    needs(judge, "a9.3-values",
          [](Judge& asking) { Ran(asking, "pass", lone_cases(asking).front()); });
    for (const Sizes& of : lone_cases(judge))
        Ran(judge, "pass", of).gate();
}

// Runs whose values are right cost this.

/// Returns the bytes of copies that a rank sends on both ways, and of their gradients in
/// a pass: as many rows come as go back.
std::int64_t bytes_of_copies(const Ran& ran, const Sizes& of, std::size_t rank,
                             std::int64_t ways) {
    std::int64_t copies = 0;
    for (std::size_t other = 0; other < of.tokens.size(); ++other)
        if (other != rank)
            copies += ran.expected().sent[rank][other] + ran.expected().sent[other][rank];
    return copies * (ways / 2) * of.hidden * bytes_of(DType::f64);
}

/// Each copy crosses once each way; beside them there are counts: an all-to-all of E, and
/// an all-gather of as many, are the most. The sum of the gate's gradients counts apart,
/// by all_reduce, and is all that goes so.
void judge_bytes(Judge& judge, const Ran& ran, const Sizes& of, std::int64_t ways) {
    const std::int64_t others = of.ranks() - 1;
    const std::int64_t counts =
        4 * of.experts() * others + 4 * of.experts() * others / of.ranks();
    const std::int64_t chunk = (of.experts() * of.hidden + others) / of.ranks();
    const std::int64_t gate = ways < 4 ? 0 : 2 * others * chunk * bytes_of(DType::f64);
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        const RankReport& left = ran.report().ranks[rank];
        const std::int64_t fewest = bytes_of_copies(ran, of, rank, ways);
        const std::int64_t of_gate = std::min(left.bytes_sent_by("all_reduce"), gate);
        const std::int64_t sent = left.bytes_sent() - of_gate;
        const bool right = sent >= fewest && sent <= fewest + counts;
        std::string said;
        if (!right && left.bytes_sent_by("all_reduce") > of_gate)
            said = fmt::format(
                "{} bytes go by all_reduce, which is for the gate's "
                "gradients alone: {} bytes",
                left.bytes_sent_by("all_reduce"), gate);
        judge.ask(right,
                  fmt::format("{}: rank {}: {} bytes of copies sent, and at most {} of "
                              "counts",
                              of.name(), rank, fewest, counts),
                  fmt::format("{} bytes", sent), said);
        // Two exchanges of counts, and the sum of the gate's gradients, beside the ways.
        const std::int64_t most = (ways + 4) * others;
        judge.ask(left.messages_sent() <= most,
                  fmt::format("{}: rank {}: one message each way to each other rank, and "
                              "those of counts and the gate's gradients: at most {}",
                              of.name(), rank, most),
                  fmt::format("{} messages", left.messages_sent()));
    }
}

/// Returns a run for what it cost; if it is not right, `id` has said so.
Ran right(Judge& judge, const std::string& id, const std::string& task, const Sizes& of) {
    needs(judge, id, [&](Judge& asking) {
        const Ran ran(asking, task, of);
        if (task == "pass")
            ran.gradients();
        else
            ran.y();
    });
    return {judge, task, of};
}

void judge_forward_bytes(Judge& judge) {
    const Sizes of = wide_case(judge, 1);
    judge_bytes(judge, right(judge, "a9.2-values", "forward", of), of, 2);
}

void judge_backward_bytes(Judge& judge) {
    const Sizes of = wide_case(judge, 1);
    judge_bytes(judge, right(judge, "a9.3-values", "pass", of), of, 4);
}

void judge_full_bytes(Judge& judge) {
    const Sizes of = wide_full_case(judge);
    judge_bytes(judge, right(judge, "a9.4-values", "pass", of), of, 4);
}

/// A rank computes the rows that came for its experts, and its own tokens' gate.
void judge_work(Judge& judge) {
    const Sizes of = wide_case(judge, 2);
    const Ran ran = right(judge, "a9.2-experts", "forward", of);
    for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
        std::int64_t rows = 0;
        for (const auto& sent : ran.expected().sent)
            rows += sent[rank];
        // Two products and a tanh a row, and the gate's product.
        const std::int64_t row = of.inner * (4 * of.hidden + kTranscendental);
        const std::int64_t gate = 2 * of.tokens[rank] * of.hidden * of.experts();
        const std::int64_t fewest = rows * row + gate;
        const std::int64_t most = fewest + fewest / 10;
        const std::int64_t flops = ran.report().ranks[rank].flops;
        const bool by_all =
            std::abs(flops - of.own_experts * rows * row - gate) <= row / 2;
        judge.ask(flops >= fewest && flops <= most,
                  fmt::format("{}: rank {}: {} rows for its experts: {} to {} flops",
                              of.name(), rank, rows, fewest, most),
                  fmt::format("{} flops", flops),
                  by_all ? "each expert computes all rows that come to its rank" : "");
    }
}

/// Returns whether y of all runs with a capacity is what it would be by a mistake.
bool explains(Judge& judge, Way way) {
    way.weights = weights_of(judge);
    for (const Sizes& of : full_cases(judge)) {
        const Values values = draw_values(judge, of);
        const TaskResult& result = judge.tried(task_run("pass", of, values));
        if (result.trouble) return false;
        const Layer layer = layer_by(way, of, values);
        for (std::size_t rank = 0; rank < of.tokens.size(); ++rank) {
            const auto& tensors = result.ranks[rank].tensors;
            const auto y = tensors.find("y");
            if (y == tensors.end() || !Judge::are_close(y->second, layer.y[rank]))
                return false;
        }
    }
    return true;
}

/// Says how experts came to other copies than they should take, if it is a typical way.
std::string cause_of_capacity(Judge& judge) {
    using enum Way::Room;
    const Mistake all[] = {
        {{.room = unlimited}, "it is as if no copy were dropped"},
        {{.room = each_rank}, "each rank has the whole capacity for itself"},
        {{.room = from_behind}, "the last ranks come first; the first have to"},
        {{.room = one_more}, "an expert takes one copy more than its capacity"},
        {{.room = last_copies},
         "of a rank's copies the last are kept; the first have to be"},
        {{.weights_add_up = true},
         "the weights of the copies that are kept are made to add up to 1 again; they "
         "stay as they are"}};
    for (const Mistake& mistake : all)
        if (explains(judge, mistake.way)) return mistake.sentence;
    return "";
}

void judge_capacity(Judge& judge) {
    needs_forward(judge);
    needs(judge, "a9.3-values", [](Judge& asking) {
        Ran(asking, "pass", lone_cases(asking).front()).gradients();
    });
    try {
        for (const Sizes& of : full_cases(judge)) {
            const Ran ran(judge, "pass", of);
            ran.y();
            ran.gradients();
            ran.gate_terms();
        }
    } catch (Judge::No& no) {
        const std::string cause = cause_of_capacity(judge);
        no.explain(cause);
        throw;
    }
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step, std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("experts", step), std::move(judge)};
}

}  // namespace

Assignment experts_assignment() {
    return {
        "experts",
        "Experts",
        "A layer of experts on several devices: choose, send each token to its experts "
        "and what they make of it back, forward and backward, and drop what an expert "
        "has no room for.",
        {"experts.hpp", "experts.cpp", "adapters.cpp"},
        {criterion("a9.1-values", "choose gives the k best experts and their weights", 10,
                   "gate", judge_choice),
         criterion("a9.2-values", "forward is the layer on one device, an expert a rank",
                   15, "dispatch", judge_lone_forward),
         criterion("a9.2-experts", "the same with several experts on each rank", 10,
                   "dispatch", judge_shared_forward),
         criterion("a9.2-bytes", "forward sends each copy once each way", 10, "dispatch",
                   judge_forward_bytes),
         criterion("a9.2-work", "experts compute the rows that came for them", 5,
                   "waiting", judge_work),
         criterion("a9.3-values", "backward gives dx and the experts' gradients", 15,
                   "dispatch", judge_backward),
         criterion("a9.3-gate", "every rank has the sum of the gate's gradients", 10,
                   "dispatch", judge_gate),
         criterion("a9.3-bytes", "backward sends each copy's gradient once each way", 10,
                   "dispatch", judge_backward_bytes),
         criterion("a9.4-values", "a full expert takes the first copies, and no others",
                   10, "capacity", judge_capacity),
         criterion("a9.4-bytes", "what is dropped is not sent", 5, "capacity",
                   judge_full_bytes)},
        experts_solutions};
}

}  // namespace lockstep::lessons
