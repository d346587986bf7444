#include "src/device/work.hpp"

#include <vector>

#include "src/core/require.hpp"

namespace lockstep {

void Work::wait(SourceLine at) {
    require(state_ != nullptr, at,
            "wait: this Work has no operation: none was assigned to it, or it was moved "
            "from, or "
            "wait_any has returned it");
    state_->wait(at);
}

std::size_t wait_any(std::span<Work> works, SourceLine at) {
    std::vector<PendingWork*> pending;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < works.size(); ++i) {
        if (works[i].state_ == nullptr) continue;
        pending.push_back(works[i].state_.get());
        places.push_back(i);
    }
    require(!pending.empty(), at,
            "wait_any: {} Works were given, but none is left to wait for", works.size());
    const std::size_t place = places[pending.front()->wait_any(pending, at)];
    works[place].state_.reset();
    return place;
}

}  // namespace lockstep
