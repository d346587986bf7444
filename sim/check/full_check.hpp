#pragma once

#include <memory>
#include <vector>

#include "sim/check/watcher.hpp"
#include "src/report/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// The watchers of a run under CheckLevel::full; none otherwise, and then a call is one
/// comparison.
class FullCheck {
  public:
    FullCheck() = default;
    /// All there are.
    void watch(Engine& engine);

    /// Calls `event` on each watcher: tell(&Watcher::quiet).
    template <typename Event, typename... Arguments>
    void tell(Event event, Arguments&&... arguments) const {
        for (const std::unique_ptr<Watcher>& watcher : watchers_)
            ((*watcher).*event)(arguments...);
    }

    /// The same for what `rank` does: tell_of(rank, &Watcher::launched, batch). A mistake
    /// ends the run, also where the program catches what is thrown.
    template <typename Event, typename... Arguments>
    void tell_of(int rank, Event event, Arguments&&... arguments) const {
        if (!on()) return;
        try {
            tell(event, arguments...);
        } catch (const FaultError&) {
            note_mistake(rank);
            throw;
        }
    }

    bool on() const { return !watchers_.empty(); }

  private:
    void note_mistake(int rank) const;

    Engine* engine_ = nullptr;
    std::vector<std::unique_ptr<Watcher>> watchers_;
};

}  // namespace lockstep::sim
