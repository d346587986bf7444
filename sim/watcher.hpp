#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/team.hpp"
#include "src/core/host_tensor.hpp"
#include "src/device/monitor.hpp"
#include "src/run/diagnosis.hpp"

// The engine sees those who look for mistakes like this: they are told what happens, and
// asked when a run cannot go on. sim/check implements it; the engine never includes that.

namespace lockstep::sim {

class Engine;

/// One kind of mistake that costs too much to look for always: a part of `--check full`.
///
/// Told of everything that ranks do, in the order in which each does it. To report a
/// mistake it throws FaultError: from a call of a rank's, into that rank's program, at
/// the line that makes the mistake; from a call of the run's, to the run. What other
/// ranks do, the virtual time and the history are filled in by the engine.
///
/// Ranks take turns in an order of the host's. So what one rank's call finds must not
/// depend on what others have done since the run was last quiet: what compares ranks
/// notes it, and compares when the run is quiet.
class Watcher {
  public:
    Watcher() = default;
    virtual ~Watcher() = default;
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    // A rank runs, and calls.

    /// Its operations are posted; none has moved anything.
    virtual void launched(Launch& /*launch*/) {}
    /// Work::wait is about to return: the launch is done, its buffers are the rank's
    /// again.
    virtual void waited(Launch& /*launch*/, SourceLine /*at*/) {}
    /// Before the numbers of a device operation are computed.
    virtual void executing(int /*rank*/, const DeviceOperation& /*operation*/) {}
    /// Before a copy between host and device, and after. A tensor that is kept for the
    /// record counts as copied to the host.
    virtual void copying(int /*rank*/, CopyDirection /*direction*/,
                         const Tensor& /*tensor*/, SourceLine /*at*/) {}
    virtual void copied(int /*rank*/, CopyDirection /*direction*/,
                        const Tensor& /*tensor*/, SourceLine /*at*/) {}
    virtual void freed(int /*rank*/, const Storage& /*storage*/) noexcept {}
    virtual void phase_began(int /*rank*/, Phase /*phase*/, int /*micro_batch*/) {}
    virtual void phase_ended(int /*rank*/) noexcept {}
    /// The member says that all of the team hold the tensor, and step it alike.
    virtual void declared(const Team& /*team*/, int /*member*/, const Tensor& /*tensor*/,
                          const std::string& /*name*/, SourceLine /*at*/) {}
    /// Its program has returned.
    virtual void ended(int /*rank*/) {}

    // The run is quiet: every rank waits or has ended.

    /// Before anything moves; may be called many times in a row.
    virtual void quiet() {}
    /// A collective moves its data, or has moved it. Members are still posted.
    virtual void collective_begins(const Team& /*team*/, const Meeting& /*meeting*/) {}
    virtual void collective_ended(const Team& /*team*/, const Meeting& /*meeting*/) {}
    /// A copy between a device and its host is a message of a rank to itself: both are
    /// one.
    virtual void message_begins(Posted& /*send*/, Posted& /*recv*/) {}
    virtual void message_ended(Posted& /*send*/, Posted& /*recv*/) {}
    /// All of a launch's operations have ended; its buffers are still known.
    virtual void closing(Launch& /*launch*/) {}
    /// Every rank has ended, and nothing is left open.
    virtual void run_ended() {}
};

/// The watchers of a run under CheckLevel::full; none otherwise, and then a call is one
/// comparison.
class Watchers {
  public:
    explicit Watchers(Engine& engine) : engine_(engine) {}

    void add(std::unique_ptr<Watcher> watcher) {
        watchers_.push_back(std::move(watcher));
    }
    bool on() const { return !watchers_.empty(); }

    /// Calls `event` on each watcher: tell(&Watcher::quiet).
    template <typename Event, typename... Arguments>
    void tell(Event event, Arguments&&... arguments) const {
        for (const std::unique_ptr<Watcher>& watcher : watchers_)
            ((*watcher).*event)(arguments...);
    }

    /// Tells what `rank` does: tell_of(rank, &Watcher::launched, launch). A mistake ends
    /// the run, even if the program catches what is thrown.
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

  private:
    void note_mistake(int rank) const;

    Engine& engine_;
    std::vector<std::unique_ptr<Watcher>> watchers_;
};

/// A member says that this is the same on all.
struct Expectation {
    bool reads = false;  ///< by declare_same; else expect_replicated
    Shape shape;
    DType dtype = DType::f32;
    std::optional<HostTensor> values;  ///< none if the run computes shapes only
    std::string name;
    SourceLine at;
    SourceLine made_at;  ///< of a tensor that is read
};

/// The engine asks this when ranks meet, or when nothing can go on: the checks that are
/// always on. In all of these but the first two the run is quiet.
class Checker {
  public:
    Checker() = default;
    virtual ~Checker() = default;
    Checker(const Checker&) = delete;
    Checker& operator=(const Checker&) = delete;

    /// A member calls expect_replicated or declare_same.
    virtual void expected(const Team& team, int member, const Expectation& same,
                          Picoseconds now) = 0;
    /// A member lets go of its communicator: what it could still have waited for there.
    virtual std::optional<Diagnosis> explain_open_works(const Team& team, int member) = 0;

    /// Throws FaultError if ranks expect different values to be the same.
    virtual void quiet() = 0;
    /// Throws FaultError if the members of a split, who have all come, disagree.
    virtual void require_same_groups(const Team& team, const Meeting& meeting) = 0;
    /// Returns why a collective or message whose sides differ cannot go on.
    virtual Diagnosis explain_difference(const Posted& posted) = 0;
    /// Returns why nothing can go on; nothing if every rank has ended, and all that was
    /// launched is done and was waited for.
    virtual std::optional<Diagnosis> explain_stop() = 0;
    /// Every rank has ended: throws FaultError for what should not be left then.
    virtual void run_ended() = 0;
    /// Fills in what only the whole run knows of a mistake that ends it.
    virtual void complete(Diagnosis& diagnosis) = 0;
};

/// The checks of sim/check. Under CheckLevel::full it adds its watchers, too.
std::unique_ptr<Checker> make_checker(Engine& engine, Watchers& watchers);

}  // namespace lockstep::sim
