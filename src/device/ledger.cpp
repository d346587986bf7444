#include "src/device/ledger.hpp"

#include <algorithm>

namespace lockstep {

void Ledger::add(MemoryCategory category, std::int64_t bytes) {
    const auto index = static_cast<std::size_t>(category);
    total_ += bytes;
    report_.current[index] += bytes;
    report_.category_peak[index] =
        std::max(report_.category_peak[index], report_.current[index]);
    if (total_ > report_.peak) {
        report_.peak = total_;
        report_.at_peak = report_.current;
    }
}

void Ledger::remove(MemoryCategory category, std::int64_t bytes) noexcept {
    total_ -= bytes;
    report_.current[static_cast<std::size_t>(category)] -= bytes;
}

}  // namespace lockstep
