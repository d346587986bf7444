#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "lessons/05_pipeline_1f1b/stack.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/published_sizes.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/pipeline.hpp"
#include "src/pipeline/pipeline_gpt.hpp"

namespace lockstep::lessons {

namespace {

/// The weights that a pass of one part reads.
struct WeightsRead {
    int version = 0;  ///< counted in updates of the part
    /// If `ahead` is not 0, the weights are an estimate of the version that is `ahead`
    /// updates later (earlier if `ahead` is negative): `version` plus `ahead` times the
    /// average of the steps up to `version`.
    int ahead = 0;

    bool operator==(const WeightsRead&) const = default;
};

/// The rule by which a pipeline of `stages` stages reads weights, as its paper states it.
/// The lesson compares the schedules with these formulas.
struct WeightRule {
    std::string schedule;  ///< its name, as in make_schedule
    int stages = 1;
    int per_update = 1;  ///< micro-batches whose gradients an update sums up
    /// By how many updates each stage's gradients are late. Replaces `schedule` if set.
    std::vector<int> late{};

    /// Return the weights that a micro-batch reads on a stage. Both are numbered from 0.
    WeightsRead forward(int stage, int micro_batch) const;
    WeightsRead backward(int stage, int micro_batch) const;
    /// Returns the newest version at the time of the micro-batch's backward. The
    /// micro-batch's gradient changes this version.
    int newest(int micro_batch) const { return micro_batch / per_update; }
};

WeightsRead WeightRule::forward(int stage, int micro_batch) const {
    if (!late.empty()) return {std::max(micro_batch - late[stage], 0)};
    if (schedule == "1f1b") return {newest(micro_batch)};
    // W(t + 1) = W(t) - f'(W(t - 1)): Narayanan et al. 2021, 2006.09503, section 3.1.
    if (schedule == "pipedream-2bw") return {std::max(newest(micro_batch) - 1, 0)};
    // Harlap et al. 2018, 1806.03377, section 3.3; its stages count from 1.
    if (schedule == "pipedream-vertical")
        return {std::max(micro_batch - (stages - 1), 0)};
    const int newest_there = std::max(micro_batch - (stages - 1 - stage), 0);
    // Chen et al. 2018, 1809.02839, section 4: forward predicts what backward will read.
    if (schedule == "spectrain")
        return {newest_there, newest(micro_batch) - newest_there};
    return {newest_there};
}

WeightsRead WeightRule::backward(int stage, int micro_batch) const {
    const int now = newest(micro_batch);
    if (schedule == "unstashed" || schedule == "spectrain") return {now};
    const WeightsRead read = forward(stage, micro_batch);
    // Yang et al. 2021, 1910.05124, section 3.2: an estimate of what forward read.
    if (schedule == "pipemare") return {now, read.version - now};
    return read;
}

/// A run of the GPT, and what the tables show of the run.
struct Trained {
    std::string name;  ///< its name on the page
    WeightRule rule;
    std::vector<double> losses;  ///< by micro-batch
    Picoseconds time = 0;
};

GptSizes sizes_of(const LessonOptions& options, int stages, std::int64_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = vocabulary;
    sizes.context = options.values.integer("context");
    sizes.layers = options.values.integer("layers", stages);
    sizes.block.heads = options.values.integer("heads");
    sizes.block.hidden = options.values.integer("hidden", 16 * sizes.block.heads);
    require_shared_out("hidden", sizes.block.hidden, sizes.block.heads, "the heads");
    require(sizes.layer_count() >= stages,
            "--set layers={}: with embeddings, norm and head these are {} layers, too "
            "few for {} stages",
            sizes.layers, sizes.layer_count(), stages);
    return sizes;
}

/// The state that the lesson's experiments share.
struct PipedreamLesson final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    PipedreamLesson(const LessonOptions& options, Record& record)
        : Lesson(options, record), ranks(options.ranks.value_or(4)) {
        per_update = static_cast<int>(
            options.values.integer("micro_batches", std::int64_t{2} * ranks));
        require(per_update >= ranks,
                "--set micro_batches={}: PipeDream-2BW needs at least one micro-batch "
                "per stage in each update, here at least {}",
                per_update, ranks);
        const auto made =
            make_gpt_task(options, per_update, [&](std::int64_t vocabulary) {
                return sizes_of(options, ranks, vocabulary);
            });
        const auto changed = std::make_shared<GptTask>(*made);
        changed->momentum = options.values.number("momentum");
        task = changed;
        note("micro_batches", per_update);
        note_task(*this, *task, {"layers", "hidden"});
    }

    WeightRule rule(const std::string& schedule, int of_update = 1) const {
        return {schedule, ranks, of_update};
    }
    int micro_batches() const { return task->steps * per_update; }
    int half_of_them() const { return std::max(1, task->steps / 2) * per_update; }

    int ranks;
    int per_update;  ///< micro-batches of a step, in schedules that have steps
    std::shared_ptr<const GptTask> task;
    std::vector<Trained> trained;
};

/// Returns whether a schedule's micro-batches read two versions of the weights on
/// purpose. The full check would stop such a schedule.
bool mixes_versions(const std::string& schedule) {
    return schedule == "unstashed" || schedule == "spectrain" || schedule == "pipemare";
}

/// Raises `widest` to `here` if `here` is larger. NaN counts as the largest.
void widen(double& widest, double here) {
    if (!std::isnan(widest) && !(here <= widest)) widest = here;
}

/// A model in parts, one for each stage, and how it is trained by SGD.
struct PartedTraining {
    int parts = 0;
    std::function<std::unique_ptr<Module>(Device& device, int part)> make_part;
    /// Makes `count` micro-batches. Each has the weight `weight` in an update's mean.
    std::function<std::vector<MicroBatch>(Device& device, int count, double weight)>
        make_batches;
    PartBoundary boundary;
    Loss loss = mean_squared_error;
    SgdOptions optimizer;

    /// A part's weights are estimated from a decaying average of its steps. Returns the
    /// decay: D^(1/d) for an estimate d updates ahead or behind, as in PipeMare (Yang et
    /// al. 2021, 1910.05124, section 3.2), with D = 0.1. See Pipeline::estimate_by.
    double decay(int part) const;
};

/// Returns the training of lesson 5's stack, with a part of two layers on each stage.
PartedTraining stack_training(const StackOptions& options, int stages) {
    PartedTraining training;
    training.parts = stages;
    training.make_part = [=](Device& device, int part) {
        return stack_part({device, options.dtype, options.seed, ""}, part, kStackLayers);
    };
    training.make_batches = [=](Device& device, int count, double weight) {
        return stack_batches(device, options, count, weight);
    };
    training.boundary = stack_boundary(options.dtype);
    training.optimizer = {0.5, 0, 0};
    return training;
}

double PartedTraining::decay(int part) const {
    constexpr double kKept = 0.1;
    const int updates = parts - 1 - part;
    return updates > 0 ? std::pow(kKept, 1.0 / updates) : 0;
}

/// Returns the schedule that the rule is for, with `micro_batches` micro-batches in all.
Schedule schedule_of(const WeightRule& rule, int micro_batches) {
    return make_schedule(rule.schedule, {rule.stages, micro_batches, 1, rule.per_update});
}

/// Keeps the loss of a micro-batch without its weight in the update.
void keep_loss(Rank& rank, const Tensor& weighted, double weight) {
    rank.keep_value("loss", rank.device().peek(weighted).at(0) / weight);
}

void keep_values(Rank& rank, Module& part) {
    keep_parameters(rank, part.parameters(), "", &Parameter::value);
}

/// Trains all micro-batches in one run, by the schedule of the rule. Each rank keeps its
/// part's parameters after the last update. The last rank also keeps the loss of each
/// micro-batch, in the series "loss".
// lesson: endless-program
RunReport train_endless(Cluster& cluster, const WeightRule& rule,
                        const PartedTraining& training, int micro_batches,
                        const Advance& advance = {}) {
    const PipelinePlan plan(schedule_of(rule, micro_batches));
    const double weight = 1.0 / rule.per_update;
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto part = training.make_part(device, rank.index());
        const auto optimizer =
            make_optimizer<Sgd>(part->parameters(), training.optimizer);
        Pipeline pipeline(device, rank.world(), plan, {part.get()}, training.boundary);
        pipeline.update_by({optimizer.get()});
        pipeline.estimate_by(training.decay(rank.index()));
        pipeline.keep_losses();
        pipeline.after_update([&](int /*chunk*/, int version) {
            if (advance && rank.index() == 0) advance(version);
        });
        keep_parameters(rank, part->parameters(), "initial/", &Parameter::value);
        const auto batches = training.make_batches(device, micro_batches, weight);
        pipeline.run(training.loss, batches);
        for (const Tensor& loss : pipeline.losses())
            if (loss) keep_loss(rank, loss, weight);
        keep_values(rank, *part);
    });
}
// lesson: end

/// A part, with all versions of its weights so far.
class VersionedPart {
  public:
    VersionedPart(Device& device, std::unique_ptr<Module> part, const SgdOptions& options,
                  double decay)
        : device_(device),
          part_(std::move(part)),
          optimizer_(make_optimizer<Sgd>(part_->parameters(), options)),
          decay_(decay) {
        versions_.push_back({copies(), {}});
        zero_gradients(*part_);
    }

    Module& module() { return *part_; }

    /// Runs `pass` with the weights that `read` names, in place of the newest weights.
    template <typename Pass>
    Tensor run_with(const WeightsRead& read, Pass&& pass) {
        std::vector<Tensor> weights = weights_of(read);
        exchange(weights);
        Tensor result = pass(*part_);
        exchange(weights);
        return result;
    }

    double gradient_norm() const {
        double squares = 0;
        for (const Parameter* parameter : part_->parameters()) {
            const HostTensor gradient = device_.peek(parameter->gradient);
            for (std::int64_t i = 0; i < gradient.elements(); ++i)
                squares += gradient.at(i) * gradient.at(i);
        }
        return std::sqrt(squares);
    }

    /// Steps from the newest weights to a new version.
    void update() {
        optimizer_->step();
        zero_gradients(*part_);
        versions_.push_back({copies(), {}});
        const Version& before = versions_[versions_.size() - 2];
        Version& now = versions_.back();
        // average = decay average + (1 - decay) (now - before)
        for (std::size_t i = 0; i < now.weights.size(); ++i) {
            const Tensor average =
                device_.empty(now.weights[i].shape(), now.weights[i].dtype());
            if (before.average.empty())
                device_.fill(average, 0);
            else
                device_.copy(average, before.average[i]);
            device_.scale(average, decay_);
            device_.add(average, now.weights[i], 1 - decay_);
            device_.add(average, before.weights[i], decay_ - 1);
            now.average.push_back(average);
        }
    }

  private:
    struct Version {
        std::vector<Tensor> weights;
        std::vector<Tensor> average;  ///< of earlier steps; empty for version 0
    };

    std::vector<Tensor> copies() {
        std::vector<Tensor> made;
        for (const Parameter* parameter : part_->parameters()) {
            made.push_back(device_.empty(parameter->shape(), parameter->dtype()));
            device_.copy(made.back(), parameter->value);
        }
        return made;
    }

    std::vector<Tensor> weights_of(const WeightsRead& read) {
        const Version& version = versions_.at(static_cast<std::size_t>(read.version));
        if (read.ahead == 0 || version.average.empty()) return version.weights;
        std::vector<Tensor> made;
        for (std::size_t i = 0; i < version.weights.size(); ++i) {
            const Tensor& weight = version.weights[i];
            made.push_back(device_.empty(weight.shape(), weight.dtype()));
            device_.copy(made.back(), weight);
            device_.add(made.back(), version.average[i], read.ahead);
        }
        return made;
    }

    void exchange(std::vector<Tensor>& weights) {
        std::size_t i = 0;
        for (Parameter* parameter : part_->parameters())
            std::swap(parameter->value, weights[i++]);
    }

    Device& device_;
    std::unique_ptr<Module> part_;
    std::unique_ptr<Optimizer> optimizer_;
    double decay_;
    std::vector<Version> versions_;
};

// lesson: versions-alone
/// Runs micro-batch i forward and backward through all parts. Each part reads the weights
/// that the rule names. Returns the loss.
Tensor pass_by_rule(Device& device, std::vector<VersionedPart>& parts,
                    const WeightRule& rule, const Loss& loss, const MicroBatch& batch,
                    int i) {
    std::vector<Saved> saved(parts.size());
    Tensor y = batch.input;
    for (int s = 0; s < rule.stages; ++s)
        y = parts[s].run_with(rule.forward(s, i),
                              [&](Module& part) { return part.forward(y, saved[s]); });
    const LossResult result = loss(device, y, batch.target, batch.weight);
    Tensor dy = result.gradient;
    for (int s = rule.stages; s-- > 0;)
        dy = parts[s].run_with(rule.backward(s, i),
                               [&](Module& part) { return part.backward(dy, saved[s]); });
    return result.loss;
}
// lesson: end

/// Trains all parts on one device, which keeps every version of the weights and reads the
/// versions that the rule names. Keeps the parameters and losses as train_endless() does,
/// and the norm of each part's gradient after the first micro-batch in the series "norm".
RunReport train_alone(Cluster& cluster, const WeightRule& rule,
                      const PartedTraining& training, int micro_batches) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        std::vector<VersionedPart> parts;
        parts.reserve(static_cast<std::size_t>(rule.stages));
        for (int s = 0; s < rule.stages; ++s)
            parts.emplace_back(device, training.make_part(device, s), training.optimizer,
                               training.decay(s));
        parts.front().module().set_input_gradient(false);
        const double weight = 1.0 / rule.per_update;
        const auto batches = training.make_batches(device, micro_batches, weight);
        for (int i = 0; i < micro_batches; ++i) {
            keep_loss(rank,
                      pass_by_rule(device, parts, rule, training.loss, batches[i], i),
                      weight);
            for (VersionedPart& part : parts) {
                if (i == 0) rank.keep_value("norm", part.gradient_norm());
                if ((i + 1) % rule.per_update == 0) part.update();
            }
        }
        for (VersionedPart& part : parts)
            keep_values(rank, part.module());
    });
}

/// Trains the stack. Forward and each half of backward take one second each.
RunReport run_stack(PipedreamLesson& lesson, const WeightRule& rule, int micro_batches,
                    bool trace = false) {
    LessonOptions unit = mixes_versions(rule.schedule)
                             ? lesson.options().without_full_check()
                             : lesson.options();
    if (unit.has_virtual_time()) unit.cluster = "unit";
    const PartedTraining training =
        stack_training({lesson.dtype(), lesson.options().seed}, lesson.ranks);
    RunReport report = train_endless(*make_cluster(unit, lesson.ranks, trace), rule,
                                     training, micro_batches);
    if (trace) lesson.record_run("stack_" + rule.schedule, report);
    return report;
}

constexpr double kBoth = 3;  ///< seconds of a forward and a backward, in cluster `unit`

/// Returns the speedup of a pipeline that does not flush after every m micro-batches.
double gain_without_flush(int p, int m) {
    return static_cast<double>(m + p - 1) / m;
}

/// Times the schedule with the durations of the cluster `unit`.
Timing timed(const Schedule& schedule) {
    return time_schedule(schedule, {{}});
}

PeriodTiming period_of(const WeightRule& rule) {
    if (rule.schedule == "1f1b")
        return time_period(schedule_of(rule, 2 * rule.per_update), {{}});
    const PipelineShape shape{rule.stages, rule.per_update * rule.stages, 1,
                              rule.per_update};
    return time_period(make_endless_schedule(rule.schedule, shape).value(), {{}});
}

/// Measures flushes. A flush costs (p - 1)(t_f + t_b).
void flush(PipedreamLesson& lesson, Findings& found) {
    const int p = lesson.ranks, m = lesson.per_update;
    constexpr int kSteps = 2;
    const WeightRule steps = lesson.rule("1f1b", m);
    found.give({"numbers"_is = lesson.has_numbers(),
                "virtual_time"_is = lesson.has_virtual_time(), "p"_is = p,
                "p_less_1"_is = p - 1, "m"_is = m, "rounds"_is = m + p - 1,
                "hundred_steps"_is = 100 * m,
                "flush_part"_is = Figure::part(p - 1, m + p - 1),
                "flush_once"_is = Figure::part(p - 1, 100 * m + p - 1)});
    found.picture("flush_picture", schedule_of(steps, kSteps * m),
                  timed(schedule_of(steps, kSteps * m)));
    lesson.makespan_equals(found, "flush_clock",
                           run_stack(lesson, steps, kSteps * m, /*trace=*/true),
                           kSteps * (m + p - 1) * kBoth);
    const PeriodTiming period = period_of(steps);
    found.equal("flush_bubble", Figure::seconds(static_cast<double>(period.bubble())),
                (p - 1) * kBoth);
}

/// Measures training without a flush. In the long run, no device is idle.
void endless(PipedreamLesson& lesson, Findings& found) {
    const int p = lesson.ranks, m = lesson.per_update;
    const WeightRule one = lesson.rule("pipedream");
    found.give({"endless_part"_is = Figure::part(p - 1, m + p - 1),
                "no_part"_is = Figure::percent(0),
                "faster"_is = Figure::decimals(gain_without_flush(p, m), 3)});
    found.picture("endless_picture", schedule_of(one, m), timed(schedule_of(one, m)));
    lesson.makespan_equals(found, "endless_clock",
                           run_stack(lesson, one, m, /*trace=*/true),
                           (m + p - 1) * kBoth);
    double widest = 0;
    for (const int steps : {1, 10, 100}) {
        const int all = steps * m;
        const double flushed =
            timed(schedule_of(lesson.rule("1f1b", m), all)).bubble_over_total();
        const double not_flushed = timed(schedule_of(one, all)).bubble_over_total();
        found.row("lengths",
                  {"length"_is = all, "flushed"_is = Figure::percent(100 * flushed, 1),
                   "not_flushed"_is = Figure::percent(100 * not_flushed, 1)});
        widest = std::max({widest, std::abs(flushed - (p - 1.0) / (m + p - 1)),
                           std::abs(not_flushed - (p - 1.0) / (all + p - 1))});
    }
    found.at_most("lengths_off", widest, 1e-12);
    const PeriodTiming period = period_of(one);
    found.equal("period_length", Figure::seconds(static_cast<double>(period.length)),
                kBoth);
    found.equal("period_bubble", Figure::seconds(static_cast<double>(period.bubble())),
                0);
}

/// Writes one value for each stage: "0 1 2 3".
template <typename Value>
std::string by_stage(int stages, Value&& value) {
    std::string text;
    for (int stage = 0; stage < stages; ++stage)
        text += fmt::format("{}{}", stage == 0 ? "" : " ", value(stage));
    return text;
}

/// Counts the uses of weights in which the schedule differs from the rule.
int uses_off(const WeightRule& rule, int micro_batches) {
    const auto uses = weight_uses(schedule_of(rule, micro_batches));
    int off = 0;
    for (int stage = 0; stage < rule.stages; ++stage)
        for (int i = 0; i < micro_batches; ++i) {
            const WeightUse& use = uses[stage][0][i];
            off += use.forward != rule.forward(stage, i).version ||
                   use.backward != rule.backward(stage, i).version ||
                   use.updated != rule.newest(i);
        }
    return off;
}

/// Shows which versions of the weights each micro-batch reads.
void versions(PipedreamLesson& lesson, Findings& found) {
    const int p = lesson.ranks;
    const int shown = p + 4, asked = p + 1;
    const WeightRule one = lesson.rule("pipedream");
    const auto uses = weight_uses(schedule_of(one, shown));
    found.give({"asked"_is = asked, "version_read"_is = uses[0][0][asked].forward});
    for (int i = 0; i < shown; ++i) {
        found.row(
            "reads",
            {"micro_batch"_is = i,
             "forward"_is = by_stage(p, [&](int s) { return uses[s][0][i].forward; }),
             "newest"_is = by_stage(p, [&](int s) { return uses[s][0][i].updated; })});
    }
    found.equal("reads_off", uses_off(one, 4 * lesson.per_update), 0);
}

/// Returns what the checker says of a pipeline that keeps no old weights.
std::string diagnosis_without_stash(const PipedreamLesson& lesson) {
    sim::ClusterOptions watched;
    watched.ranks = lesson.ranks;
    watched.spec = load_cluster("classroom");
    watched.numbers = false;
    watched.check = sim::CheckLevel::full;
    return diagnosis_of([&] {
        train_endless(
            *sim::make_cluster(watched), lesson.rule("unstashed"),
            stack_training({lesson.dtype(), lesson.options().seed}, lesson.ranks),
            2 * lesson.ranks);
    });
}

/// Shows how late gradients are, and for which weights they are computed.
void stale(PipedreamLesson& lesson, Findings& found) {
    const int p = lesson.ranks;
    found.give("stalest", p - 1);
    const auto measured = staleness(period_of(lesson.rule("pipedream")));
    int off = 0;
    for (int s = 0; s < p; ++s) {
        found.row("late", {"stage"_is = s, "updates"_is = measured[s][0]});
        off += std::abs(measured[s][0] - (p - s - 1));
    }
    found.equal("late_off", off, 0);

    const WeightRule unstashed = lesson.rule("unstashed");
    const int met = p + 1;
    const auto uses = weight_uses(schedule_of(unstashed, 2 * p));
    found.give(
        {"met"_is = met,
         "met_forward"_is = by_stage(p, [&](int s) { return uses[s][0][met].forward; }),
         "met_backward"_is =
             by_stage(p, [&](int s) { return uses[s][0][met].backward; })});
    found.equal("unstashed_off", uses_off(unstashed, 4 * lesson.per_update), 0);
    const std::string said = diagnosis_without_stash(lesson);
    found.give("f25", said);
    found.equal("class_f25", said.starts_with("F25") ? 1 : 0, 1);
}

/// Returns a weight's largest difference from its value on one device (train_alone).
double gap_to_one_device(PipedreamLesson& lesson, const WeightRule& rule,
                         int micro_batches, const RunReport& report) {
    const RunReport alone =
        train_alone(*lesson.devices(1), rule,
                    stack_training({lesson.dtype(), lesson.options().seed}, lesson.ranks),
                    micro_batches);
    double gap = 0;
    if (!lesson.has_numbers()) return gap;
    for (const auto& [name, tensor] : kept_under(alone, "")) {
        const HostTensor& other = report.whole(name);
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
            widen(gap, std::abs(tensor.at(i) - other.at(i)));
    }
    return gap;
}

/// Returns the bytes of one version of a stage's weights.
std::int64_t version_bytes(DType dtype) {
    return kStackLayers * (kStackWidth * kStackWidth + kStackWidth) * bytes_of(dtype);
}

std::int64_t weights_held(const RunReport& report, int stage) {
    return report.ranks[stage].memory.peak_of(MemoryCategory::parameters);
}

/// How far rounding may change a weight of the stack. On the simulator: not at all.
constexpr RoundingBound kSameWeights{1e-5, 1e-13};

/// Measures the old weights that stages keep, and their bytes.
void stash(PipedreamLesson& lesson, Findings& found) {
    const int p = lesson.ranks, m = 2 * lesson.per_update;
    const std::int64_t each = version_bytes(lesson.dtype());
    found.give({"weights"_is = kStackLayers * (kStackWidth * kStackWidth + kStackWidth),
                "stack_layers"_is = kStackLayers, "stack_width"_is = kStackWidth,
                "version_bytes"_is = Figure::bytes(each),
                "stash_bytes"_is = Figure::bytes(p * each),
                "behind_bytes"_is = Figure::bytes((p - 1) * each)});
    const RunReport stashed = run_stack(lesson, lesson.rule("pipedream"), m);
    const RunReport vertical = run_stack(lesson, lesson.rule("pipedream-vertical"), m);
    const RunReport unstashed = run_stack(lesson, lesson.rule("unstashed"), m);
    if (lesson.has_virtual_time()) {
        std::int64_t off = 0, vertical_off = 0;
        for (int s = 0; s < p; ++s) {
            found.row("ledger",
                      {"stage"_is = s, "kept"_is = p - s,
                       "unstashed_bytes"_is = Figure::bytes(weights_held(unstashed, s)),
                       "stashed_bytes"_is = Figure::bytes(weights_held(stashed, s)),
                       "vertical_bytes"_is = Figure::bytes(weights_held(vertical, s))});
            off += std::abs(weights_held(stashed, s) - (p - s) * each) +
                   std::abs(weights_held(unstashed, s) - each);
            vertical_off += std::abs(weights_held(vertical, s) - p * each);
        }
        found.equal("stash_ledger", off, 0);
        found.equal("vertical_ledger", vertical_off, 0);
    }
    double gap = gap_to_one_device(lesson, lesson.rule("pipedream"), m, stashed);
    widen(gap, gap_to_one_device(lesson, lesson.rule("pipedream-vertical"), m, vertical));
    lesson.values_at_most(found, "stash_alone", gap,
                          kSameWeights.value(lesson.dtype(), 4 * m));
}

/// Gives the memory that copies of a real model's weights need.
void give_models(Findings& found) {
    constexpr std::int64_t kBytes = 2;  // bf16
    const std::int64_t weights = mixtral_8x7b(4096).parameters();
    found.give("mixtral_weights",
               Figure::decimals(static_cast<double>(weights) / 1e9, 1));
    for (const int stages : {4, 16, 64}) {
        const std::int64_t version = weights * kBytes / stages;
        found.row("models", {"stages"_is = stages, "one"_is = Figure::memory(version),
                             "many"_is = Figure::memory(stages * version),
                             "double"_is = Figure::memory(2 * version)});
    }
}

/// Measures PipeDream-2BW, in which each stage keeps two versions.
void buffers(PipedreamLesson& lesson, Findings& found) {
    const int p = lesson.ranks, m = 4 * lesson.per_update;
    const WeightRule two = lesson.rule("pipedream-2bw", lesson.per_update);
    const WeightRule drawn = lesson.rule("pipedream-2bw", p);
    const auto uses = weight_uses(schedule_of(two, m));
    for (int i = 0; i < m; i += lesson.per_update) {
        found.row(
            "batches",
            {"batch"_is = i / lesson.per_update,
             "of"_is = fmt::format("{}–{}", i, i + lesson.per_update - 1),
             "read"_is = uses[0][0][i].forward, "changed"_is = uses[0][0][i].updated,
             "made"_is = uses[0][0][i].updated + 1});
    }
    found.give("two", 2);
    give_models(found);
    found.picture("buffers_picture", schedule_of(drawn, 3 * p),
                  timed(schedule_of(drawn, 3 * p)));
    run_stack(lesson, drawn, 3 * p, /*trace=*/true);
    found.equal("buffers_off", uses_off(two, m), 0);
    const PeriodTiming period = period_of(two);
    found.equal("buffers_bubble", Figure::seconds(static_cast<double>(period.bubble())),
                0);
    const RunReport report = run_stack(lesson, two, m);
    if (lesson.has_virtual_time()) {
        const std::int64_t each = version_bytes(lesson.dtype());
        std::int64_t off = 0;
        for (int s = 0; s < p; ++s)
            off += std::abs(weights_held(report, s) - 2 * each);
        found.give("two_bytes", Figure::bytes(weights_held(report, 0)));
        found.equal("buffers_ledger", off, 0);
    }
    lesson.values_at_most(found, "buffers_alone",
                          gap_to_one_device(lesson, two, m, report),
                          kSameWeights.value(lesson.dtype(), 4 * m));
}

// Gradient descent on one weight w whose gradients come late:
//
//     w(t + 1) = w(t) - a w(t - delay)
//
// w goes to 0 if a is positive and not too large.

/// Returns the largest a by formula: 2 sin(pi / (2 (2 delay + 1))). With this a,
/// w(t) = z^t with |z| = 1 is a solution: z^(delay + 1) - z^delay + a = 0.
double largest_step(int delay) {
    return 2 * std::sin(std::numbers::pi / (2.0 * (2 * delay + 1)));
}

/// Returns whether w goes to 0: whether its swings become small before they become large.
bool shrinks(double a, int delay) {
    constexpr std::size_t kSteps = 500'000;
    constexpr double kLarge = 1e3, kSmall = 1e-3;
    // The last delay + 1 values of w, in a ring buffer.
    std::vector<double> last(static_cast<std::size_t>(delay) + 1, 1.0);
    double now = 1, swing = 0;
    for (std::size_t t = 0; t < kSteps; ++t) {
        double& oldest = last[t % last.size()];
        now -= a * oldest;
        oldest = now;
        swing = std::max(swing, std::abs(now));
        if ((t + 1) % (8 * last.size()) != 0) continue;
        if (swing > kLarge) return false;
        if (swing < kSmall) return true;
        swing = 0;
    }
    return false;
}

/// Finds the largest a by bisection, to about 1e-4.
double largest_step_tried(int delay) {
    double good = 0, bad = 2.5;
    for (int halving = 0; halving < 30; ++halving) {
        const double a = (good + bad) / 2;
        (shrinks(a, delay) ? good : bad) = a;
    }
    return good;
}

/// Shows on one weight how much a delay lowers the largest learning rate.
void delay(Findings& found) {
    double widest = 0;
    for (const int updates : {0, 1, 2, 3, 7, 15}) {
        const double formula = largest_step(updates);
        const double tried = largest_step_tried(updates);
        found.row("delays",
                  {"updates"_is = updates, "formula"_is = Figure::decimals(formula, 3),
                   "tried"_is = Figure::decimals(tried, 3)});
        widest = std::max(widest, std::abs(formula - tried));
    }
    found.give({"one_late"_is = Figure::count(std::round(1e6 * largest_step(1)) / 1e6),
                "in_time"_is = Figure::count(std::round(1e6 * largest_step(0)) / 1e6)});
    found.at_most("delays_off", widest, 1e-3);
}

/// Returns the mean of the losses in [first, last).
double mean_of(const std::vector<double>& losses, std::size_t first, std::size_t last) {
    return std::accumulate(losses.begin() + static_cast<std::ptrdiff_t>(first),
                           losses.begin() + static_cast<std::ptrdiff_t>(last), 0.0) /
           static_cast<double>(last - first);
}

/// Returns the mean of the last quarter of the first `count` losses.
double end_of(const std::vector<double>& losses, std::size_t count) {
    return mean_of(losses, count - (count + 3) / 4, count);
}

/// Gives a loss, or "broken" if it is NaN, or more than twice the loss of a model that
/// knows nothing of the text. Returns whether the loss is not broken.
bool give_loss(const PipedreamLesson& lesson, Findings& row, const std::string& name,
               double loss) {
    const bool holds =
        loss <= 2 * std::log(static_cast<double>(lesson.task->sizes.vocabulary));
    if (holds)
        row.give(name, Figure::decimals(loss, 3));
    else
        row.give(name, "broken");
    return holds;
}

/// Cuts the task's GPT into parts whose products cost about the same. Micro-batch i is
/// sequence i of the task. The task must have enough sequences, and must outlive the
/// result.
PartedTraining gpt_training(const GptTask& task, int stages) {
    const GptSizes& sizes = task.sizes;
    const auto cut = cut_layers(gpt_layer_flops(sizes, sizes.context, 1), stages);
    PartedTraining training;
    training.parts = stages;
    training.make_part = [&task, cut](Device& device, int part) {
        const LayerRange& layers = cut[part];
        return make_gpt_layers(task.init(device), task.sizes, layers.first, layers.last);
    };
    training.make_batches = [&task](Device& device, int count, double weight) {
        const int each = static_cast<int>(task.batch);
        std::vector<MicroBatch> batches;
        batches.reserve(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i)
            batches.push_back(upload_tokens(device, task, i / each, i % each, 1, weight));
        return batches;
    };
    training.boundary = gpt_boundary(sizes, task.dtype);
    training.loss = cross_entropy_loss;
    training.optimizer = task.optimizer();
    return training;
}

const Trained& run_called(const PipedreamLesson& lesson, const std::string& name) {
    return *std::ranges::find(lesson.trained, name, &Trained::name);
}

/// Trains the GPT, and records the run under the name.
Trained train_by(PipedreamLesson& lesson, const std::string& name,
                 const WeightRule& rule) {
    const Advance advance = advancing(name, lesson.micro_batches() / rule.per_update);
    const LessonOptions chosen = mixes_versions(rule.schedule)
                                     ? lesson.options().without_full_check()
                                     : lesson.options();
    const RunReport report = train_endless(*make_cluster(chosen, lesson.ranks), rule,
                                           gpt_training(*lesson.task, lesson.ranks),
                                           lesson.micro_batches(), advance);
    lesson.record_run(name, report);
    Trained trained{name, rule, losses_of(report), report.makespan()};
    if (lesson.has_numbers())
        record_training(lesson.record(), name, lesson.trained.empty(), trained.losses,
                        report);
    return trained;
}

/// Returns the largest difference between the run's first losses and those of one device.
double first_losses_gap(const PipedreamLesson& lesson, const Trained& trained) {
    const int count = std::min(lesson.micro_batches(), 8 * lesson.per_update);
    const std::vector<double> alone = losses_of(
        train_alone(*make_cluster(lesson.options().without_full_check(), 1), trained.rule,
                    gpt_training(*lesson.task, lesson.ranks), count));
    double gap = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
        const double ours = trained.losses[i], theirs = alone[i];
        // If a training breaks here, it must also break on one device.
        const bool both_broken = !std::isfinite(ours) && !std::isfinite(theirs);
        if (!both_broken) widen(gap, std::abs(ours - theirs));
    }
    return gap;
}

void give_curves(const PipedreamLesson& lesson, Findings& found) {
    constexpr std::size_t kRows = 8;
    const auto all = static_cast<std::size_t>(lesson.micro_batches());
    const std::size_t rows = std::min(kRows, all);
    for (std::size_t i = 0; i < rows; ++i) {
        const std::size_t first = i * all / rows, last = (i + 1) * all / rows;
        Findings& row = found.row("curves", {"seen"_is = last});
        for (const Trained& trained : lesson.trained)
            give_loss(lesson, row, "loss_" + trained.name,
                      mean_of(trained.losses, first, last));
    }
}

/// Gives times, and how far each run is when PipeDream finishes. Micro-batches follow at
/// an even pace, so their number follows from the run's time.
void give_times(const PipedreamLesson& lesson, Findings& found) {
    static const std::set<std::string> kAsked{"flush_each", "stashed", "flush",
                                              "two_buffers"};
    const Picoseconds through = run_called(lesson, "stashed").time;
    found.give({"through"_is = Figure::time(through),
                "slower"_is = through > run_called(lesson, "flush").time});
    std::string best = "none";
    double lowest = std::numeric_limits<double>::infinity();
    for (const Trained& trained : lesson.trained) {
        const auto all = static_cast<double>(lesson.micro_batches());
        const double done = std::min(1.0, ratio(through, trained.time));
        const auto seen = static_cast<std::size_t>(std::max(1.0, std::floor(done * all)));
        Findings& row = found.row(
            "times", {"way"_is = trained.name, "time"_is = Figure::time(trained.time),
                      "updates"_is = lesson.micro_batches() / trained.rule.per_update,
                      "seen_by_then"_is = seen});
        if (!lesson.has_numbers()) continue;
        const double loss = end_of(trained.losses, seen);
        const bool holds = give_loss(lesson, row, "loss_by_then", loss);
        give_loss(lesson, row, "loss_at_end",
                  end_of(trained.losses, trained.losses.size()));
        if (!holds || !kAsked.contains(trained.name) || loss >= lowest) continue;
        best = trained.name;
        lowest = loss;
    }
    if (lesson.has_numbers()) found.give("best", best);
    found.give({"any_holds"_is = best != "none", "stashed_best"_is = best == "stashed"});
    const Picoseconds plain = run_called(lesson, "unstashed").time;
    found.give("estimates_slower", run_called(lesson, "predicted").time > plain &&
                                       run_called(lesson, "corrected").time > plain);
}

/// Gives the time of a micro-batch in the long run, for longer and longer sequences.
void give_paces(const PipedreamLesson& lesson, Findings& found) {
    ClusterSpec spec = load_cluster(lesson.options().cluster);
    spec.memory_bytes = 0;
    const int count = 8 * lesson.per_update;
    std::vector<double> gains;  // PipeDream's speedups
    for (const int context : {32, 256, 2048}) {
        GptTask task = *lesson.task;
        task.sizes.context = context;
        const auto pace = [&](const WeightRule& rule) {
            const auto takes = [&](int micro_batches) {
                return train_endless(*make_shapes_only_cluster(lesson.ranks, spec), rule,
                                     gpt_training(task, lesson.ranks), micro_batches)
                    .makespan();
            };
            return (takes(2 * count) - takes(count)) / count;
        };
        const Picoseconds flushed = pace(lesson.rule("1f1b", lesson.per_update));
        Findings& row = found.row(
            "paces", {"tokens"_is = context, "flush_pace"_is = Figure::time(flushed)});
        for (const auto& [name, rule] :
             {std::pair{"stashed", lesson.rule("pipedream")},
              std::pair{"two_buffers",
                        lesson.rule("pipedream-2bw", lesson.per_update)}}) {
            const Picoseconds own = pace(rule);
            const double gain = ratio(flushed, own);
            row.give(fmt::format("{}_pace", name), Figure::time(own));
            row.give(fmt::format("{}_faster", name), Figure::decimals(gain, 2));
            if (name == std::string("stashed")) gains.push_back(gain);
        }
    }
    const auto off = [&](double gain) {
        return std::abs(gain - gain_without_flush(lesson.ranks, lesson.per_update));
    };
    found.give("gains_come_near",
               off(gains.back()) < off(gains.front()) && off(gains.back()) < 0.1);
}

/// Trains a GPT on real text, by every schedule.
void train(PipedreamLesson& lesson, Findings& found) {
    const GptSizes& sizes = lesson.task->sizes;
    found.give({"cluster"_is = lesson.options().cluster, "blocks"_is = sizes.layers,
                "hidden"_is = sizes.block.hidden, "heads"_is = sizes.block.heads,
                "context"_is = sizes.context, "all"_is = lesson.micro_batches(),
                "learning_rate"_is = Figure::count(lesson.task->learning_rate),
                "has_momentum"_is = lesson.task->momentum > 0});
    record_gpt_inputs(lesson.record(), *lesson.task);

    const int m = lesson.per_update;
    const std::vector<std::pair<std::string, WeightRule>> ways{
        {"flush_each", lesson.rule("1f1b")},
        {"stashed", lesson.rule("pipedream")},
        {"vertical", lesson.rule("pipedream-vertical")},
        {"unstashed", lesson.rule("unstashed")},
        {"predicted", lesson.rule("spectrain")},
        {"corrected", lesson.rule("pipemare")},
        {"flush", lesson.rule("1f1b", m)},
        {"two_buffers", lesson.rule("pipedream-2bw", m)}};
    for (const auto& [name, rule] : ways)
        lesson.trained.push_back(train_by(lesson, name, rule));
    double gap = 0;
    for (const Trained& trained : lesson.trained)
        if (lesson.has_numbers()) widen(gap, first_losses_gap(lesson, trained));
    if (lesson.has_numbers()) give_curves(lesson, found);
    if (lesson.has_virtual_time()) {
        give_times(lesson, found);
        give_paces(lesson, found);
    }
    found.give("checked", std::min(lesson.micro_batches(), 8 * m));
    const int stores = static_cast<int>(sizes.layers) * block_stores(1) + 2 * m;
    lesson.values_at_most(
        found, "same_losses", gap,
        loss_bound(lesson.dtype(), stores, lesson.trained.front().losses));
}

/// Returns the mean loss at the end of a run of `micro_batches` micro-batches.
double end_of_run(PipedreamLesson& lesson, const WeightRule& rule, double learning_rate,
                  int micro_batches) {
    GptTask task = *lesson.task;
    task.learning_rate = learning_rate;
    task.sizes.layers = std::max<std::int64_t>(task.sizes.layers, rule.stages);
    LessonOptions chosen = lesson.options().without_full_check();
    // If stages and ranks differ in number, stages are virtual devices, in every process.
    if (rule.stages != lesson.ranks) {
        chosen.backend = "sim";
        chosen.process = nullptr;
    }
    const Advance advance = advancing(rule.schedule, micro_batches / rule.per_update);
    const RunReport report =
        train_endless(*make_cluster(chosen, rule.stages), rule,
                      gpt_training(task, rule.stages), micro_batches, advance);
    const std::vector<double> losses = losses_of(report);
    return end_of(losses, losses.size());
}

/// The factor of a larger learning rate, at which some schedules break.
constexpr double kLarger = 2.5;

/// Gives the last losses at larger learning rates, after half of the micro-batches.
void give_rates(PipedreamLesson& lesson, Findings& found) {
    const int half = lesson.half_of_them();
    const std::vector<double> times{1, kLarger, 10};
    std::vector<std::set<std::string>> broken(times.size());
    found.give("half", half);
    for (std::size_t i = 0; i < times.size(); ++i)
        found.give(fmt::format("rate_{}", i),
                   Figure::count(times[i] * lesson.task->learning_rate));
    for (const Trained& trained : lesson.trained) {
        if (trained.name == "predicted" || trained.name == "corrected") continue;
        Findings& row = found.row("rates", {"way"_is = trained.name});
        for (std::size_t i = 0; i < times.size(); ++i) {
            const double loss =
                i == 0 ? end_of(trained.losses, static_cast<std::size_t>(half))
                       : end_of_run(lesson, trained.rule,
                                    times[i] * lesson.task->learning_rate, half);
            if (!give_loss(lesson, row, fmt::format("end_{}", i), loss))
                broken[i].insert(trained.name);
        }
    }
    const auto first = std::ranges::find_if(
        broken, [](const std::set<std::string>& names) { return !names.empty(); });
    found.give("first_broken", first == broken.end() ? "none"
                               : first->size() > 1   ? "several"
                                                     : *first->begin());
}

/// Returns several cases of how many updates each stage is late: no stage; each stage as
/// in PipeDream; all stages but the last (unless PipeDream is the same); only the last
/// stage; all stages, as with vertical sync.
std::vector<std::vector<int>> ways_to_be_late(int stages) {
    const int last = stages - 1;
    std::vector<std::vector<int>> ways(5, std::vector<int>(stages, 0));
    for (int s = 0; s < stages; ++s) {
        ways[1][s] = last - s;
        ways[2][s] = s == last ? 0 : last;
        ways[3][s] = s == last ? last : 0;
        ways[4][s] = last;
    }
    if (ways[2] == ways[1]) ways.erase(ways.begin() + 2);
    return ways;
}

/// Shows which stage's lateness matters: trains on one device, in each way to be late.
void give_late(const PipedreamLesson& lesson, Findings& found) {
    const int p = lesson.ranks;
    GptTask task = *lesson.task;
    task.learning_rate *= kLarger;
    std::vector<double> norms;
    std::vector<double> first_quarters;
    std::vector<bool> holds;
    for (const std::vector<int>& late : ways_to_be_late(p)) {
        WeightRule rule = lesson.rule("1f1b");
        rule.late = late;
        const RunReport report =
            train_alone(*make_cluster(lesson.options().without_full_check(), 1), rule,
                        gpt_training(task, p), lesson.half_of_them());
        const std::vector<double> losses = losses_of(report);
        // All rows have the same first micro-batch, and so the same norms.
        norms = report.ranks[0].series.at("norm");
        Findings& row = found.row(
            "lates", {"stages"_is = by_stage(p, [&](int s) { return late[s]; })});
        holds.push_back(true);
        for (std::size_t quarter = 0; quarter < 4; ++quarter) {
            const double loss = mean_of(losses, quarter * losses.size() / 4,
                                        (quarter + 1) * losses.size() / 4);
            if (quarter == 0) first_quarters.push_back(loss);
            const bool here =
                give_loss(lesson, row, fmt::format("quarter_{}", quarter), loss);
            holds.back() = holds.back() && here;
        }
    }
    // In the last row all stages are late, in the row before it only the last stage.
    found.give(
        {"only_all_break"_is = std::ranges::find(holds, false) == std::prev(holds.end()),
         "last_costs_most"_is =
             std::max_element(first_quarters.begin(), first_quarters.end() - 1) ==
             first_quarters.end() - 2,
         "last_is_steepest"_is =
             std::ranges::max_element(norms) == std::prev(norms.end()),
         "norms"_is =
             by_stage(p, [&](int s) { return fmt::format("{:.2f}", norms[s]); })});
}

/// Trains a pipeline of many stages. Its gradients are much older.
void give_deep(PipedreamLesson& lesson, Findings& found) {
    constexpr int kStages = 16;
    const int count = std::min(lesson.micro_batches(), 96);
    const std::vector<double> times{0.5, kLarger};
    found.give({"deep_stages"_is = kStages, "deep_stages_less_1"_is = kStages - 1,
                "deep_count"_is = count});
    for (std::size_t i = 0; i < times.size(); ++i)
        found.give(fmt::format("deep_rate_{}", i),
                   Figure::count(times[i] * lesson.task->learning_rate));
    // The schedules that break, by learning rate.
    std::vector<std::set<std::string>> broken(times.size());
    for (const auto& [name, schedule] :
         {std::pair{"flush_each", "1f1b"}, std::pair{"stashed", "pipedream"},
          std::pair{"unstashed", "unstashed"}, std::pair{"corrected", "pipemare"}}) {
        Findings& row = found.row("deep", {"way"_is = name});
        for (std::size_t i = 0; i < times.size(); ++i) {
            const double loss = end_of_run(lesson, {schedule, kStages, 1},
                                           times[i] * lesson.task->learning_rate, count);
            if (!give_loss(lesson, row, fmt::format("end_{}", i), loss))
                broken[i].insert(name);
        }
    }
    found.give("stash_matters",
               std::ranges::count(broken, std::set<std::string>{"unstashed"}) > 0);
}

/// Raises the learning rate until training breaks.
void breaks(PipedreamLesson& lesson, Findings& found) {
    if (!lesson.has_numbers()) return;
    const auto end = [](const Trained& trained) {
        return end_of(trained.losses, trained.losses.size());
    };
    constexpr double kAlike = 0.01;  // relative to the loss
    const double flushed = end(run_called(lesson, "flush_each"));
    found.give("most_learn_alike",
               std::ranges::count_if(lesson.trained, [&](const Trained& trained) {
                   return trained.rule.per_update == 1 &&
                          std::abs(end(trained) - flushed) < kAlike * flushed;
               }) > 3);
    give_rates(lesson, found);
    give_late(lesson, found);
    give_deep(lesson, found);
}

}  // namespace

LessonEntry pipedream_lesson() {
    LessonEntry entry;
    entry.slug = "pipedream";
    entry.folder = "06_pipedream";
    entry.least_ranks = 2;
    entry.most_ranks = 16;
    entry.settings = {
        {"micro_batches", "of a step; at least the number of stages", Whole{1, 256},
         "twice the ranks"},
        {"layers", "transformer blocks of the GPT", Whole{1, 64}, "as many as the ranks"},
        {"heads", "of attention", Whole{1, 64, 2}},
        {"hidden", "columns between layers; 16 a head", Whole{1, 1024}, "32"},
        {"context", "tokens of a sequence, one a micro-batch", Whole{1, 1024, 32}},
        {"steps", "of training, each with micro_batches micro-batches",
         Whole{1, 100'000, 48}},
        {"learning_rate", "of SGD", Real{0, 1e6, 0.2}},
        {"momentum", "of SGD", Real{0, 0.999, 0}},
    };
    entry.takes_text = true;
    entry.make = lesson_of<PipedreamLesson>({{"flush", flush},
                                             {"endless", endless},
                                             {"versions", versions},
                                             {"stale", stale},
                                             {"stash", stash},
                                             {"buffers", buffers},
                                             {"delay", delay},
                                             {"train", train},
                                             {"breaks", breaks}});
    return entry;
}

}  // namespace lockstep::lessons
