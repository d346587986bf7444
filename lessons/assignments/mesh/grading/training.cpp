#include "lessons/assignments/mesh/grading/training.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/assignments/mesh/grading/causes.hpp"

namespace lockstep::lessons::mesh {

namespace {

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
    for (MeshCase& of : all)
        of.job.by_sgd = true;
    return all;
}

/// Some steps, in which the gradient is clipped.
std::vector<MeshCase> clipped_cases(const Judge& judge) {
    const std::vector<MeshCase> all = all_cases(judge);
    std::vector<MeshCase> some{all[1], all[2], all.back()};
    for (MeshCase& of : some) {
        of.job.steps = 3;
        of.job.most_norm = 300;
    }
    return some;
}

/// So wide that what is outside of layers, and a loss's messages, are little.
MeshCase wide_case(const Judge& judge) {
    MeshCase of =
        small_case(judge, in_drawn_order(judge, {{"dp", 2}, {"cp", 2}, {"tp", 2}}), 4);
    of.job.sizes.vocabulary = judge.draw("wide vocabulary", 60, 68);
    of.job.sizes.context = 4 * judge.draw("wide context", 8, 9);
    of.job.sizes.block.hidden = 8 * judge.draw("wide", 8, 9);
    return of;
}

const TaskResult& run(Judge& judge, const MeshCase& of) {
    TaskRun asked{fmt::format("{}, {} step{}, h {}", of.name(), of.job.steps,
                              of.job.steps == 1 ? "" : "s", of.job.sizes.block.hidden),
                  {}};
    asked.ranks.assign(static_cast<std::size_t>(of.ranks()),
                       {"train", {}, given_numbers(of)});
    return judge.run(asked);
}

/// Returns what each rank left under the name: one number.
std::vector<double> numbers_left(Judge& judge, const TaskResult& result,
                                 const std::string& name) {
    std::vector<double> numbers;
    for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
        const HostTensor& left = judge.left(result.ranks[rank], name);
        if (left.elements() != 1)
            judge.ask(false, fmt::format("{} on rank {}: (1)", name, rank),
                      left.shape().text());
        numbers.push_back(left.at(0));
    }
    return numbers;
}

/// All ranks have left the number; else `cause` says why not.
template <typename Cause>
void ask_numbers(Judge& judge, const std::string& what, const std::vector<double>& left,
                 double expected, Cause cause) {
    for (std::size_t rank = 0; rank < left.size(); ++rank)
        if (!is_near(left[rank], expected))
            judge.ask(false, fmt::format("{}: rank {}: {:.12g}", what, rank, expected),
                      fmt::format("{:.12g}", left[rank]), cause());
    judge.ask(true, fmt::format("{}: {:.6g}", what, expected),
              fmt::format("{:.6g} on all ranks", left.front()));
}

/// Returns this rank's part of a parameter, once it has the part's shape.
const HostTensor& part_left(Judge& judge, const MeshCase& of, const TaskResult& result,
                            int rank, const std::string& name, const Part& part) {
    const HostTensor& left = judge.left(result.ranks.at(rank), "weight " + name);
    if (left.shape() == part.shape && left.dtype() == of.job.dtype) return left;
    throw Judge::No{Mark::failed,
                    fmt::format("{}: rank {}: its part of {}: {} x {}", of.name(), rank,
                                name, part.shape.text(), name_of(of.job.dtype)),
                    fmt::format("{} x {}", left.shape().text(), name_of(left.dtype())),
                    left.shape() == part.whole
                        ? "that is all of it: tensor_parallel() of the kit shares it out "
                          "along tp"
                        : ""};
}

Parts parts_left(Judge& judge, const MeshCase& of, const Layout& layout,
                 const TaskResult& result) {
    Parts parts(layout.parts.size());
    for (int rank = 0; rank < of.ranks(); ++rank)
        for (const auto& [name, part] : layout.parts.at(rank))
            parts.at(rank).emplace(name, part_left(judge, of, result, rank, name, part));
    return parts;
}

void judge_loss_of(Judge& judge, const MeshCase& of) {
    const TaskResult& result = run(judge, of);
    const OneDevice& alone = alone_of(of.job);
    const std::vector<double> left = numbers_left(judge, result, "loss 0");
    ask_numbers(judge, of.name() + ": the loss", left, alone.losses.front(),
                [&] { return loss_cause(of, alone, left); });
}

/// Why a step's loss is wrong, when all was right up to the last update.
std::string loss_cause_after(const MeshCase& of, int step, double loss) {
    GivenJob without = of.job;
    without.most_norm = 0;
    if (step == 1 && is_near(loss, alone_of(without).losses.at(step)))
        return "it is what comes without clipping: the gradients of all that a rank "
               "updates are to be scaled";
    if (step == 1)
        return "the loss and the norm before the first update are right, so the update "
               "is not: is all that a rank updates scaled by the factor of the whole "
               "norm, and changed by one step of the optimizer?";
    return "the first update was right, and this one was not: does the optimizer, with "
           "its state, stay from step to step?";
}

constexpr const char* kGradientAgain =
    "the loss of this step is right, so the weights are, and its gradient is not: does "
    "it begin with zeros in each step (zero_gradients)?";

void judge_weights(Judge& judge, const MeshCase& of, const TaskResult& result) {
    const OneDevice& alone = alone_of(of.job);
    const Layout layout = layout_of(of);
    const Parts left = parts_left(judge, of, layout, result);
    for (int rank = 0; rank < of.ranks(); ++rank)
        for (const auto& [name, part] : layout.parts.at(rank)) {
            judge.close(fmt::format("{}: rank {}: {} in the end", of.name(), rank, name),
                        left.at(rank).at(name), shard_of(alone.weights.at(name), part),
                        1e-9);
            for (int other = 0; other < rank; ++other)
                if (layout.parts.at(other).at(name) == part)
                    judge.same(fmt::format("{}: rank {}: {} as on rank {}", of.name(),
                                           rank, name, other),
                               left.at(rank).at(name), left.at(other).at(name));
        }
    judge.ask(true, of.name() + ": weights in the end", "as on one device");
}

/// A run with right values, and the library's with the same sizes.
struct Compared {
    const RunReport& own;
    RunReport library;
};

Compared run_wide(const Judge& judge) {
    needs(judge, "a11.1-gradients", judge_gradients);
    const MeshCase of = wide_case(judge);
    Judge asking = judge;  // what is asked of values is not told where figures are asked
    judge_weights(asking, of, run(asking, of));
    return {run(asking, of).report, run_library(of, examination_cluster())};
}

void ask_at_most(Judge& judge, const std::string& what, std::int64_t measured,
                 std::int64_t usual, const std::string& unit, const std::string& said) {
    const std::int64_t most = usual + usual / 8;
    judge.ask(measured <= most, fmt::format("{}: at most {} {}", what, most, unit),
              fmt::format("{} {}", measured, unit), measured <= most ? "" : said);
}

}  // namespace

MeshCase small_case(const Judge& judge, const Axes& axes, int sequences) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{} of {}", what, text_of(axes)), low, high);
    };
    MeshCase of{axes, {}};
    GptSizes& sizes = of.job.sizes;
    sizes.vocabulary = 2 * draw("vocabulary", 6, 9) + 1;  // no number of ranks divides it
    sizes.context = 12 * draw("context", 1, 2);
    sizes.layers = draw("layers", 2, 3);
    sizes.block.heads = 4 * draw("heads", 1, 2);
    sizes.block.hidden = 8 * draw("hidden", 2, 3);
    of.job.sequences = sequences;
    of.job.seed = draw("seed", 1, 1 << 30);
    return of;
}

void judge_right_on(Judge& judge, const MeshCase& of) {
    const TaskResult& result = run(judge, of);
    const OneDevice& alone = alone_of(of.job);
    const Layout layout = layout_of(of);
    Parts stepped = parts_left(judge, of, layout, result);
    for (int rank = 0; rank < of.ranks(); ++rank)
        for (auto& [name, values] : stepped.at(rank)) {
            const HostTensor before =
                shard_of(alone.before.at(name), layout.parts.at(rank).at(name));
            for (std::int64_t i = 0; i < values.elements(); ++i)
                values.set(i, (before.at(i) - values.at(i)) / kSgd.learning_rate);
        }
    const std::string cause = gradient_cause(of, alone, layout, stepped);
    judge.ask(cause.empty(),
              of.name() + ": weights that are one device's, less its gradient",
              cause.empty() ? "they are" : "they are not", cause);
}

void judge_loss(Judge& judge) {
    for (const MeshCase& of : one_step_cases(judge))
        judge_loss_of(judge, of);
}

void judge_gradients(Judge& judge) {
    needs(judge, "a11.1-loss", [](Judge& asking) {
        for (const MeshCase& of : one_step_cases(asking))
            run(asking, of);
    });
    for (const MeshCase& of : one_step_cases(judge))
        judge_right_on(judge, of);
}

void judge_norm(Judge& judge) {
    needs(judge, "a11.1-gradients", judge_gradients);
    for (const MeshCase& of : clipped_cases(judge)) {
        const TaskResult& result = run(judge, of);
        const OneDevice& alone = alone_of(of.job);
        const std::vector<double> left = numbers_left(judge, result, "squares 0");
        ask_numbers(judge, of.name() + ": the sum of squares", left,
                    alone.squares.front(),
                    [&] { return norm_cause(of, alone, layout_of(of), left); });
    }
}

void judge_steps(Judge& judge) {
    needs(judge, "a11.1-loss", judge_loss);
    needs(judge, "a11.1-norm", judge_norm);
    for (const MeshCase& of : clipped_cases(judge)) {
        const TaskResult& result = run(judge, of);
        const OneDevice& alone = alone_of(of.job);
        for (int step = 0; step < of.job.steps; ++step) {
            const auto losses = numbers_left(judge, result, fmt::format("loss {}", step));
            ask_numbers(judge, fmt::format("{}: the loss of step {}", of.name(), step),
                        losses, alone.losses.at(step),
                        [&] { return loss_cause_after(of, step, losses.front()); });
            ask_numbers(judge, fmt::format("{}: the squares of step {}", of.name(), step),
                        numbers_left(judge, result, fmt::format("squares {}", step)),
                        alone.squares.at(step),
                        [] { return std::string(kGradientAgain); });
        }
        judge_weights(judge, of, result);
    }
}

void judge_share(Judge& judge) {
    const Compared both = run_wide(judge);
    const std::string name = text_of(wide_case(judge).axes);
    for (std::size_t rank = 0; rank < both.own.ranks.size(); ++rank) {
        const RankReport& own = both.own.ranks[rank];
        const RankReport& usual = both.library.ranks[rank];
        const auto what = [&](const char* of) {
            return fmt::format("{}: rank {}: {}", name, rank, of);
        };
        ask_at_most(judge, what("computes"), own.flops, usual.flops, "flops",
                    "it computes what is another rank's share: sequences along dp, "
                    "tokens along cp, or columns and heads along tp");
        ask_at_most(judge, what("sends"), own.bytes_sent(), usual.bytes_sent(), "bytes",
                    "beside what the kit's layers send, a gradient goes once over the "
                    "plane of dp and cp, and nothing of it along tp");
    }
}

std::int64_t peaks_of(const RunReport& report, MemoryCategory category) {
    std::int64_t sum = 0;
    for (const RankReport& rank : report.ranks)
        sum += rank.memory.peak_of(category);
    return sum;
}

void judge_state(Judge& judge) {
    const Compared both = run_wide(judge);
    const std::int64_t own = peaks_of(both.own, MemoryCategory::optimizer);
    const std::int64_t usual = peaks_of(both.library, MemoryCategory::optimizer);
    ask_at_most(judge,
                text_of(wide_case(judge).axes) + ": the optimizer's state, on all ranks",
                own, usual, "bytes",
                fmt::format("that is {:.1f} times one copy: ranks along dp and cp have "
                            "the same values, and each need update a share of them only, "
                            "if the others then get its new values",
                            static_cast<double>(own) / static_cast<double>(usual)));
}

}  // namespace lockstep::lessons::mesh
