#include "lessons/assignments/mesh/grading/causes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "src/comm/mesh_shape.hpp"

namespace lockstep::lessons::mesh {

bool is_near(double got, double expected, double bound) {
    return std::abs(got - expected) <= bound * std::abs(expected);
}

namespace {

using Names = std::vector<std::string>;

/// The choices of one axis or more, of those that have several ranks; fewer axes first.
std::vector<Names> choices_of_axes(const MeshCase& of) {
    Names axes;
    for (const Mesh::Axis& axis : of.axes)
        if (axis.size > 1) axes.push_back(axis.name);
    std::vector<Names> choices;
    for (unsigned bits = 1; bits < 1U << axes.size(); ++bits) {
        Names& chosen = choices.emplace_back();
        for (std::size_t i = 0; i < axes.size(); ++i)
            if ((bits >> i & 1U) != 0) chosen.push_back(axes[i]);
    }
    std::ranges::stable_sort(choices, {}, &Names::size);
    return choices;
}

std::string joined(const Names& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i)
        text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
    return text;
}

int ranks_along(const MeshCase& of, const Names& axes) {
    int ranks = 1;
    for (const std::string& axis : axes)
        ranks *= of.size(axis);
    return ranks;
}

bool all_near(const std::vector<double>& left, double expected, double bound = kBound) {
    return std::ranges::all_of(left,
                               [&](double one) { return is_near(one, expected, bound); });
}

/// Returns the axes along which what ranks left adds up to what is expected.
std::optional<Names> missing_sum(const MeshCase& of, const std::vector<double>& left,
                                 double expected) {
    for (const Names& axes : choices_of_axes(of)) {
        std::vector<double> sums;
        for (const std::vector<int>& plane : MeshShape(of.axes).planes(axes))
            sums.push_back(std::accumulate(
                plane.begin(), plane.end(), 0.0,
                [&](double sum, int rank) { return sum + left.at(rank); }));
        if (all_near(sums, expected)) return axes;
    }
    return std::nullopt;
}

/// "of dp, or of tp": the axes whose ranks are so many.
std::string axes_of_size(const MeshCase& of, int ranks) {
    std::string text;
    for (const Names& axes : choices_of_axes(of))
        if (ranks_along(of, axes) == ranks)
            text += (text.empty() ? "" : ", or of ") + joined(axes);
    return text;
}

struct Factor {
    int ranks = 1;
    bool too_large = true;
};

/// Returns whether all are so many times too large or too small.
std::optional<Factor> factor_of(const MeshCase& of, const std::vector<double>& ratios) {
    for (const Names& axes : choices_of_axes(of)) {
        const int ranks = ranks_along(of, axes);
        if (all_near(ratios, ranks)) return Factor{ranks, true};
        if (all_near(ratios, 1.0 / ranks)) return Factor{ranks, false};
    }
    return std::nullopt;
}

std::vector<double> ratios_to(const std::vector<double>& left, double expected) {
    std::vector<double> ratios;
    ratios.reserve(left.size());
    for (const double one : left)
        ratios.push_back(one / expected);
    return ratios;
}

/// Returns some of the first batch's sequences, but not all, of which it is the mean.
std::optional<std::vector<int>> mean_of_some(const OneDevice& alone, double left) {
    const std::size_t count = alone.of_sequences.size();
    for (unsigned bits = 1; bits + 1 < 1U << count; ++bits) {
        std::vector<int> chosen;
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i)
            if ((bits >> i & 1U) != 0) {
                chosen.push_back(static_cast<int>(i));
                sum += alone.of_sequences[i];
            }
        if (is_near(left, sum / static_cast<double>(chosen.size()))) return chosen;
    }
    return std::nullopt;
}

/// The mean over ranks along dp of each one's own mean.
bool is_mean_of_means(const MeshCase& of, const OneDevice& alone, double left) {
    const int ranks = of.size("dp");
    for (const Dealing dealing : {Dealing::in_turn, Dealing::in_stretches}) {
        std::vector<double> sums(ranks), own(ranks);
        for (int i = 0; i < of.job.sequences; ++i) {
            const int rank = dealt_to(dealing, i, of.job.sequences, ranks);
            sums.at(rank) += alone.of_sequences.at(i);
            own.at(rank) += 1;
        }
        double mean = 0;
        for (int rank = 0; rank < ranks; ++rank)
            mean += sums[rank] / own[rank] / ranks;
        if (is_near(left, mean)) return true;
    }
    return false;
}

std::string factor_text(const MeshCase& of, const Factor& factor) {
    return fmt::format("it is {} times too {}, as many as there are ranks of {}",
                       factor.ranks, factor.too_large ? "large" : "small",
                       axes_of_size(of, factor.ranks));
}

constexpr const char* kShare =
    "a sequence's tokens on one rank have the weight 1 / (sequences of the batch x ranks "
    "of cp)";

}  // namespace

std::string loss_cause(const MeshCase& of, const OneDevice& alone,
                       const std::vector<double>& left) {
    const double expected = alone.losses.front();
    if (const auto axes = missing_sum(of, left, expected))
        return fmt::format(
            "what the ranks along {} left adds up to the loss of the batch: each has its "
            "share, and they are to be added up",
            joined(*axes));
    if (const auto factor = factor_of(of, ratios_to(left, expected))) {
        const char* const why =
            !factor->too_large
                ? ". Shares that weigh so much add up to the mean, and nothing divides "
                  "their sum once more: "
            : factor->ranks == of.size("tp")
                ? ". Ranks of tp have the same loss, and add nothing to each other's; "
                : ": ";
        return factor_text(of, *factor) + why + kShare;
    }
    if (of.job.sequences % of.size("dp") != 0 &&
        is_mean_of_means(of, alone, left.front()))
        return fmt::format(
            "it is the mean of the replicas' means, but they have unequal numbers of "
            "sequences: {}",
            kShare);
    if (const auto some = mean_of_some(alone, left.front()))
        return fmt::format(
            "rank 0 left the mean over sequences {} of the {} alone: ranks along dp have "
            "sequences of their own, all of them together the batch, and each tells the "
            "others of its own",
            fmt::join(*some, ", "), alone.of_sequences.size());
    return "look at what each rank reads: of the sequences, those that are its own along "
           "dp (mesh.coordinate(\"dp\"), not its rank in the world); of each, the tokens "
           "that the kit deals it (dealt_rows(sequence, kit.tokens)), as targets, too";
}

namespace {

/// Sums of squares of parts of a gradient: what ranks of tp share out, and what all of
/// them have.
struct Squares {
    double shared_out = 0;
    double alike = 0;
    double all() const { return shared_out + alike; }
};

double squares_of(const HostTensor& tensor) {
    double sum = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        sum += tensor.at(i) * tensor.at(i);
    return sum;
}

/// Of the whole gradient, or of what one rank has.
Squares squares_of(const OneDevice& alone, const Layout& layout,
                   std::optional<int> rank = {}) {
    Squares squares;
    for (const auto& [name, whole] : alone.gradients) {
        const bool shared_out = layout.is_shared_out(name);
        (shared_out ? squares.shared_out : squares.alike) +=
            squares_of(rank ? shard_of(whole, layout.parts.at(*rank).at(name)) : whole);
    }
    return squares;
}

/// Returns the numbers of ranks of the choices of axes, and 1.
std::set<int> possible_counts(const MeshCase& of) {
    std::set<int> counts{1};
    for (const Names& axes : choices_of_axes(of))
        counts.insert(ranks_along(of, axes));
    return counts;
}

/// "once", "4 times".
std::string times_text(int times) {
    return times == 1 ? "once" : fmt::format("{} times", times);
}

}  // namespace

std::string norm_cause(const MeshCase& of, const OneDevice& alone, const Layout& layout,
                       const std::vector<double>& left) {
    constexpr double kRoughly = 1e-4;
    const Squares whole = squares_of(alone, layout);
    const double most = static_cast<double>(of.job.most_norm) / 1000;
    if (all_near(left, std::sqrt(whole.all()), kRoughly))
        return "it is the norm, and not its square";
    if (whole.all() > most * most && all_near(left, most * most, kRoughly))
        return "it is that of the gradient when it was clipped; asked is that before";
    if (const auto axes = missing_sum(of, left, whole.all()))
        return fmt::format(
            "what the ranks along {} left adds up to it: each has the squares of what it "
            "holds, and they are to be added up",
            joined(*axes));
    const std::set<int> counts = possible_counts(of);
    for (const int shared_out : counts)
        for (const int alike : counts)
            if (all_near(left, shared_out * whole.shared_out + alike * whole.alike))
                return fmt::format(
                    "what the ranks of tp share out counts {}, what all of them have "
                    "alike (norms, some biases, positions) {}: each number of the model "
                    "is to count once",
                    times_text(shared_out), times_text(alike));
    bool is_own = true;
    for (std::size_t rank = 0; rank < left.size(); ++rank)
        is_own =
            is_own &&
            is_near(left[rank], squares_of(alone, layout, static_cast<int>(rank)).all());
    if (is_own && of.size("tp") > 1)
        return "it has what one rank of tp holds: the parts of the others are not in it";
    return "it is neither a sum over too few ranks nor one that counts parts several "
           "times. It has to be taken of gradients that are whole, once a step";
}

namespace {

double largest(const HostTensor& tensor) {
    double most = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        most = std::max(most, std::abs(tensor.at(i)));
    return most;
}

void add(HostTensor& sum, const HostTensor& term) {
    for (std::int64_t i = 0; i < sum.elements(); ++i)
        sum.set(i, sum.at(i) + term.at(i));
}

bool are_near(const HostTensor& got, const HostTensor& expected, double factor = 1) {
    const double bound = 1e-8 * factor * largest(expected) + 1e-13;
    for (std::int64_t i = 0; i < expected.elements(); ++i)
        if (!(std::abs(got.at(i) - factor * expected.at(i)) <= bound)) return false;
    return true;
}

/// A parameter on a rank.
struct Place {
    int rank = 0;
    std::string name;
};

/// What ranks stepped by, beside what they should have stepped by.
class Steps {
  public:
    Steps(const MeshCase& of, const OneDevice& alone, const Layout& layout,
          const Parts& stepped)
        : of_(of), layout_(layout), stepped_(stepped) {
        for (int rank = 0; rank < of.ranks(); ++rank)
            for (const auto& [name, whole] : alone.gradients) {
                const HostTensor own = shard_of(whole, layout.parts.at(rank).at(name));
                if (!are_near(got({rank, name}), own)) wrong_.push_back({rank, name});
                expected_.emplace(std::pair(rank, name), own);
            }
    }

    const std::vector<Place>& wrong() const { return wrong_; }
    const HostTensor& got(const Place& place) const {
        return stepped_.at(place.rank).at(place.name);
    }
    const HostTensor& expected(const Place& place) const {
        return expected_.at({place.rank, place.name});
    }

    /// Some elements are right, and all others have not changed.
    bool is_partly_updated() const {
        bool some = false;
        for (const Place& place : wrong_) {
            const HostTensor &one = got(place), &right = expected(place);
            for (std::int64_t i = 0; i < one.elements(); ++i) {
                const bool stays = one.at(i) == 0;
                const bool steps =
                    std::abs(one.at(i) - right.at(i)) <= 1e-8 * largest(right) + 1e-13;
                if (!stays && !steps) return false;
                some = some || !stays;
            }
        }
        return some || wrong_.size() < expected_.size();
    }
    bool is_unchanged() const {
        return std::ranges::all_of(
            wrong_, [&](const Place& place) { return largest(got(place)) == 0; });
    }
    /// Returns whether what ranks along those axes stepped by adds up to what is right,
    /// wherever they have the same part.
    bool adds_up_along(const Names& axes) const {
        return std::ranges::all_of(wrong_, [&](const Place& place) {
            HostTensor sum(got(place).shape(), got(place).dtype());
            for (const int rank : MeshShape(of_.axes).plane(place.rank, axes)) {
                const auto& part = layout_.parts.at(rank).at(place.name);
                if (part != layout_.parts.at(place.rank).at(place.name)) continue;
                add(sum, got({rank, place.name}));
            }
            return are_near(sum, expected(place));
        });
    }
    bool is_times_too_large(double factor) const {
        return std::ranges::all_of(wrong_, [&](const Place& place) {
            return are_near(got(place), expected(place), factor);
        });
    }
    /// Returns whether each element is what some replica has if terms are added up along
    /// those axes alone: ranks may update ranges, and tell the others.
    bool has_sums_along(const Names& axes, const Parts& terms) const {
        const MeshShape shape(of_.axes);
        return std::ranges::all_of(wrong_, [&](const Place& place) {
            std::vector<HostTensor> sums;
            for (const int replica : shape.plane(place.rank, {"dp", "cp"})) {
                sums.push_back(HostTensor(got(place).shape(), got(place).dtype()));
                for (const int rank : shape.plane(replica, axes))
                    add(sums.back(), terms.at(rank).at(place.name));
            }
            const double bound = 1e-8 * largest(expected(place)) + 1e-13;
            for (std::int64_t i = 0; i < got(place).elements(); ++i)
                if (std::ranges::none_of(sums, [&](const HostTensor& sum) {
                        return std::abs(sum.at(i) - got(place).at(i)) <= bound;
                    }))
                    return false;
            return true;
        });
    }
    /// Returns two ranks that have the same part of the place, and different values.
    std::optional<std::pair<int, Place>> drift() const {
        for (const Place& place : wrong_)
            for (int rank = 0; rank < of_.ranks(); ++rank)
                if (layout_.parts.at(rank).at(place.name) ==
                        layout_.parts.at(place.rank).at(place.name) &&
                    !are_near(got({rank, place.name}), got(place)))
                    return std::pair(rank, place);
        return std::nullopt;
    }
    /// Says which parameters are wrong.
    std::string which() const {
        std::set<std::string> names, all, alike;
        for (const Place& place : wrong_)
            names.insert(place.name);
        for (const auto& [name, part] : layout_.parts.front()) {
            all.insert(name);
            if (!layout_.is_shared_out(name)) alike.insert(name);
        }
        const std::string& first = wrong_.front().name;
        if (names == all) return "all gradients";
        if (names == alike)
            return fmt::format("the gradients of what all ranks of tp have, as {},",
                               first);
        if (names.size() == 1) return fmt::format("the gradient of {}", first);
        return fmt::format("the gradients of {} and {} more", first, names.size() - 1);
    }

  private:
    const MeshCase& of_;
    const Layout& layout_;
    const Parts& stepped_;
    std::vector<Place> wrong_;
    std::map<std::pair<int, std::string>, HostTensor> expected_;
};

/// Says along which axes terms were not added up; empty if that does not explain it.
std::string missing_terms(const MeshCase& of, const Steps& steps) {
    for (const Dealing dealing : {Dealing::in_turn, Dealing::in_stretches}) {
        const Parts terms = terms_of(of, dealing);
        for (const Names& axes : {Names{}, Names{"dp"}, Names{"cp"}}) {
            if (!steps.has_sums_along(axes, terms)) continue;
            if (axes.empty())
                return steps.which() +
                       " have the terms of one rank alone: those of all ranks along dp "
                       "and cp are to be added up";
            return fmt::format(
                "{} have the sum over the ranks along {} alone: ranks along {} have "
                "terms of their own, too",
                steps.which(), axes.front(), axes.front() == "dp" ? "cp" : "dp");
        }
    }
    return "";
}

}  // namespace

std::string gradient_cause(const MeshCase& of, const OneDevice& alone,
                           const Layout& layout, const Parts& stepped) {
    const Steps steps(of, alone, layout, stepped);
    if (steps.wrong().empty()) return "";
    const std::string which = steps.which();
    if (steps.is_unchanged() && which == "all gradients")
        return "the weights are those of the beginning: there was no update, or its "
               "values are not in what was left";
    if (steps.is_partly_updated())
        return "some weights have their new values, and all others those of the "
               "beginning: the new values of what other ranks update have to come from "
               "them";
    // Ranks that all have the n-th part add up to what is right, too.
    for (const Names& axes : choices_of_axes(of)) {
        const int ranks = ranks_along(of, axes);
        if (steps.is_times_too_large(ranks))
            return fmt::format(
                "{} are {} times too large, as many as there are ranks of {}. Along dp "
                "and cp ranks have terms of a sum, whose weights make it a mean; along "
                "tp each has the whole gradient of what it holds",
                which, ranks, axes_of_size(of, ranks));
        if (steps.is_times_too_large(1.0 / ranks))
            return fmt::format(
                "{} are {} times too small, as many as there are ranks of {}: the "
                "weights of micro-batches make a mean of the sum, and nothing divides it "
                "once more",
                which, ranks, axes_of_size(of, ranks));
    }
    for (const Names& axes : choices_of_axes(of))
        if (steps.adds_up_along(axes))
            return fmt::format(
                "{} have the terms of one rank alone: what the ranks along {} stepped by "
                "adds up to what is right",
                which, joined(axes));
    if (std::string missing = missing_terms(of, steps); !missing.empty()) return missing;
    if (const auto drift = steps.drift())
        return fmt::format(
            "ranks {} and {} hold the same part of {}, and end with different values",
            std::min(drift->first, drift->second.rank),
            std::max(drift->first, drift->second.rank), drift->second.name);
    return fmt::format("{} are wrong, {} on rank {} first", which,
                       steps.wrong().front().name, steps.wrong().front().rank);
}

}  // namespace lockstep::lessons::mesh
