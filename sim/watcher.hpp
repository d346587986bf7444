#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/team.hpp"
#include "src/core/host_tensor.hpp"
#include "src/device/monitor.hpp"
#include "src/run/diagnosis.hpp"

// The engine's interface to the checks. The engine tells them what happens, and asks why
// a run stops. sim/check implements these classes; the engine never includes sim/check.

namespace lockstep::sim {

class Engine;

/// A part of `--check full` that looks for one kind of mistake, at a high cost.
///
/// The engine tells it everything that ranks do, for each rank in program order. To
/// report a mistake, a watcher throws FaultError. The exception reaches the program of
/// the rank that runs, at the line of the mistake, or ends the run if no rank runs. The
/// engine adds the other ranks' activity, virtual time and history.
///
/// The order in which ranks take turns may differ from run to run. A run is quiet when no
/// rank can run. While a rank runs, the result of a call must not depend on what other
/// ranks have done since the run was last quiet. A watcher that compares ranks only takes
/// notes in such a call, and compares when the run is quiet.
class Watcher {
  public:
    Watcher() = default;
    virtual ~Watcher() = default;
    Watcher(const Watcher&) = delete;
    Watcher& operator=(const Watcher&) = delete;

    // These are called while a rank runs.

    /// The launch's operations are posted; no data has moved yet.
    virtual void launched(Launch& /*launch*/) {}
    /// Work::wait is about to return: the launch is done, and the rank may use its
    /// buffers again.
    virtual void waited(Launch& /*launch*/, SourceLine /*at*/) {}
    /// Before the numbers of a device operation are computed.
    virtual void executing(int /*rank*/, const DeviceOperation& /*operation*/) {}
    /// Before and after a copy between host and device. A tensor that is kept for the
    /// record counts as copied to the host.
    virtual void copying(int /*rank*/, CopyDirection /*direction*/,
                         const Tensor& /*tensor*/, SourceLine /*at*/) {}
    virtual void copied(int /*rank*/, CopyDirection /*direction*/,
                        const Tensor& /*tensor*/, SourceLine /*at*/) {}
    virtual void freed(int /*rank*/, const Storage& /*storage*/) noexcept {}
    virtual void phase_began(int /*rank*/, Phase /*phase*/, int /*micro_batch*/) {}
    virtual void phase_ended(int /*rank*/) noexcept {}
    /// The member has called declare_replicas: all members hold the tensor and update it
    /// in the same way.
    virtual void declared(const Team& /*team*/, int /*member*/, const Tensor& /*tensor*/,
                          const std::string& /*name*/, SourceLine /*at*/) {}
    /// The rank's program has returned.
    virtual void ended(int /*rank*/) {}

    // These are called while the run is quiet: every rank waits or has ended.

    /// Before any data is moved; may be called many times in a row.
    virtual void quiet() {}
    /// Before and after a collective moves its data. Its operations are still posted.
    virtual void collective_begins(const Team& /*team*/, const Meeting& /*meeting*/) {}
    virtual void collective_ended(const Team& /*team*/, const Meeting& /*meeting*/) {}
    /// Before and after a message moves its data. A copy between a device and its host is
    /// a message of a rank to itself: its send and recv are the same.
    virtual void message_begins(Posted& /*send*/, Posted& /*recv*/) {}
    virtual void message_ended(Posted& /*send*/, Posted& /*recv*/) {}
    /// All of a launch's operations have ended; the launch still has its buffers.
    virtual void closing(Launch& /*launch*/) {}
    /// Every rank has ended, and nothing is left open.
    virtual void run_ended() {}

  protected:
    /// Throws FaultError, unless a rank of the diagnosis has said that it means this
    /// (Rank::intended), or the run's options leave the class out.
    void report(Diagnosis diagnosis) const;

  private:
    friend class Watchers;
    const Engine* engine_ = nullptr;
};

/// The watchers of a run under CheckLevel::full. Otherwise there are none, and a call
/// costs one comparison.
class Watchers {
  public:
    explicit Watchers(Engine& engine) : engine_(engine) {}

    void add(std::unique_ptr<Watcher> watcher) {
        watcher->engine_ = &engine_;
        watchers_.push_back(std::move(watcher));
    }
    bool is_on() const { return !watchers_.empty(); }

    /// Calls `event` on each watcher: tell(&Watcher::quiet).
    template <typename Event, typename... Arguments>
    void tell(Event event, Arguments&&... arguments) const {
        for (const std::unique_ptr<Watcher>& watcher : watchers_)
            ((*watcher).*event)(arguments...);
    }

    /// Tells each watcher what `rank` does: tell_of(rank, &Watcher::launched, launch). A
    /// mistake ends the run, even if the program catches the exception.
    template <typename Event, typename... Arguments>
    void tell_of(int rank, Event event, Arguments&&... arguments) const {
        if (!is_on()) return;
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

/// A member's statement that all members have the same values.
struct Expectation {
    bool reads = false;  ///< true from declare_same, false from expect_replicated
    Shape shape;
    DType dtype = DType::f32;
    std::optional<HostTensor> values;  ///< none if the run computes shapes only
    std::string name;
    SourceLine at;
    SourceLine made_at;  ///< where a tensor of declare_same was made
};

/// The checks that are always on. The engine calls them when ranks meet, or when no rank
/// can continue. The run is quiet in all of these calls except the first two.
class Checker {
  public:
    Checker() = default;
    virtual ~Checker() = default;
    Checker(const Checker&) = delete;
    Checker& operator=(const Checker&) = delete;

    /// A member calls expect_replicated or declare_same.
    virtual void expected(const Team& team, int member, const Expectation& same,
                          Picoseconds now) = 0;
    /// A member destroys its communicator: returns a mistake if the program could still
    /// wait for the communicator's operations.
    virtual std::optional<Diagnosis> explain_open_works(const Team& team, int member) = 0;

    /// Throws FaultError if a tensor that ranks expect to be the same differs.
    virtual void quiet() = 0;
    /// All members have called a split: throws FaultError if their requests disagree.
    virtual void require_same_groups(const Team& team, const Meeting& meeting) = 0;
    /// Explains a collective or message whose ranks posted operations that do not match.
    virtual Diagnosis explain_difference(const Posted& posted) = 0;
    /// Returns why no rank can continue. Returns nothing if every rank has ended, and
    /// every launch is done and was waited for.
    virtual std::optional<Diagnosis> explain_stop() = 0;
    /// Every rank has ended: throws FaultError if ranks have left something undone.
    virtual void run_ended() = 0;
    /// Adds facts about the whole run, such as other ranks' activity, to a diagnosis.
    virtual void complete(Diagnosis& diagnosis) = 0;
};

/// Makes the checks of sim/check. Under CheckLevel::full, adds watchers to `watchers`.
std::unique_ptr<Checker> make_checker(Engine& engine, Watchers& watchers);

}  // namespace lockstep::sim
