#include "sim/check/row_weights.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "src/report/fault_text.hpp"

namespace lockstep::sim {

namespace {

bool same(double one, double other) {
    return std::abs(one - other) <= 1e-9 * std::max(std::abs(one), std::abs(other));
}

/// What is counted for the mean: rows, or elements where errors are squared.
enum class Unit : std::uint8_t { rows, elements };

/// The figures of a gradient.
struct Figures {
    std::map<int, double> by_rank;  ///< factors times counts, of each rank's losses
    double factors = 0;             ///< their sum: 1 for a mean over all
    double multiplier = 1;          ///< since backward
    bool equal = true;              ///< one factor for all
    double factor = 0;              ///< the first
    int ranks() const { return static_cast<int>(by_rank.size()); }
    double total() const { return factors * multiplier; }

    bool all_by_rank(double value) const {
        return std::all_of(by_rank.begin(), by_rank.end(),
                           [&](const auto& entry) { return same(entry.second, value); });
    }
};

std::int64_t count_of(const LossRows& loss, Unit unit) {
    return unit == Unit::rows ? loss.rows() : loss.elements();
}

Figures figures_of(const RowWeights& gradient, Unit unit) {
    Figures figures;
    figures.multiplier = gradient.multiplier();
    figures.factor = gradient.losses.front()->factor;
    for (const auto& loss : gradient.losses) {
        const double part = loss->factor * static_cast<double>(count_of(*loss, unit));
        figures.by_rank[loss->rank] += part;
        figures.factors += part;
        figures.equal = figures.equal && same(loss->factor, figures.factor);
    }
    return figures;
}

/// A mean over all, or a sum; half of that is as usual for squared errors.
bool is_right(const Figures& figures, bool squared) {
    const double each = figures.factor * figures.multiplier;
    const auto fits = [&](double wanted) {
        return same(figures.total(), wanted) || same(each, wanted);
    };
    return figures.equal && (fits(1) || (squared && fits(0.5)));
}

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

std::optional<Diagnosis> explain_average(const RowWeights& gradient,
                                         const Figures& figures, Unit unit,
                                         const DeviceOperation& update,
                                         const std::vector<int>& group_sizes) {
    const int n = figures.ranks();
    if (n < 2 || has_extent(gradient, n)) return std::nullopt;
    const LossRows& loss = *gradient.losses.front();
    const bool own_means = figures.all_by_rank(1);
    const double m = figures.multiplier;
    const GradientStep* const sum = reduction_in(gradient);
    const std::string added =
        sum != nullptr ? sum->reduction->text_with_line() : "what follows";
    const std::string own =
        fmt::format("each rank's loss at {} is a mean over its own {} ({})",
                    loss.at.text(), unit_text(unit), mean_text(loss, unit));

    std::string sentence;
    if (own_means && divisions_text(gradient).empty()) {
        sentence = fmt::format(
            "{}, {} adds up the gradients of {} ranks, and nothing divides by {}: the "
            "gradient is {} times that of the mean",
            own, added, n, n, n);
    } else if (own_means && same(m * n * n, 1)) {
        sentence = fmt::format(
            "{}, the gradients of {} ranks are added up, and then divided twice, by {}: "
            "the gradient is 1/{} of that of the mean",
            own, n, divisions_text(gradient), n);
    } else if (same(figures.factors, 1) && same(m * n, 1)) {
        sentence = fmt::format(
            "the loss at {} divides by the number of all {} already ({} on rank {}), and "
            "{} divides by {} once more: the gradient is 1/{} of that of the mean",
            loss.at.text(), unit_text(unit), mean_text(loss, unit), loss.rank,
            divisions_text(gradient), n, n);
    } else if (own_means) {
        for (const int size : group_sizes)
            if (size != n && size > 1 && same(m * size, 1))
                sentence = fmt::format(
                    "{}, and {} adds up the gradients of {} ranks, but {} divides by {}, "
                    "the size of another group: the gradient is {} times that of the "
                    "mean",
                    own, added, n, divisions_text(gradient), size,
                    n > size && n % size == 0 ? fmt::format("{}", n / size)
                                              : fmt::format("{}/{}", n, size));
    }
    if (sentence.empty()) return std::nullopt;
    Diagnosis diagnosis = start("F21", gradient, update);
    diagnosis.sentence = std::move(sentence);
    return diagnosis;
}

/// Ranks, or micro-batches of a rank, each of which took the mean over its own rows.
bool is_mean_of_means(const RowWeights& gradient, const Figures& figures, Unit unit) {
    std::map<int, double> factor_of_rank;
    bool by_rank = figures.ranks() > 1;
    std::set<std::pair<int, int>> places;
    const auto part = [&](const LossRows& loss) {
        return loss.factor * static_cast<double>(count_of(loss, unit));
    };
    bool by_micro_batch = true;
    for (const auto& loss : gradient.losses) {
        const auto [known, added] = factor_of_rank.emplace(loss->rank, loss->factor);
        by_rank = by_rank && same(known->second, loss->factor);
        by_micro_batch = by_micro_batch && loss->micro_batch >= 0 &&
                         places.emplace(loss->rank, loss->micro_batch).second &&
                         same(part(*loss), part(*gradient.losses.front()));
    }
    by_rank = by_rank && figures.all_by_rank(figures.by_rank.begin()->second);
    return by_rank || by_micro_batch;
}

std::optional<Diagnosis> explain_means(const RowWeights& gradient, const Figures& figures,
                                       Unit unit, const DeviceOperation& update) {
    const bool squared = gradient.losses.front()->squared;
    const bool whole =
        same(figures.total(), 1) || (squared && same(figures.total(), 0.5));
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

double RowWeights::multiplier() const {
    double product = 1;
    for (const GradientStep& step : steps)
        product *= step.factor;
    return product;
}

Weights sum_of(const Weights& one, const Weights& other) {
    if (!one || !other) return nullptr;
    if (one->zero() || one == other) return other;
    if (other->zero()) return one;
    if (one->steps != other->steps) return nullptr;
    RowWeights sum;
    sum.steps = one->steps;
    sum.losses = one->losses;
    for (const auto& loss : other->losses)
        if (std::find(one->losses.begin(), one->losses.end(), loss) == one->losses.end())
            sum.losses.push_back(loss);
    if (sum.losses.size() == one->losses.size() && !one->is_loss_gradient) return one;
    return std::make_shared<const RowWeights>(std::move(sum));
}

Weights reduction_of(const std::vector<Weights>& members, const Origin& origin) {
    RowWeights result;
    std::vector<std::pair<std::uint64_t, std::size_t>> contents;  // and whose
    const RowWeights* first = nullptr;
    for (std::size_t member = 0; member < members.size(); ++member) {
        const Weights& weights = members[member];
        if (!weights || weights->is_loss_gradient) return nullptr;
        if (weights->zero()) continue;
        if (first == nullptr) first = weights.get();
        if (weights->steps != first->steps) return nullptr;
        for (const auto& loss : weights->losses) {
            result.losses.push_back(loss);
            contents.emplace_back(loss->content, member);
        }
    }
    if (first == nullptr) return members.front();
    std::sort(contents.begin(), contents.end());
    for (std::size_t i = 1; i < contents.size(); ++i)
        if (contents[i].first == contents[i - 1].first &&
            contents[i].second != contents[i - 1].second)
            return nullptr;
    result.steps = first->steps;
    const bool mean = origin->reduction == Reduction::mean;
    result.steps.push_back({origin, mean ? 1.0 / origin->team->size() : 1.0, origin->at});
    return std::make_shared<const RowWeights>(std::move(result));
}

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
