#include "lessons/assignments/mesh/grading/training.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::lessons::mesh {

GivenJob small_case(const Judge& judge, const Axes& axes, int sequences) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{} of {}", what, text_of(axes)), low, high);
    };
    GivenJob drawn{axes};
    GptSizes& sizes = drawn.sizes;
    sizes.vocabulary = 2 * draw("vocabulary", 6, 9) + 1;  // no number of ranks divides it
    sizes.context = 12 * draw("context", 1, 2);
    sizes.layers = draw("layers", 2, 3);
    sizes.block.heads = 4 * draw("heads", 1, 2);
    sizes.block.hidden = 8 * draw("hidden", 2, 3);
    drawn.sequences = sequences;
    drawn.seed = draw("seed", 1, 1 << 30);
    drawn.by_sgd = true;
    return drawn;
}

namespace {

// The grader's cases, drawn again for each grading.

Axes in_drawn_order(const Judge& judge, Axes axes) {
    std::ranges::sort(axes, {}, &Mesh::Axis::name);
    for (std::int64_t next = judge.draw("order of " + text_of(axes), 0, 5); next > 0;
         --next)
        std::ranges::next_permutation(axes, {}, &Mesh::Axis::name);
    return axes;
}

/// Cases: one rank; each axis alone; tp and dp, with tp as the slowest axis; another
/// mesh; all axes, with tp as the fastest, so that neighbours along dp or cp are not
/// consecutive ranks.
std::vector<GivenJob> all_cases(const Judge& judge) {
    const std::vector<Axes> others{{{"dp", 1}, {"cp", 3}, {"tp", 2}},
                                   {{"dp", 3}, {"cp", 1}, {"tp", 2}},
                                   {{"dp", 3}, {"cp", 2}, {"tp", 1}},
                                   {{"dp", 1}, {"cp", 2}, {"tp", 4}}};
    const Axes other = others.at(judge.draw("another mesh", 0, std::ssize(others) - 1));
    Axes usual{{"dp", 2}, {"cp", 2}, {"tp", 2}};
    if (judge.draw("order of the usual mesh", 0, 1) == 1) std::swap(usual[0], usual[1]);
    std::vector<GivenJob> all{small_case(judge, {{"dp", 1}, {"cp", 1}, {"tp", 1}}, 2),
                              small_case(judge, {{"dp", 1}, {"cp", 1}, {"tp", 2}}, 2),
                              small_case(judge, {{"tp", 1}, {"cp", 1}, {"dp", 3}}, 4),
                              small_case(judge, {{"dp", 1}, {"cp", 2}, {"tp", 1}}, 1),
                              small_case(judge, {{"tp", 2}, {"cp", 1}, {"dp", 2}}, 3),
                              small_case(judge, in_drawn_order(judge, other), 4),
                              small_case(judge, usual, 3)};
    GptSizes &two_axes = all[4].sizes, &all_axes = all[6].sizes;
    two_axes.tied = true;
    all_axes.tied = judge.draw("tied", 0, 1) == 1;
    two_axes.block.kv_heads = all_axes.block.kv_heads = 2;
    return all;
}

/// Cases with three steps of AdamW and clipped gradients.
std::vector<GivenJob> clipped_cases(const Judge& judge) {
    const std::vector<GivenJob> all = all_cases(judge);
    std::vector<GivenJob> some{all[1], all[2], all.back()};
    for (GivenJob& drawn : some) {
        drawn.steps = 3;
        drawn.by_sgd = false;
    }
    return some;
}

/// One step of AdamW. The layers are so wide that weights outside of layers, and messages
/// for the loss, are only a small part of the costs.
GivenJob wide_case(const Judge& judge) {
    GivenJob drawn =
        small_case(judge, in_drawn_order(judge, {{"dp", 2}, {"cp", 2}, {"tp", 2}}), 4);
    GptSizes& sizes = drawn.sizes;
    sizes.vocabulary = judge.draw("wide vocabulary", 60, 68);
    sizes.context = 4 * judge.draw("wide context", 8, 9);
    sizes.block.hidden = 8 * judge.draw("wide", 8, 9);
    drawn.by_sgd = false;
    return drawn;
}

TaskRun given(const GivenJob& job) {
    TaskRun run{
        fmt::format("{}, {} of {} sequences, h {}, {} heads of keys{}", text_of(job.axes),
                    job.steps == 1 ? "a step" : "clipped steps", job.sequences,
                    job.sizes.block.hidden, job.sizes.block.attention().key_heads(),
                    job.sizes.tied ? ", tied" : ""),
        {}};
    run.ranks.assign(static_cast<std::size_t>(MeshShape(job.axes).ranks()),
                     {"train", {}, numbers_of(job)});
    return run;
}

// Questions about a run.

/// Judges values. If they are wrong and no known mistake explains them, the report has
/// the sentence `otherwise`.
void ask_values(Judge& judge, const TaskRun& run, const AskedValues& asked,
                const char* otherwise) {
    try {
        judge.as_right(run, asked);
    } catch (Judge::No& no) {
        if (no.said.empty()) no.said = otherwise;
        throw;
    }
}

/// Judges a tensor of one number that must be the same on all ranks.
void ask_number(Judge& judge, const TaskRun& run, const std::string& name,
                const char* otherwise) {
    for (const RankResult& rank : judge.run(run).ranks)
        Judge::form(fmt::format("{}: {}", run.name, name), judge.left(rank, name), {1});
    ask_values(judge, run, {{name}}, otherwise);
}

/// Returns the names of the weights that a run outputs.
std::vector<std::string> weights_of(const Judge& judge, const TaskRun& run) {
    std::vector<std::string> names;
    for (const auto& [name, values] : judge.right(run).ranks[0].tensors)
        if (name.starts_with("weight ")) names.push_back(name);
    return names;
}

/// Judges the weights at the end.
void ask_weights(Judge& judge, const TaskRun& run, double bound = 1e-9) {
    AskedValues asked{weights_of(judge, run)};
    asked.bound = bound;
    ask_values(judge, run, asked,
               "a rank's parameters must change by the whole gradient, summed once over "
               "the plane of dp and cp; new values that other ranks compute must be "
               "gathered from them");
}

/// Judges whether ranks with the same part of a weight end with the same bits.
void ask_same_bits(Judge& judge, const TaskRun& run) {
    const auto& left = judge.run(run).ranks;
    const auto& right = judge.right(run).ranks;
    for (const std::string& name : weights_of(judge, run))
        for (std::size_t rank = 0; rank < left.size(); ++rank) {
            const auto has_it = [&](const RankResult& other) {
                return Judge::are_close(other.tensors.at(name),
                                        right[rank].tensors.at(name), 0);
            };
            const auto first = static_cast<std::size_t>(
                std::ranges::find_if(right, has_it) - right.begin());
            judge.same(
                fmt::format("{}: rank {}: {} as on rank {}", run.name, rank, name, first),
                left[rank].tensors.at(name), left[first].tensors.at(name));
        }
}

/// Judges whether a rank computes only its tokens, heads and columns. It may compute the
/// sequences of other ranks along dp: a11.1-share judges costs exactly.
void ask_work_of_rank(Judge& judge, const GivenJob& drawn) {
    const int fewest = drawn.sequences / MeshShape(drawn.axes).size("dp");
    const int more = 140 * drawn.sequences / fewest - 100;
    judge.figures_as_right(
        given(drawn), judge.exercise(),
        {{kFlops,
          {100, more},
          "it computes what the mesh gives to other ranks: their tokens (cp), or their "
          "columns and heads (tp)"}});
}

/// Judges whether ranks tell each other of their gradients.
void ask_messages(Judge& judge, const GivenJob& drawn) {
    judge.figures_as_right(
        given(drawn), judge.exercise(),
        {{kSent,
          {50, kAnyMore},
          "",
          "ranks of a mesh need messages: layers along tp and cp, and gradients along "
          "dp and cp"}});
}

/// Returns a wide run whose weights are right.
TaskRun right_wide_run(Judge& judge) {
    TaskRun run = given(wide_case(judge));
    ask_weights(judge, run);
    return run;
}

/// Allows an eighth more than the reference's cost.
constexpr Allowed kEighth{100, 12};

}  // namespace

void judge_gradients_of(Judge& judge, const GivenJob& drawn) {
    ask_weights(judge, given(drawn), 1e-11);
}

void judge_loss(Judge& judge) {
    for (const GivenJob& drawn : all_cases(judge)) {
        ask_number(judge, given(drawn), "loss 0",
                   "check what each rank reads: its own sequences along dp "
                   "(mesh.coordinate(\"dp\"), not its rank in the world); and of each "
                   "sequence, also of the targets, the tokens that the kit gives it "
                   "(dealt_rows(sequence, kit.tokens))");
        ask_work_of_rank(judge, drawn);
    }
}

void judge_gradients(Judge& judge) {
    for (const GivenJob& drawn : all_cases(judge)) {
        judge_gradients_of(judge, drawn);
        ask_work_of_rank(judge, drawn);
        ask_messages(judge, drawn);
    }
}

void judge_norm(Judge& judge) {
    for (const GivenJob& drawn : clipped_cases(judge))
        ask_number(judge, given(drawn), "squares 0",
                   "compute the norm once in each step, from complete gradients, and "
                   "count each number of the model once");
}

void judge_steps(Judge& judge) {
    for (const GivenJob& drawn : clipped_cases(judge)) {
        const TaskRun run = given(drawn);
        for (int step = 0; step < drawn.steps; ++step) {
            ask_number(
                judge, run, fmt::format("loss {}", step),
                "the earlier losses and norms are right, so an update is wrong, or this "
                "step reads stale weights, of the step before: does each rank scale "
                "everything that it updates by the factor of the whole norm? does one "
                "optimizer, with its state, take all steps? are new values gathered "
                "before the next forward?");
            ask_number(judge, run, fmt::format("squares {}", step),
                       "the loss of this step is right, so the weights are right and the "
                       "gradient is wrong: does it begin with zeros in each step "
                       "(zero_gradients)?");
        }
        ask_weights(judge, run);
        ask_same_bits(judge, run);
    }
}

void judge_share(Judge& judge) {
    judge.figures_as_right(
        right_wide_run(judge), "a11.1",
        {{kFlops, kEighth,
          "it computes another rank's share: that rank's sequences (dp), tokens (cp), or "
          "columns and heads (tp)"},
         {kSent, kEighth,
          "in addition to the messages of the kit's layers, send each gradient once over "
          "the plane of dp and cp, and not along tp"}});
}

std::int64_t sum_of(const RunReport& report, const RankFigure& figure) {
    std::int64_t sum = 0;
    for (const RankReport& rank : report.ranks)
        sum += figure.value(rank);
    return sum;
}

void judge_state(Judge& judge) {
    const TaskRun run = right_wide_run(judge);
    judge.figure_as_right(
        run, run.name + ": the optimizer's state, on all ranks", kState.unit,
        [](const RunReport& report) { return sum_of(report, kState); }, kEighth,
        "that is more than one copy: ranks along dp and cp hold the same values, so each "
        "should update only a share of them, and the others should get its new values");
}

}  // namespace lockstep::lessons::mesh
