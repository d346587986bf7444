#pragma once

#include "sim/team.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::sim {

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
    virtual void launched(Batch& /*batch*/) {}
    /// Work::wait is about to return: the batch is done, its buffers are the rank's
    /// again.
    virtual void waited(Batch& /*batch*/, SourceLine /*at*/) {}
    /// Before the numbers of a device operation are computed, and after.
    virtual void executing(int /*rank*/, const DeviceOperation& /*operation*/) {}
    virtual void executed(int /*rank*/, const DeviceOperation& /*operation*/) {}
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
    virtual void message_begins(Posted& /*send*/, Posted& /*recv*/) {}
    virtual void message_ended(Posted& /*send*/, Posted& /*recv*/) {}
    /// All of a batch's operations have ended; its buffers are still known.
    virtual void closing(Batch& /*batch*/) {}
    /// Every rank has ended, and nothing is left open.
    virtual void run_ended() {}
};

}  // namespace lockstep::sim
