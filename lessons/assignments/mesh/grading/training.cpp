#include "lessons/assignments/mesh/grading/training.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/assignments/suspects.hpp"

namespace lockstep::lessons::mesh {

MeshCase small_case(const Judge& judge, const Axes& axes, int sequences) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{} of {}", what, text_of(axes)), low, high);
    };
    MeshCase drawn{axes, {}};
    GptSizes& sizes = drawn.job.sizes;
    sizes.vocabulary = 2 * draw("vocabulary", 6, 9) + 1;  // no number of ranks divides it
    sizes.context = 12 * draw("context", 1, 2);
    sizes.layers = draw("layers", 2, 3);
    sizes.block.heads = 4 * draw("heads", 1, 2);
    sizes.block.hidden = 8 * draw("hidden", 2, 3);
    drawn.job.sequences = sequences;
    drawn.job.seed = draw("seed", 1, 1 << 30);
    return drawn;
}

namespace {

/// How far values may be from the reference's.
constexpr double kBound = 1e-11;

// The grader's cases, drawn anew for each grading.

Axes in_drawn_order(const Judge& judge, Axes axes) {
    std::ranges::sort(axes, {}, &Mesh::Axis::name);
    for (std::int64_t next = judge.draw("order of " + text_of(axes), 0, 5); next > 0;
         --next)
        std::ranges::next_permutation(axes, {}, &Mesh::Axis::name);
    return axes;
}

/// All three axes, tp the fastest: ranks with one coordinate of dp, or of cp, are
/// neighbours only if tp sets them apart.
Axes usual_mesh(const Judge& judge) {
    if (judge.draw("order of the usual mesh", 0, 1) == 0)
        return {{"dp", 2}, {"cp", 2}, {"tp", 2}};
    return {{"cp", 2}, {"dp", 2}, {"tp", 2}};
}

/// One rank, each axis by itself, two in the order that is less usual, another mesh, and
/// all axes.
std::vector<MeshCase> all_cases(const Judge& judge) {
    std::vector<MeshCase> all{small_case(judge, {{"dp", 1}, {"cp", 1}, {"tp", 1}}, 2),
                              small_case(judge, {{"dp", 1}, {"cp", 1}, {"tp", 2}}, 2),
                              small_case(judge, {{"tp", 1}, {"cp", 1}, {"dp", 3}}, 4),
                              small_case(judge, {{"dp", 1}, {"cp", 2}, {"tp", 1}}, 1),
                              small_case(judge, {{"tp", 2}, {"cp", 1}, {"dp", 2}}, 3)};
    all.back().job.sizes.tied = true;
    all.back().job.sizes.block.kv_heads = 2;
    const std::vector<Axes> others{{{"dp", 1}, {"cp", 3}, {"tp", 2}},
                                   {{"dp", 3}, {"cp", 1}, {"tp", 2}},
                                   {{"dp", 3}, {"cp", 2}, {"tp", 1}},
                                   {{"dp", 1}, {"cp", 2}, {"tp", 4}}};
    const Axes other = others.at(judge.draw("another mesh", 0, std::ssize(others) - 1));
    all.push_back(small_case(judge, in_drawn_order(judge, other), 4));
    all.push_back(small_case(judge, usual_mesh(judge), 3));
    all.back().job.sizes.tied = judge.draw("tied", 0, 1) == 1;
    all.back().job.sizes.block.kv_heads = 2;
    return all;
}

/// One step, by the gradient itself.
std::vector<MeshCase> one_step_cases(const Judge& judge) {
    std::vector<MeshCase> all = all_cases(judge);
    for (MeshCase& drawn : all)
        drawn.job.by_sgd = true;
    return all;
}

/// Some steps, in which the gradient is clipped.
std::vector<MeshCase> clipped_cases(const Judge& judge) {
    const std::vector<MeshCase> all = all_cases(judge);
    std::vector<MeshCase> some{all[1], all[2], all.back()};
    for (MeshCase& drawn : some) {
        drawn.job.steps = 3;
        drawn.job.most_norm = 300;
    }
    return some;
}

/// So wide that what is outside of layers, and a loss's messages, are little.
MeshCase wide_case(const Judge& judge) {
    MeshCase drawn =
        small_case(judge, in_drawn_order(judge, {{"dp", 2}, {"cp", 2}, {"tp", 2}}), 4);
    drawn.job.sizes.vocabulary = judge.draw("wide vocabulary", 60, 68);
    drawn.job.sizes.context = 4 * judge.draw("wide context", 8, 9);
    drawn.job.sizes.block.hidden = 8 * judge.draw("wide", 8, 9);
    return drawn;
}

TaskRun given(const MeshCase& drawn) {
    TaskRun run{
        fmt::format("{}, {} step{}, h {}", drawn.name(), drawn.job.steps,
                    drawn.job.steps == 1 ? "" : "s", drawn.job.sizes.block.hidden),
        {}};
    run.ranks.assign(static_cast<std::size_t>(drawn.ranks()),
                     {"train", {}, drawn.numbers()});
    return run;
}

// What is asked of a run.

OfRanks on_ranks(const TaskResult& result, const std::string& tensor) {
    OfRanks left;
    for (const RankResult& rank : result.ranks)
        left.push_back(rank.tensors.at(tensor));
    return left;
}

/// Asks for a tensor that is the same on all ranks, a number. If it is wrong, and neither
/// a mistake nor the sum over the ranks says why, `otherwise` does.
void ask_number(Judge& judge, const MeshCase& drawn, const std::string& name,
                const char* otherwise) {
    const TaskRun run = given(drawn);
    for (const RankResult& rank : judge.run(run).ranks)
        Judge::form(fmt::format("{}: {}", run.name, name), judge.left(rank, name), {1});
    try {
        judge.as_right(run, {{name}});
    } catch (Judge::No& no) {
        if (no.said.empty())
            no.said = suspected_sum(on_ranks(judge.run(run), name),
                                    on_ranks(judge.right(run), name)[0]);
        if (no.said.empty()) no.said = otherwise;
        throw;
    }
    judge.ask(true, run.name + ": " + name, "as it should be");
}

/// How ranks change a tensor.
OfRanks changes(const OfRanks& before, const OfRanks& after) {
    OfRanks all;
    for (std::size_t rank = 0; rank < before.size(); ++rank)
        all.push_back(weighted_sum({before[rank], after[rank]}, {1, -1}));
    return all;
}

/// Some elements are right, and all others have not changed.
bool is_partly_updated(const OfRanks& changed, const OfRanks& right) {
    bool some = false;
    for (std::size_t rank = 0; rank < right.size(); ++rank)
        for (std::int64_t i = 0; i < right[rank].elements(); ++i) {
            const double change = changed[rank].at(i);
            if (change != 0 && !(std::abs(change - right[rank].at(i)) <= kBound))
                return false;
            some = some || change != 0;
        }
    return some;
}

/// Why a step changes a tensor in another way than it should.
std::string cause_of_change(const OfRanks& changed, const OfRanks& right,
                            const std::string& name) {
    if (is_partly_updated(changed, right))
        return "some weights have their new values, and all others those of the "
               "beginning: the new values of what other ranks update have to come from "
               "them";
    for (std::size_t rank = 0; rank < right.size(); ++rank)
        for (std::size_t other = 0; other < rank; ++other)
            if (!Judge::are_close(right[rank], right[other], 0)) return "";
    const std::string sum = suspected_sum(changed, right[0]);
    if (!sum.empty()) return "the gradient of " + name + ": " + sum;
    for (std::size_t rank = 1; rank < right.size(); ++rank)
        if (!Judge::are_close(changed[rank], changed[0], kBound))
            return fmt::format(
                "ranks 0 and {} hold the same part of {}, and end with "
                "different values",
                rank, name);
    return "";
}

/// The names of the weights that a run leaves.
std::vector<std::string> weights_of(const Judge& judge, const TaskRun& run) {
    std::vector<std::string> names;
    for (const auto& [name, values] : judge.right(run).ranks[0].tensors)
        if (name.starts_with("weight ")) names.push_back(name);
    return names;
}

void judge_change(Judge& judge, const MeshCase& drawn, const std::string& name) {
    const TaskRun run = given(drawn);
    try {
        judge.as_right(run, {.tensors = {name}, .bound = kBound});
    } catch (Judge::No& no) {
        MeshCase untrained = drawn;
        untrained.job.steps = 0;
        const OfRanks before = on_ranks(judge.right(given(untrained)), name);
        const OfRanks left = on_ranks(judge.run(run), name);
        const auto have_same_form = [](const HostTensor& one, const HostTensor& other) {
            return one.shape() == other.shape() && one.dtype() == other.dtype();
        };
        if (no.said.empty() && std::ranges::equal(left, before, have_same_form))
            no.said = cause_of_change(changes(before, left),
                                      changes(before, on_ranks(judge.right(run), name)),
                                      name.substr(name.find(' ') + 1));
        throw;
    }
}

/// Weights after several steps are the reference's, with the same bits on ranks that have
/// the same part.
void judge_weights(Judge& judge, const MeshCase& drawn) {
    const TaskRun run = given(drawn);
    const auto& left = judge.run(run).ranks;
    const auto& right = judge.right(run).ranks;
    AskedValues asked{weights_of(judge, run)};
    asked.bound = 1e-9;
    judge.as_right(run, asked);
    for (const std::string& name : asked.tensors)
        for (std::size_t rank = 0; rank < left.size(); ++rank)
            for (std::size_t other = 0; other < rank; ++other)
                if (Judge::are_close(right[rank].tensors.at(name),
                                     right[other].tensors.at(name), 0))
                    judge.same(fmt::format("{}: rank {}: {} as on rank {}", run.name,
                                           rank, name, other),
                               left[rank].tensors.at(name), left[other].tensors.at(name));
    judge.ask(true, run.name + ": weights in the end", "as they should be");
}

/// Why a step's loss is wrong, when all was right up to the last update.
const char* loss_cause_after(int step) {
    return step == 1
               ? "the loss and the norm before the first update are right, so the "
                 "update is not: is all that a rank updates scaled by the factor of "
                 "the whole norm, and changed by one step of the optimizer?"
               : "the first update was right, and this one was not: does the "
                 "optimizer, with its state, stay from step to step?";
}

/// Returns a wide run whose weights are right; what is asked of values is not told where
/// figures are asked.
TaskRun right_wide_run(const Judge& judge) {
    Judge asking = judge;
    judge_weights(asking, wide_case(judge));
    return given(wide_case(judge));
}

/// An eighth more than the usual figure is allowed.
constexpr Allowed kEighth{100, 12};

}  // namespace

void judge_gradients_of(Judge& judge, const MeshCase& drawn) {
    const TaskRun run = given(drawn);
    for (const RankResult& rank : judge.run(run).ranks)
        for (const std::string& name : weights_of(judge, run))
            judge.left(rank, name);
    for (const std::string& name : weights_of(judge, run))
        judge_change(judge, drawn, name);
    judge.ask(true, run.name + ": one device's weights, less its gradient", "they are");
}

void judge_loss(Judge& judge) {
    for (const MeshCase& drawn : one_step_cases(judge))
        ask_number(
            judge, drawn, "loss 0",
            "look at what each rank reads: of the sequences, those that are its own "
            "along "
            "dp (mesh.coordinate(\"dp\"), not its rank in the world); of each, the "
            "tokens "
            "that the kit deals it (dealt_rows(sequence, kit.tokens)), as targets, too");
}

void judge_gradients(Judge& judge) {
    judge.needs("a11.1-loss", [](Judge& asking) {
        for (const MeshCase& drawn : one_step_cases(asking))
            asking.run(given(drawn));
    });
    for (const MeshCase& drawn : one_step_cases(judge))
        judge_gradients_of(judge, drawn);
}

void judge_norm(Judge& judge) {
    for (const MeshCase& drawn : clipped_cases(judge))
        ask_number(
            judge, drawn, "squares 0",
            "it is neither a sum over too few ranks nor one that counts parts several "
            "times. It has to be taken of gradients that are whole, once a step");
}

void judge_steps(Judge& judge) {
    for (const MeshCase& drawn : clipped_cases(judge)) {
        for (int step = 0; step < drawn.job.steps; ++step) {
            ask_number(judge, drawn, fmt::format("loss {}", step),
                       loss_cause_after(step));
            ask_number(judge, drawn, fmt::format("squares {}", step),
                       "the loss of this step is right, so the weights are, and its "
                       "gradient is not: does it begin with zeros in each step "
                       "(zero_gradients)?");
        }
        judge_weights(judge, drawn);
    }
}

void judge_share(Judge& judge) {
    const TaskRun run = right_wide_run(judge);
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const auto what = [&](const char* does) {
            return fmt::format("{}: rank {}: {}", run.name, rank, does);
        };
        judge.figure_as_right(
            run, what("computes"), "flops",
            [=](const RunReport& report) { return report.ranks[rank].flops; }, kEighth,
            "it computes what is another rank's share: sequences along dp, tokens along "
            "cp, or columns and heads along tp");
        judge.figure_as_right(
            run, what("sends"), "bytes",
            [=](const RunReport& report) { return report.ranks[rank].bytes_sent(); },
            kEighth,
            "beside what the kit's layers send, a gradient goes once over the plane of "
            "dp "
            "and cp, and nothing of it along tp");
    }
}

std::int64_t peaks_of(const RunReport& report, MemoryCategory category) {
    std::int64_t sum = 0;
    for (const RankReport& rank : report.ranks)
        sum += rank.memory.peak_of(category);
    return sum;
}

void judge_state(Judge& judge) {
    const TaskRun run = right_wide_run(judge);
    const auto state = [](const RunReport& report) {
        return peaks_of(report, MemoryCategory::optimizer);
    };
    const auto copies = static_cast<double>(state(judge.run(run).report)) /
                        static_cast<double>(state(judge.right(run).report));
    judge.figure_as_right(
        run, run.name + ": the optimizer's state, on all ranks", "bytes", state, kEighth,
        fmt::format("that is {:.1f} times one copy: ranks along dp and cp have the same "
                    "values, and each need update a share of them only, if the others "
                    "then get its new values",
                    copies));
}

}  // namespace lockstep::lessons::mesh
