#include "sim/check/row_figures.hpp"

#include <set>

namespace lockstep::sim {

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

bool is_right(const Figures& figures, bool squared) {
    const double each = figures.factor * figures.multiplier;
    const auto fits = [&](double wanted) {
        return nearly_equal(figures.total(), wanted) || nearly_equal(each, wanted);
    };
    return figures.equal && (fits(1) || (squared && fits(0.5)));
}

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

}  // namespace lockstep::sim
