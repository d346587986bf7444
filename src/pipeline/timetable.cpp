#include "src/pipeline/timetable.hpp"

namespace lockstep {

void Timetable::add_round_trip(int micro_batch, int first, int chunk) {
    const int parts = schedule_.part_count();
    for (int stage = 0; stage < schedule_.stages; ++stage) {
        const int part = schedule_.part(stage, chunk);
        slots_[stage][first + part] = {InstructionKind::forward, micro_batch, chunk};
        slots_[stage][first + 2 * parts - 1 - part] = {InstructionKind::backward,
                                                       micro_batch, chunk};
    }
}

std::vector<std::vector<Instruction>> Timetable::orders() const {
    std::vector<std::vector<Instruction>> orders(slots_.size());
    for (std::size_t stage = 0; stage < slots_.size(); ++stage)
        for (const auto& [slot, pass] : slots_[stage])
            orders[stage].push_back(pass);
    return orders;
}

}  // namespace lockstep
