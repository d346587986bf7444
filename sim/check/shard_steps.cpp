#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// A rank's update of its part of a parameter.
struct ShardStep {
    int rank = 0;
    double learning_rate = 0;
    std::int64_t step = 0;  ///< its number, if the optimizer counts steps
    double multiplier = 1;  ///< of all scalings since the gradient was scattered
    SourceLine scaled_at;
    const char* operation = "";
    SourceLine at;

    bool scaled_like(const ShardStep& other) const {
        return std::abs(multiplier - other.multiplier) <=
               1e-9 * std::max(std::abs(multiplier), std::abs(other.multiplier));
    }
    bool like(const ShardStep& other) const {
        return learning_rate == other.learning_rate && step == other.step &&
               scaled_like(other);
    }
};

/// If ranks update parts of one parameter with parts of one sum of gradients, they do one
/// step together. They must use the same learning rate and step count (F24), and must all
/// scale their gradients by the same factor (F23: norms of single parts differ).
/// Parameters are told apart by their names. A parameter without a name is checked only
/// if its gradient is all that the rank got from the sum. If gradients were added up or
/// scaled by a number on the device, their sum is known, but not their scale.
class ShardStepWatcher final : public Watcher {
  public:
    explicit ShardStepWatcher(const Layouts& layouts) : layouts_(layouts) {}

    void executing(int rank, const DeviceOperation& operation) override;
    void quiet() override;
    void run_ended() override { quiet(); }

  private:
    /// The steps of one sum and parameter since the run was last quiet.
    struct Steps {
        Origin sum;
        std::string name;
        std::vector<ShardStep> steps;
    };
    using Key = std::tuple<int, std::uint64_t, std::string>;  // team, sequence, name

    const Layouts& layouts_;
    std::map<Key, Steps> open_;
};

void ShardStepWatcher::executing(int rank, const DeviceOperation& operation) {
    if (!is_update(operation)) return;
    const Tensor& gradient = gradient_of(operation);
    const Layout layout = layouts_.layout_of(rank, gradient);
    const bool is_dealt = layout.kind == Layout::Kind::sharded && layout.reduced;
    if (!is_dealt && layout.kind != Layout::Kind::varying) return;
    const CollectiveOrigin& sum = *layout.origin;
    const std::string& name = parameter_of(operation).label();
    if (name.empty() && gradient.elements() != sum.count) return;
    Steps& of_all = open_[{sum.team->id, sum.sequence, name}];
    of_all.sum = layout.origin;
    of_all.name = name.empty() ? "one weight" : name;
    of_all.steps.push_back({rank, operation.derivation.factor, operation.derivation.step,
                            is_dealt ? layout.multiplier : 1,
                            is_dealt ? layout.changed : SourceLine(), operation.name,
                            operation.at});
}

using Side = std::vector<ShardStep>;

std::vector<int> ranks_of(const Side& side) {
    std::vector<int> ranks;
    for (const ShardStep& step : side)
        if (ranks.empty() || ranks.back() != step.rank) ranks.push_back(step.rank);
    return ranks;
}

/// Returns what differs from `other`: "learning rate 0.1" or "step number 3".
std::string setting_text(const ShardStep& step, const ShardStep& other) {
    if (step.learning_rate != other.learning_rate)
        return fmt::format("learning rate {:.9g}", step.learning_rate);
    return fmt::format("step number {}", step.step);
}

std::string scaling_text(const ShardStep& step) {
    if (step.scaled_at.line == 0) return "not scaled";
    return fmt::format("scaled by {:.6g} at {}", step.multiplier, step.scaled_at.text());
}

Diagnosis explain(const Origin& sum, const std::string& name, const Side& usual,
                  const Side& odd) {
    const bool of_scale = !odd.front().scaled_like(usual.front());
    Diagnosis diagnosis =
        diagnosis_on(*sum->team, sum->sequence, of_scale ? "F23" : "F24");
    diagnosis.title = of_scale ? "parts of one gradient are scaled differently"
                               : "parts of one parameter take different steps";
    const auto text = [&](const ShardStep& step, const ShardStep& other) {
        return of_scale ? scaling_text(step) : setting_text(step, other);
    };
    const std::string one = text(odd.front(), usual.front());
    const std::string other = text(usual.front(), odd.front());
    diagnosis.sentence = fmt::format(
        "ranks update parts of {} with parts of one sum, {}, but not in the same way: {} "
        "by {} at {}, {}; {} by {} at {}, {}",
        name, sum->text_with_line(), ranks_text(ranks_of(odd)), odd.front().operation,
        odd.front().at.text(), one, ranks_text(ranks_of(usual)), usual.front().operation,
        usual.front().at.text(), other);
    diagnosis.cause = of_scale
                          ? fmt::format(
                                "A factor for the whole gradient, such as a clip factor, "
                                "must be the same on all ranks: add up the squares of "
                                "all parts over {} before you take the norm.",
                                sum->team->name)
                          : "The parts are one parameter: the learning rate and the "
                            "number of steps must not differ between ranks.";
    diagnosis.parties = {
        party(ranks_of(odd), fmt::format("{} of {}", odd.front().operation, name),
              odd.front().at, one),
        party(ranks_of(usual), fmt::format("{} of {}", usual.front().operation, name),
              usual.front().at, other)};
    return diagnosis;
}

void ShardStepWatcher::quiet() {
    for (auto& [key, of_all] : open_) {
        std::ranges::stable_sort(of_all.steps, {}, &ShardStep::rank);
        const std::vector<Side> sides = sides_of(
            of_all.steps,
            [](const ShardStep& one, const ShardStep& other) { return one.like(other); });
        if (sides.size() > 1)
            report(explain(of_all.sum, of_all.name, sides[0], sides[1]));
    }
    open_.clear();
}

}  // namespace

std::unique_ptr<Watcher> watch_shard_steps(Engine& /*engine*/, const Layouts& layouts) {
    return std::make_unique<ShardStepWatcher>(layouts);
}

}  // namespace lockstep::sim
