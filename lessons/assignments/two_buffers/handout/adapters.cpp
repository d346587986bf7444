#include "adapters.hpp"

#include "two_buffers.hpp"

using namespace lockstep;

Schedule adapters::two_buffers(int stages, int micro_batches, int per_update) {
    return ::two_buffers(stages, micro_batches, per_update);
}

std::vector<Kept> adapters::kept_versions(const std::vector<Instruction>& list) {
    return ::kept_versions(list);
}

std::int64_t adapters::most_bytes(const Choice& choice, int stages, int stage,
                                  const StageBytes& bytes) {
    return ::most_bytes(choice, stages, stage, bytes);
}

std::optional<Choice> adapters::fastest(const Setting& setting) {
    return ::fastest(setting);
}
