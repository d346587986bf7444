#pragma once

// The map of this folder: which file finds which class of mistake
// (src/run/fault_text.cpp lists them).
//
// Always on, where the calls of ranks meet or nobody can run any more:
//
//     checker         F01 to F05, F09, F13        ranks, or a send and a recv, differ
//     split_sizes     F08                         the counts of an all_to_all_v differ
//     group_making    F06                         members of a split disagree
//     wait_for_graph  F07, F10 to F14             nothing can run any more
//     expectations    F07, F24                    expect_replicated
//     unwaited        F19                         a Work that nobody waited for
//     memory          F30                         what others hold where a device is full
//     lifecycle       F31                         communicators let go of
//
// F15 (group), F20 (aliasing), F24 and F27 (expect) are found in src/comm, F30 (ledger)
// in src/device, on every backend. For their texts: activity, waits, team_diagnosis.
//
// Watchers (watcher.hpp), under CheckLevel::full only:
//
//     in_flight       F16 to F18     buffers touched while in use; late_delivery,
//                                    vector_clock, race_text
//     order_graph     F12            communicators in opposite order, where a run passes
//     layouts         F22, F23, F27  how values lie over ranks; layout, layout_join,
//                                    layout_text
//     own_gradients   F23            one parameter, a gradient of its own on each rank
//     weights         F21, F28       how much each row counts; row_weights, row_figures
//     gradient_use    F27            gradients that are not set to zero
//     replicas        F23, F24       parameters that drift apart; declarations,
//                                    replica_text
//     versions        F25            stale weights
//     shards          F26            shards gathered in another order
//     streams         F29            random numbers
//     reference       F21, F27, F28  the result beside that of one device
//
// Those that follow values through memory are trackers (tracker, shadow, origin,
// parameters); what members say of one thing is compared by a rollcall.

#include <memory>
#include <vector>

#include "sim/check/watcher.hpp"
#include "src/run/diagnosis.hpp"

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
