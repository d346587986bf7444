#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "sim/check/row_figures.hpp"
#include "sim/check/row_weights.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

bool is_one_loss(const RowWeights& gradient) {
    const LossRows& first = *gradient.losses.front();
    return std::all_of(
        gradient.losses.begin(), gradient.losses.end(), [&](const auto& loss) {
            return loss->at == first.at && loss->operation == first.operation;
        });
}

/// Where a loss sums over time and takes the mean over sequences, say.
bool has_extent(const RowWeights& gradient, int n) {
    const Shape& shape = gradient.losses.front()->shape;
    for (int d = 0; shape.dimensions() > 2 && d < shape.dimensions(); ++d)
        if (shape[d] == n) return true;
    return false;
}

std::vector<int> ranks_of(const RowWeights& gradient) {
    std::set<int> ranks;
    for (const auto& loss : gradient.losses)
        ranks.insert(loss->rank);
    return {ranks.begin(), ranks.end()};
}

const GradientStep* reduction_in(const RowWeights& gradient) {
    for (const GradientStep& step : gradient.steps)
        if (step.reduction) return &step;
    return nullptr;
}

std::string factor_text(double factor) {
    const double inverse = 1 / factor;
    return std::abs(inverse - std::round(inverse)) < 1e-9 * inverse && inverse > 1.5
               ? fmt::format("1/{:.0f}", inverse)
               : fmt::format("{:.6g}", factor);
}

std::string step_text(const GradientStep& step) {
    return step.reduction ? step.reduction->text_with_line()
                          : fmt::format("the scaling by {} at {}",
                                        factor_text(step.factor), step.at.text());
}

/// Steps that multiply by other than 1, named: "the scaling by 1/4 at …".
std::string divisions_text(const RowWeights& gradient) {
    std::string text;
    for (const GradientStep& step : gradient.steps)
        if (step.factor != 1) text += (text.empty() ? "" : ", and ") + step_text(step);
    return text;
}

Diagnosis start(const char* fault, const RowWeights& gradient,
                const DeviceOperation& update) {
    Diagnosis diagnosis = diagnosis_of(fault);
    const LossRows& first = *gradient.losses.front();
    diagnosis.parties.push_back(
        {ranks_of(gradient),
         fmt::format("{}(factor {})", first.operation, factor_text(first.factor)),
         "",
         first.at,
         {}});
    for (const GradientStep& step : gradient.steps) {
        if (step.reduction) {
            diagnosis.communicator = step.reduction->team->name;
            diagnosis.members = step.reduction->team->ranks;
            diagnosis.sequence = static_cast<std::int64_t>(step.reduction->sequence);
            diagnosis.parties.push_back(step.reduction->party());
        } else if (step.factor != 1) {
            diagnosis.parties.push_back({ranks_of(gradient),
                                         "scale(" + factor_text(step.factor) + ")",
                                         "",
                                         step.at,
                                         {}});
        }
    }
    diagnosis.details.push_back(
        fmt::format("{} at {} uses the gradient.", update.name, update.at.text()));
    return diagnosis;
}

std::string unit_text(Unit unit) {
    return unit == Unit::rows ? "rows" : "elements";
}

/// "a mean over its own 8 rows (factor 1/8)".
std::string mean_text(const LossRows& loss, Unit unit) {
    return fmt::format("factor {} for {} {}", factor_text(loss.factor),
                       count_of(loss, unit), unit_text(unit));
}

/// "all_reduce(sum, 64 x f32) of dp at train.cpp:12 adds up the gradients of 4 ranks".
std::string sum_text(const RowWeights& gradient, int ranks) {
    const GradientStep* const sum = reduction_in(gradient);
    return fmt::format("{} adds up the gradients of {} ranks",
                       sum != nullptr ? sum->reduction->text_with_line() : "what follows",
                       ranks);
}

/// How the mean over n ranks has gone wrong; empty where that does not explain it.
std::string average_text(const RowWeights& gradient, const Figures& figures, Unit unit,
                         const std::vector<int>& group_sizes) {
    const int n = figures.ranks();
    const double m = figures.multiplier;
    const LossRows& loss = *gradient.losses.front();
    const std::string divisions = divisions_text(gradient);
    if (!figures.all_by_rank(1)) {
        if (!nearly_equal(figures.factors, 1) || !nearly_equal(m * n, 1)) return "";
        return fmt::format(
            "the loss at {} divides by the number of all {} already ({} on rank {}), and "
            "{} divides by {} once more: the gradient is 1/{} of that of the mean",
            loss.at.text(), unit_text(unit), mean_text(loss, unit), loss.rank, divisions,
            n, n);
    }
    const std::string own =
        fmt::format("each rank's loss at {} is a mean over its own {} ({})",
                    loss.at.text(), unit_text(unit), mean_text(loss, unit));
    if (divisions.empty())
        return fmt::format(
            "{}, {}, and nothing divides by {}: the gradient is {} times that of the "
            "mean",
            own, sum_text(gradient, n), n, n);
    if (nearly_equal(m * n * n, 1))
        return fmt::format(
            "{}, the gradients of {} ranks are added up, and then divided twice, by {}: "
            "the gradient is 1/{} of that of the mean",
            own, n, divisions, n);
    for (const int size : group_sizes)
        if (size != n && size > 1 && nearly_equal(m * size, 1))
            return fmt::format(
                "{}, and {}, but {} divides by {}, the size of another group: the "
                "gradient is {} times that of the mean",
                own, sum_text(gradient, n), divisions, size,
                n % size == 0 ? fmt::format("{}", n / size)
                              : fmt::format("{}/{}", n, size));
    return "";
}

std::optional<Diagnosis> explain_average(const RowWeights& gradient,
                                         const Figures& figures, Unit unit,
                                         const DeviceOperation& update,
                                         const std::vector<int>& group_sizes) {
    if (figures.ranks() < 2 || has_extent(gradient, figures.ranks())) return std::nullopt;
    std::string sentence = average_text(gradient, figures, unit, group_sizes);
    if (sentence.empty()) return std::nullopt;
    Diagnosis diagnosis = start("F21", gradient, update);
    diagnosis.sentence = std::move(sentence);
    return diagnosis;
}

std::optional<Diagnosis> explain_means(const RowWeights& gradient, const Figures& figures,
                                       Unit unit, const DeviceOperation& update) {
    const bool squared = gradient.losses.front()->squared;
    const bool whole = nearly_equal(figures.total(), 1) ||
                       (squared && nearly_equal(figures.total(), 0.5));
    if (figures.equal || !whole || !is_mean_of_means(gradient, figures, unit))
        return std::nullopt;
    const auto [few, many] =
        std::minmax_element(gradient.losses.begin(), gradient.losses.end(),
                            [&](const auto& a, const auto& b) {
                                return count_of(*a, unit) < count_of(*b, unit);
                            });
    const auto place = [&](const LossRows& loss) {
        return loss.micro_batch >= 0
                   ? fmt::format("rank {}, micro-batch {}", loss.rank, loss.micro_batch)
                   : fmt::format("rank {}", loss.rank);
    };
    const double m = figures.multiplier;
    Diagnosis diagnosis = start("F28", gradient, update);
    diagnosis.sentence = fmt::format(
        "the mean of means over unequal numbers of {}: the loss at {} takes a mean over "
        "{} {} on {}, over {} on {}, and all count the same afterwards, so each of the "
        "former {} weighs {:.6g} and each of the latter {:.6g}",
        unit_text(unit), (*few)->at.text(), count_of(**few, unit), unit_text(unit),
        place(**few), count_of(**many, unit), place(**many), unit_text(unit),
        (*few)->factor * m, (*many)->factor * m);
    return diagnosis;
}

}  // namespace

std::optional<Diagnosis> explain_weights(const RowWeights& gradient,
                                         const DeviceOperation& update,
                                         const std::vector<int>& group_sizes) {
    if (gradient.zero() || !is_one_loss(gradient)) return std::nullopt;
    const bool squared = gradient.losses.front()->squared;
    std::vector<Unit> units{Unit::rows};
    if (squared) units.insert(units.begin(), Unit::elements);
    for (const Unit unit : units)
        if (is_right(figures_of(gradient, unit), squared)) return std::nullopt;
    for (const Unit unit : units) {
        const Figures figures = figures_of(gradient, unit);
        if (auto found = explain_means(gradient, figures, unit, update)) return found;
        if (auto found = explain_average(gradient, figures, unit, update, group_sizes))
            return found;
    }
    return std::nullopt;
}

}  // namespace lockstep::sim
