#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"
#include "src/device/monitor.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

/// The rows whose gradients come from one call of a loss's backward.
struct LossRows {
    int rank;
    int micro_batch;  ///< -1 if there is none
    const char* operation;
    SourceLine at;
    double factor;  ///< of each row (of each element, if errors are squared)
    Shape shape;    ///< of the prediction
    bool squared;
    std::int64_t bytes;     ///< of the gradient
    std::uint64_t content;  ///< hash of prediction and target; equal for replicas
    /// Rows that a mask has kept, if one has multiplied the gradient.
    std::optional<std::int64_t> kept{};

    std::int64_t rows() const { return kept.value_or(shape.matrix_rows()); }
    std::int64_t elements() const { return rows() * shape.columns(); }
};

/// A change that was made to a gradient since backward.
struct GradientStep {
    Origin reduction;  ///< a sum or mean over ranks; if null, a scaling
    double factor = 1;
    SourceLine at;

    bool operator==(const GradientStep& other) const {
        return reduction == other.reduction && factor == other.factor &&
               (reduction || at == other.at);
    }
    /// Returns whether the steps are the same, or similar collectives of the same ranks.
    bool is_like(const GradientStep& other) const {
        return *this == other ||
               (reduction && other.reduction && factor == other.factor &&
                same_ranks(*reduction->team, *other.reduction->team));
    }
};

/// A part that a step's gradient lacks, or has twice, because the sums of several
/// micro-batches were combined wrongly.
struct Accumulated {
    std::shared_ptr<const LossRows> loss;
    Origin first;       ///< the collective that summed it
    Origin second;      ///< what overwrote it or summed it again; null if added twice
    SourceLine at{};    ///< where it was added twice
    bool lost = false;  ///< the part is lost; else it counts twice
};

/// The weights of a value: the gradient of the sum, over rows, of factor times loss, then
/// changed by `steps`. Backward is linear, so all values that it makes from a loss's
/// gradient have the same rows. If there are no rows, the values are zeros.
struct RowWeights {
    std::vector<std::shared_ptr<const LossRows>> losses;
    std::vector<GradientStep> steps;
    bool is_loss_gradient = false;  ///< it is the loss's gradient itself
    /// The reduced sums that were added to this value, each with its first added byte.
    std::vector<std::pair<Origin, std::int64_t>> added{};
    std::vector<Accumulated> mistakes{};  ///< mistakes if this updates a parameter

    bool zero() const { return losses.empty(); }
    /// Returns the product of the factors of all steps.
    double multiplier() const;
};
using Weights = std::shared_ptr<const RowWeights>;

inline bool nearly_equal(double one, double other) {
    return std::abs(one - other) <= 1e-9 * std::max(std::abs(one), std::abs(other));
}

/// A mean is over rows, or over elements if errors are squared.
enum class Unit : std::uint8_t { rows, elements };

/// Numbers that describe a gradient's weights.
struct Figures {
    std::map<int, double> by_rank;  ///< sum of factor times count over a rank's losses
    double factors = 0;             ///< the sum of by_rank: 1 for a mean over all
    double multiplier = 1;          ///< the product of all steps' factors
    bool equal = true;              ///< all losses have the same factor
    double factor = 0;              ///< of the first loss
    int ranks() const { return static_cast<int>(by_rank.size()); }
    double total() const { return factors * multiplier; }

    bool all_by_rank(double value) const {
        return std::all_of(by_rank.begin(), by_rank.end(), [&](const auto& entry) {
            return nearly_equal(entry.second, value);
        });
    }
};

/// Follows the weight of each row from the backward of a loss to the update of a
/// parameter. It finds wrong averages (F21), means of unequal means (F28), and sums that
/// lack a micro-batch or have one twice (F27). An operation that is not clearly linear
/// makes a value unknown. So does an elementwise product, unless it multiplies the rows
/// of a loss's gradient by zeros and ones: a mask that leaves rows out.
class RowWeightWatcher final : public Tracker<Weights> {
  public:
    explicit RowWeightWatcher(const Engine& engine);

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override { copy_facts(send, recv); }

  private:
    struct RankLosses {
        std::vector<std::shared_ptr<const LossRows>> losses;  ///< since its last step
        bool stepped = false;                                 ///< since the last loss
    };
    struct GroupSizes {
        std::size_t seen = 0;  ///< communicators looked at
        std::vector<int> sizes;
    };

    /// Returns the weights of all of a tensor's values together; null if unknown.
    Weights weights_of(int rank, const Tensor& tensor) const;
    Weights made_by(int rank, const DeviceOperation& operation) const;
    Weights of_one_operand(int rank, const DeviceOperation& operation) const;
    Weights with_addend(int rank, const DeviceOperation& operation, Weights sum) const;
    void begin_gradient(int rank, const DeviceOperation& operation);
    void scale(int rank, const DeviceOperation& operation);
    bool mask_rows(int rank, const DeviceOperation& operation);
    bool has_all_losses(int rank, const RowWeights& gradient) const;
    const std::vector<int>& group_sizes(int rank);
    void check_accumulation(int rank, const RowWeights& gradient,
                            const DeviceOperation& update) const;
    void check_update(int rank, const DeviceOperation& operation);
    void check_gradient(int rank, const Weights& weights, const DeviceOperation& update);
    Ranges reduced(const Meeting& meeting, const Origin& origin) const;
    void write_over(int rank, const Tensor& output, Ranges made);

    const Engine& engine_;
    std::vector<RankLosses> of_step_;            ///< by rank
    std::vector<GroupSizes> groups_;             ///< by rank
    std::map<Weights, std::vector<int>> right_;  ///< judged right with these group sizes
    const Weights zero_ = std::make_shared<const RowWeights>();
};

/// Returns the first sum or mean over ranks; null if there is none.
const GradientStep* reduction_in(const RowWeights& gradient) {
    for (const GradientStep& step : gradient.steps)
        if (step.reduction) return &step;
    return nullptr;
}

double RowWeights::multiplier() const {
    double product = 1;
    for (const GradientStep& step : steps)
        product *= step.factor;
    return product;
}

/// Returns the weights of the sum of two values of one rank; null if they are not known.
/// Both values may have the same rows, by different paths through the model.
Weights sum_of(const Weights& one, const Weights& other) {
    if (!one || !other) return nullptr;
    if (one->zero() || one == other) return other;
    if (other->zero()) return one;
    if (!std::ranges::equal(one->steps, other->steps, &GradientStep::is_like))
        return nullptr;
    RowWeights sum;
    sum.steps = one->steps;
    sum.losses = one->losses;
    sum.added = one->added;
    sum.mistakes = one->mistakes;
    std::vector<std::shared_ptr<const LossRows>> of_both;
    for (const auto& loss : other->losses)
        if (std::ranges::find(one->losses, loss) == one->losses.end())
            sum.losses.push_back(loss);
        else
            of_both.push_back(loss);
    if (sum.losses.size() == one->losses.size() && !one->is_loss_gradient) return one;
    // `other` contains all that `one` contains, and more.
    if (one->steps != other->steps && of_both.size() == one->losses.size())
        sum.mistakes.push_back({of_both.front(), reduction_in(*one)->reduction,
                                reduction_in(*other)->reduction});
    return std::make_shared<const RowWeights>(std::move(sum));
}

/// Returns the weights of a sum over ranks. Null if two ranks have the same rows: their
/// values may be replicas or parts of one whole.
Weights reduction_of(const std::vector<Weights>& members, const Origin& origin) {
    RowWeights result;
    std::vector<std::pair<std::uint64_t, std::size_t>> contents;  // and the member
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
        figures.equal = figures.equal && nearly_equal(loss->factor, figures.factor);
    }
    return figures;
}

/// Returns whether the gradient is that of a mean over all rows, or of a sum. For squared
/// errors, half a mean or half a sum is usual, too.
bool is_right(const Figures& figures, bool squared) {
    const double each = figures.factor * figures.multiplier;
    const auto fits = [&](double wanted) {
        return nearly_equal(figures.total(), wanted) || nearly_equal(each, wanted);
    };
    return figures.equal && (fits(1) || (squared && fits(0.5)));
}

/// Returns whether each rank, or each micro-batch of a rank, took the mean over its own
/// rows.
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
        by_rank = by_rank && nearly_equal(known->second, loss->factor);
        by_micro_batch = by_micro_batch && loss->micro_batch >= 0 &&
                         places.emplace(loss->rank, loss->micro_batch).second &&
                         nearly_equal(part(*loss), part(*gradient.losses.front()));
    }
    by_rank = by_rank && figures.all_by_rank(figures.by_rank.begin()->second);
    return by_rank || by_micro_batch;
}

bool is_one_loss(const RowWeights& gradient) {
    const LossRows& first = *gradient.losses.front();
    return std::all_of(
        gradient.losses.begin(), gradient.losses.end(), [&](const auto& loss) {
            return loss->at == first.at && loss->operation == first.operation;
        });
}

/// Returns whether a dimension of the prediction has `n` elements: a loss may sum over
/// one dimension and average over the others.
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

/// Returns the steps whose factor is not 1: "the scaling by 1/4 at …".
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
    diagnosis.parties = {
        party(ranks_of(gradient),
              fmt::format("{}(factor {})", first.operation, factor_text(first.factor)),
              first.at)};
    for (const GradientStep& step : gradient.steps) {
        if (step.reduction) {
            diagnosis.communicator = step.reduction->team->name;
            diagnosis.members = step.reduction->team->ranks;
            diagnosis.sequence = static_cast<std::int64_t>(step.reduction->sequence);
            diagnosis.parties.push_back(step.reduction->party());
        } else if (step.factor != 1) {
            diagnosis.parties.push_back(party(
                ranks_of(gradient), "scale(" + factor_text(step.factor) + ")", step.at));
        }
    }
    diagnosis.details.push_back(
        fmt::format("{} at {} uses the gradient.", update.name, update.at.text()));
    return diagnosis;
}

std::string micro_batch_text(const LossRows& loss) {
    return loss.micro_batch < 0
               ? fmt::format("the rows of the loss at {}", loss.at.text())
               : fmt::format("micro-batch {}", loss.micro_batch);
}

/// F27: sums of micro-batches that were combined into a wrong total.
Diagnosis explain_accumulation(int rank, const Accumulated& mistake,
                               const DeviceOperation& update) {
    const CollectiveOrigin& first = *mistake.first;
    const CollectiveOrigin& last = mistake.second ? *mistake.second : first;
    const std::string rows = micro_batch_text(*mistake.loss);
    Diagnosis diagnosis = diagnosis_on(*last.team, last.sequence, "F27");
    diagnosis.parties = {first.party()};
    if (mistake.second) diagnosis.parties.push_back(last.party());
    if (mistake.lost) {
        diagnosis.sentence = fmt::format(
            "{} has overwritten a sum that {} made there earlier in the step: the "
            "gradient of {} is lost on rank {}, and {} at {} updates without it",
            last.text_with_line(), first.text_with_line(), rows, rank, update.name,
            update.at.text());
        diagnosis.cause =
            "Let each micro-batch's sum arrive in a buffer of its own, and add it to the "
            "gradient; or add the micro-batches up first and reduce once, after the "
            "last.";
        return diagnosis;
    }
    if (mistake.second) {
        diagnosis.sentence = fmt::format(
            "rank {} adds {} to {}, which has already summed the gradient of {}: that "
            "gradient counts more than once in what {} at {} uses",
            rank, last.text_with_line(), first.text_with_line(), rows, update.name,
            update.at.text());
        diagnosis.cause =
            "Each micro-batch must be reduced only once: after the reduce-scatter, set "
            "the whole gradient to zero before the next micro-batch adds to it.";
        return diagnosis;
    }
    diagnosis.sentence = fmt::format(
        "rank {} has added the result of {} twice, the second time at {}: it counts "
        "twice in the gradient that {} at {} uses",
        rank, first.text_with_line(), mistake.at.text(), update.name, update.at.text());
    diagnosis.cause = "Add what has arrived once, where it is waited for.";
    diagnosis.parties.push_back(party({rank}, "adds it again", mistake.at));
    diagnosis.parties.push_back(party({rank}, update.name, update.at));
    return diagnosis;
}

std::string unit_text(Unit unit) {
    return unit == Unit::rows ? "rows" : "elements";
}

/// Returns "factor 1/8 for 8 rows".
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

/// Returns what is wrong with the mean over n ranks; empty if the mistake is another.
std::string average_text(const RowWeights& gradient, const Figures& figures, Unit unit,
                         const std::vector<int>& group_sizes) {
    const int n = figures.ranks();
    const double m = figures.multiplier;
    const LossRows& loss = *gradient.losses.front();
    const std::string divisions = divisions_text(gradient);
    if (!figures.all_by_rank(1)) {
        if (!nearly_equal(figures.factors, 1) || !nearly_equal(m * n, 1)) return "";
        return fmt::format(
            "the loss at {} already divides by the number of all {} ({} on rank {}), and "
            "{} divides by {} again: the gradient is 1/{} of the mean's gradient",
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
        "a mean of means over unequal numbers of {}: the loss at {} takes a mean over {} "
        "{} on {}, but over {} on {}, and then both means count the same, so each of the "
        "first {} weighs {:.6g} and each of the others {:.6g}",
        unit_text(unit), (*few)->at.text(), count_of(**few, unit), unit_text(unit),
        place(**few), count_of(**many, unit), place(**many), unit_text(unit),
        (*few)->factor * m, (*many)->factor * m);
    return diagnosis;
}

/// Returns what is wrong with a gradient that updates a parameter: a wrong average (F21),
/// or a mean of unequal means (F28). Reports a mistake only if it alone explains the
/// weights. Returns nothing if all rows have an equal weight, which is 1 or makes the
/// weights add up to 1. `group_sizes` are the sizes of this rank's communicators.
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

using Ranges = Shadow<Weights>::Ranges;

/// Returns whether the range is only a part of a loss's gradient: then its weights are
/// not those of all rows of the loss.
bool is_cut(const Shadow<Weights>::Range& range) {
    return range.fact->is_loss_gradient &&
           (range.shift() != 0 ||
            range.end - range.begin != range.fact->losses.front()->bytes);
}

/// Returns the part of ranges that is in [from, to), counted from `from`.
Ranges clipped(const Ranges& ranges, std::int64_t from, std::int64_t to) {
    Ranges part;
    for (const auto& range : ranges)
        if (range.end > from && range.begin < to)
            part.push_back({std::max(range.begin, from) - from,
                            std::min(range.end, to) - from, range.start - from,
                            range.fact});
    return part;
}

RowWeightWatcher::RowWeightWatcher(const Engine& engine)
    : Tracker(engine.ranks().size()),
      engine_(engine),
      of_step_(engine.ranks().size()),
      groups_(engine.ranks().size()) {}

Weights RowWeightWatcher::weights_of(int rank, const Tensor& tensor) const {
    const Ranges ranges = known(rank).read(tensor);
    if (!cover(ranges, tensor.bytes())) return nullptr;
    Weights sum = zero_;
    for (const auto& range : ranges) {
        if (is_cut(range)) return nullptr;
        sum = sum_of(sum, range.fact);
    }
    // A part of this loss's gradient was overwritten.
    if (sum && sum->is_loss_gradient && ranges.size() > 1) return nullptr;
    return sum;
}

void RowWeightWatcher::executing(int rank, const DeviceOperation& operation) {
    Known& memory = known(rank);
    if (operation.is<ops::ScaleRows>() && mask_rows(rank, operation)) return;
    switch (operation.derivation.kind) {
        case Derivation::Kind::fill:
            if (operation.derivation.factor != 0) break;
            return memory.set(*operation.writes[0], zero_);
        case Derivation::Kind::copy:
            return copy_facts(rank, operation);
        case Derivation::Kind::loss_gradient:
            return begin_gradient(rank, operation);
        case Derivation::Kind::scale:
            return scale(rank, operation);
        case Derivation::Kind::update:
            check_update(rank, operation);
            break;
        case Derivation::Kind::random:
            break;
        case Derivation::Kind::part:
        case Derivation::Kind::function:
            if (const Weights made = made_by(rank, operation)) {
                for (const Tensor* written : operation.writes)
                    memory.set(*written, made);
                return;
            }
            break;
    }
    forget_results(rank, operation);
}

/// Returns null if the weights are not known, for example because the operation is not
/// linear in the one operand that comes from a loss.
Weights RowWeightWatcher::made_by(int rank, const DeviceOperation& operation) const {
    const Derivation& derivation = operation.derivation;
    if (derivation.factor != 1) return nullptr;
    Weights made = of_one_operand(rank, operation);
    if (!made) return nullptr;
    const bool part = derivation.kind == Derivation::Kind::part;
    if (part && made->is_loss_gradient) return nullptr;
    if (made->is_loss_gradient) {
        RowWeights further = *made;
        further.is_loss_gradient = false;
        made = std::make_shared<const RowWeights>(std::move(further));
    }
    if (!derivation.adds && !part) return made;
    for (const Tensor* target : operation.writes) {
        const Weights before = weights_of(rank, *target);
        if (!before || before->is_loss_gradient) return nullptr;
        made = sum_of(before, made);
        if (!made) return nullptr;
    }
    return derivation.adds ? with_addend(rank, operation, std::move(made)) : made;
}

/// If the operation has added a collective's result to a sum, notes that in the weights
/// of the sum and returns them.
Weights RowWeightWatcher::with_addend(int rank, const DeviceOperation& operation,
                                      Weights sum) const {
    const Tensor& source = *operation.reads.back();
    const auto* const range = known(rank).whole(source);
    if (!operation.is<ops::Add>() || range == nullptr) return sum;
    const GradientStep* const reduced = reduction_in(*range->fact);
    if (reduced == nullptr || !range->fact->added.empty()) return sum;
    const std::pair addend{reduced->reduction, source.offset_bytes() - range->start};
    RowWeights noted = *sum;
    if (std::ranges::find(noted.added, addend) != noted.added.end())
        noted.mistakes.push_back(
            {range->fact->losses.front(), reduced->reduction, nullptr, operation.at});
    noted.added.push_back(addend);
    return std::make_shared<const RowWeights>(std::move(noted));
}

/// If exactly one operand has weights, and the operation is linear in this operand,
/// returns its weights; else null.
Weights RowWeightWatcher::of_one_operand(int rank,
                                         const DeviceOperation& operation) const {
    const Derivation& derivation = operation.derivation;
    const bool part = derivation.kind == Derivation::Kind::part;
    Weights made;
    for (std::size_t i = 0; i < operation.reads.size(); ++i) {
        const Tensor& read = *operation.reads[i];
        const bool added_to =
            derivation.adds && std::find(operation.writes.begin(), operation.writes.end(),
                                         &read) != operation.writes.end();
        if (added_to || known(rank).knows_nothing_of(read)) continue;
        const Weights weights = weights_of(rank, read);
        if (weights && weights->zero() && !derivation.adds && !part) continue;
        // A scaled value is followed only into sums: elsewhere the scaling may be a part
        // of the model.
        const bool sums = derivation.adds && operation.reads.size() == 2 &&
                          read.elements() == operation.writes[0]->elements();
        const bool follows = weights && (derivation.is_linear_in(i) || part) && !made &&
                             (weights->steps.empty() || part || sums);
        if (!follows) return nullptr;
        made = weights;
    }
    return made;
}

void RowWeightWatcher::begin_gradient(int rank, const DeviceOperation& operation) {
    const Tensor& prediction = *operation.reads[0];
    const Tensor& gradient = *operation.writes[0];
    const VirtualDevice& device = engine_.ranks()[rank]->virtual_device;
    // If the columns of a loss are sharded, all ranks with a shard have the same
    // operands, except for the logits.
    const bool is_shard = operation.reads.size() > 2;
    std::uint64_t content = 0;
    for (std::size_t i = is_shard ? 1 : 0; i < operation.reads.size(); ++i)
        content = mixed(content, hash_of(*operation.reads[i]));
    RowWeights weights;
    weights.losses.push_back(std::make_shared<const LossRows>(
        LossRows{rank, device.micro_batch(), operation.name, operation.at,
                 operation.derivation.factor, prediction.shape(),
                 operation.is<ops::SquaredErrorBackward>(), gradient.bytes(), content}));
    weights.is_loss_gradient = true;
    RankLosses& mine = of_step_[rank];
    if (std::exchange(mine.stepped, false)) mine.losses.clear();
    constexpr std::size_t kNoted = 4096;  // for runs that never update
    if (mine.losses.size() < kNoted) mine.losses.push_back(weights.losses.front());
    known(rank).set(gradient, std::make_shared<const RowWeights>(std::move(weights)));
}

void RowWeightWatcher::scale(int rank, const DeviceOperation& operation) {
    const double factor = operation.derivation.factor;
    if (factor == 1) return;
    known(rank).change(*operation.writes[0], [&](Weights& weights) {
        if (weights->zero()) return true;
        if (weights->is_loss_gradient) return false;
        RowWeights scaled = *weights;
        scaled.steps.push_back({nullptr, factor, operation.at});
        weights = std::make_shared<const RowWeights>(std::move(scaled));
        return true;
    });
}

/// Counts the rows that a mask of zeros and ones keeps in a loss's gradient. Returns
/// false if this is no such mask.
bool RowWeightWatcher::mask_rows(int rank, const DeviceOperation& operation) {
    const Tensor& gradient = *operation.writes[0];
    const Weights weights = weights_of(rank, gradient);
    if (!engine_.options().numbers || !weights || !weights->is_loss_gradient)
        return false;
    const HostTensor factors = values_of(*operation.reads.back());
    LossRows masked = *weights->losses.front();
    masked.kept = 0;
    for (std::int64_t row = 0; row < factors.elements(); ++row) {
        const double factor = factors.at(row);
        if (factor != 0 && factor != 1) return false;
        *masked.kept += factor == 1;
    }
    masked.content = mixed(masked.content, hash_of_bits(factors.data(), factors.bytes()));
    RowWeights kept = *weights;
    kept.losses = {std::make_shared<const LossRows>(masked)};
    std::ranges::replace(of_step_[rank].losses, weights->losses.front(),
                         kept.losses.front());
    known(rank).set(gradient, std::make_shared<const RowWeights>(std::move(kept)));
    return true;
}

/// Returns whether the gradient has all of the rank's losses of this step. If it has only
/// some of them, as with two heads that take turns, its weights are not those of a mean.
bool RowWeightWatcher::has_all_losses(int rank, const RowWeights& gradient) const {
    const auto& all = gradient.losses;
    if (std::none_of(all.begin(), all.end(),
                     [&](const auto& loss) { return loss->rank == rank; }))
        return true;
    const auto& mine = of_step_[rank].losses;
    return std::all_of(mine.begin(), mine.end(), [&](const auto& loss) {
        return std::find(all.begin(), all.end(), loss) != all.end();
    });
}

/// Returns the sizes of the communicators that the rank is in, each size once.
const std::vector<int>& RowWeightWatcher::group_sizes(int rank) {
    GroupSizes& groups = groups_[rank];
    for (; groups.seen < engine_.teams().size(); ++groups.seen) {
        const Team& team = *engine_.teams()[groups.seen];
        if (team.has(rank) && std::find(groups.sizes.begin(), groups.sizes.end(),
                                        team.size()) == groups.sizes.end())
            groups.sizes.push_back(team.size());
    }
    return groups.sizes;
}

/// Reports F27 if the gradient has a micro-batch twice, or has lost one of
/// this rank's micro-batches of this step.
void RowWeightWatcher::check_accumulation(int rank, const RowWeights& gradient,
                                          const DeviceOperation& update) const {
    const auto has = [](const auto& losses, const auto& loss) {
        return std::ranges::find(losses, loss) != losses.end();
    };
    for (const Accumulated& mistake : gradient.mistakes)
        if (!mistake.lost || (!has(gradient.losses, mistake.loss) &&
                              has(of_step_[rank].losses, mistake.loss)))
            report(explain_accumulation(rank, mistake, update));
}

/// Checks every part of the gradient that is known. In a range of a flat buffer, only the
/// last layers may be known.
void RowWeightWatcher::check_update(int rank, const DeviceOperation& operation) {
    of_step_[rank].stepped = true;
    Weights before;
    for (const auto& range : known(rank).read(gradient_of(operation)))
        if (!is_cut(range) && std::exchange(before, range.fact) != range.fact)
            check_gradient(rank, range.fact, operation);
}

void RowWeightWatcher::check_gradient(int rank, const Weights& weights,
                                      const DeviceOperation& update) {
    if (weights->zero() || weights->is_loss_gradient) return;
    check_accumulation(rank, *weights, update);
    if (!has_all_losses(rank, *weights)) return;
    // All ranks of a reduction have the same weights.
    const std::vector<int>& sizes = group_sizes(rank);
    const auto judged = right_.find(weights);
    if (judged != right_.end() && judged->second == sizes) return;
    if (auto diagnosis = explain_weights(*weights, update, sizes))
        report(std::move(*diagnosis));
    constexpr std::size_t kJudged = 256;
    if (right_.size() >= kJudged) right_.clear();
    right_[weights] = sizes;
}

// Between ranks.

Ranges RowWeightWatcher::reduced(const Meeting& meeting, const Origin& origin) const {
    std::vector<Ranges> inputs;
    for (const Posted* side : meeting.arrived)
        inputs.push_back(known(side->launch->rank).read(side->operation.input));
    Ranges result;
    const Ranges& first = inputs.front();
    for (std::size_t i = 0; i < first.size(); ++i) {
        std::vector<Weights> members;
        for (const Ranges& input : inputs) {
            if (input.size() != first.size() || input[i].begin != first[i].begin ||
                input[i].end != first[i].end)
                return {};
            members.push_back(input[i].fact);
        }
        if (Weights sum = reduction_of(members, origin))
            result.push_back(
                {first[i].begin, first[i].end, first[i].begin, std::move(sum)});
    }
    return result;
}

void RowWeightWatcher::collective_begins(const Team& team, const Meeting& meeting) {
    const CommOperation& first = meeting.first->operation;
    const VerbFacts verb = facts_of(first.verb);
    if (!verb.moves() || team.size() == 1) return;
    Ranges whole;  // of the whole result
    if (verb.reduces) {
        if (first.is_sum()) whole = reduced(meeting, origin_of(meeting));
    } else if (verb.is_alike()) {
        whole = moved(meeting);
    }
    for (const Posted* side : holders_of(meeting)) {
        const Tensor& output = side->operation.output;
        const std::int64_t from =
            verb.scatters() ? side->launch->member * output.bytes() : 0;
        write_over(side->launch->rank, output,
                   clipped(whole, from, from + output.bytes()));
    }
}

/// Notes the result of a collective. If the result overwrites an older sum of gradients
/// with terms of this rank, notes that the older sum is lost.
void RowWeightWatcher::write_over(int rank, const Tensor& output, Ranges made) {
    const Ranges past = known(rank).read(output);
    for (auto& range : made) {
        const auto before = std::ranges::find_if(past, [&](const auto& old) {
            return old.begin < range.end && range.begin < old.end;
        });
        const GradientStep* const sum = reduction_in(*range.fact);
        if (before == past.end() || sum == nullptr) continue;
        const GradientStep* const old_sum = reduction_in(*before->fact);
        if (old_sum == nullptr) continue;
        RowWeights noted = *range.fact;
        for (const auto& loss : before->fact->losses)
            if (loss->rank == rank)
                noted.mistakes.push_back(
                    {loss, old_sum->reduction, sum->reduction, {}, true});
        range.fact = std::make_shared<const RowWeights>(std::move(noted));
    }
    known(rank).put(output, std::move(made));
}

}  // namespace

std::unique_ptr<Watcher> watch_row_weights(Engine& engine) {
    return std::make_unique<RowWeightWatcher>(engine);
}

}  // namespace lockstep::sim
