#pragma once

#include <map>

#include "src/nn/module.hpp"
#include "src/pipeline/plan.hpp"

namespace lockstep {

/// Weights of one stage's chunks that optimizer steps have replaced and
/// that its schedule still reads. Nothing is copied where none are.
class WeightStash {
  public:
    WeightStash(Device& device, const PipelinePlan& plan, int stage);

    /// Before an optimizer step: where the weights are read again later,
    /// they stay here, and the step changes a copy.
    void before_update(Place place, Module& chunk);
    /// Runs `work` of the instruction with the weights that it reads.
    template <typename Work>
    auto with_weights(Place place, Module& chunk, Work&& work) {
        exchange(place, chunk);
        auto result = work();
        exchange(place, chunk);
        drop(place);
        return result;
    }

  private:
    using Values = std::vector<Tensor>;

    /// The chunk's weights and those that the instruction reads change
    /// places.
    void exchange(Place place, Module& chunk);
    /// Forgets what nobody reads after the instruction.
    void drop(Place place);
    std::pair<int, int> key(Place place) const {
        return {plan_.schedule().at(place).chunk,
                plan_.versions().read(place)};
    }

    Device& device_;
    const PipelinePlan& plan_;
    /// By chunk and version: the last position that reads it.
    std::map<std::pair<int, int>, int> last_read_;
    std::map<std::pair<int, int>, Values> kept_;
};

}  // namespace lockstep
