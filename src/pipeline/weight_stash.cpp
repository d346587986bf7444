#include "src/pipeline/weight_stash.hpp"

namespace lockstep {

WeightStash::WeightStash(Device& device, const PipelinePlan& plan,
                         int stage)
    : device_(device), plan_(plan) {
    const auto& list = plan.schedule().of(stage);
    for (int position = 0; position < static_cast<int>(list.size());
         ++position) {
        const Place place{stage, position};
        const InstructionKind kind = plan.schedule().at(place).kind;
        if (has_micro_batch(kind) && !is_message(kind))
            last_read_[key(place)] = position;
    }
}

void WeightStash::before_update(Place place, Module& chunk) {
    const auto found = last_read_.find(
        {plan_.schedule().at(place).chunk, plan_.versions().newest(place)});
    if (found == last_read_.end() || found->second < place.position) return;
    Values& values = kept_[found->first];
    const MemoryScope scope(device_, MemoryCategory::parameters);
    for (const Parameter* parameter : chunk.parameters()) {
        values.push_back(
            device_.empty(parameter->shape(), parameter->value.dtype()));
        device_.copy(values.back(), parameter->value);
    }
}

void WeightStash::exchange(Place place, Module& chunk) {
    const auto found = kept_.find(key(place));
    if (found == kept_.end()) return;
    std::size_t i = 0;
    for (Parameter* parameter : chunk.parameters())
        std::swap(parameter->value, found->second[i++]);
}

void WeightStash::drop(Place place) {
    if (kept_.empty() || last_read_.at(key(place)) > place.position) return;
    kept_.erase(key(place));
}

}  // namespace lockstep
