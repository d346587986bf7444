#include "lessons/06_pipedream/weight_rule.hpp"

#include <algorithm>

namespace lockstep::lessons {

WeightsRead WeightRule::forward(int stage, int micro_batch) const {
    if (!late.empty())
        return {std::max(micro_batch - late[static_cast<std::size_t>(stage)], 0)};
    if (schedule == "1f1b") return {newest(micro_batch)};
    // W(t + 1) = W(t) - f'(W(t - 1)): Narayanan et al. 2021, 2006.09503, section 3.1.
    if (schedule == "pipedream-2bw") return {std::max(newest(micro_batch) - 1, 0)};
    // Harlap et al. 2018, 1806.03377, section 3.3, whose stages count from 1.
    if (schedule == "pipedream-vertical")
        return {std::max(micro_batch - (stages - 1), 0)};
    const int newest_there = std::max(micro_batch - (stages - 1 - stage), 0);
    // Chen et al. 2018, 1809.02839, section 4: what backward will find.
    if (schedule == "spectrain")
        return {newest_there, newest(micro_batch) - newest_there};
    return {newest_there};
}

WeightsRead WeightRule::backward(int stage, int micro_batch) const {
    const int now = newest(micro_batch);
    if (schedule == "unstashed" || schedule == "spectrain") return {now};
    const WeightsRead read = forward(stage, micro_batch);
    // Yang et al. 2021, 1910.05124, section 3.2: what forward has read.
    if (schedule == "pipemare") return {now, read.version - now};
    return read;
}

}  // namespace lockstep::lessons
