#include "sim/check/row_weights.hpp"

#include <algorithm>

namespace lockstep::sim {

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

}  // namespace lockstep::sim
