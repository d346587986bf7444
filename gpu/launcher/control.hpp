#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu/launcher/placement.hpp"

namespace lockstep::gpu {

/// The reason why a run ended before its time, as all its processes are told.
struct Failure {
    int rank = 0;      ///< where it began
    int status = 1;    ///< what every process exits with
    std::string text;  ///< what rank 0 prints: whole lines
};

/// Thrown on the main thread of every process once its run has been stopped.
class RunStopped : public std::runtime_error {
  public:
    explicit RunStopped(Failure failure);
    const Failure& failure() const { return failure_; }

  private:
    Failure failure_;
};

struct ControlOptions {
    /// A process that is watched and makes no progress for so long stands still; one
    /// that does not come to the rendezvous for so long is missing.
    double timeout_seconds = 60;
    /// A process whose main thread has not destroyed its Control so long after the run
    /// was stopped, and after it saw that, is ended.
    double grace_seconds = 5;
};

/// The line between the processes of a run: sockets from all of them to rank 0, each
/// served by a thread of its own process, so that a process answers while its program
/// computes or hangs.
///
/// One process fails or is lost, or the run stalls: all are told the first cause, and
/// check() throws it everywhere. A process whose main thread does not come to check()
/// soon after is ended, with the failure's status.
///
/// A run stalls once every process that is watched stands still, at least one, or one
/// has for ten times the timeout: one may wait long while another works.
///
/// The control threads of rank 0 and of each other process let each other hear that they
/// run. A process that says nothing for timeout_seconds, at least 3, is stopped or out of
/// reach: the run ends, whatever its program waits for.
///
/// A caller that catches RunStopped on rank 0 prints the failure's text if claim_text()
/// says so. If nobody has claimed it half a second after the stop, or the main thread
/// leaves without having seen the stop, the control thread prints it. No other rank
/// prints anything, unless rank 0 does not answer: then rank 1 and the first process of
/// each other machine take its place in this. The text is empty if a process was lost
/// that a supervisor speaks of (Placement::supervised).
///
/// Exchanges and watching are the main thread's; progress(), fail(), stopped(), check()
/// and claim_text() any thread's.
///
/// The destructor says goodbye. Rank 0's waits for the others' goodbyes, at most
/// timeout_seconds; a process that ends without one is lost. Another rank's waits for
/// rank 0's answer, which in a stopped run comes once the text has been claimed: a
/// launcher kills all processes when one ends in error, so rank 0 speaks first. It waits
/// for that at most grace_seconds and one more.
class Control {
  public:
    /// Meets the other processes. Throws UsageError if the address cannot be, or rank
    /// 0 turns this process away; on rank 0 MissingError that names the ranks that did
    /// not come in time, and on those that did RunStopped with status 3; MissingError
    /// if rank 0 itself did not come.
    static std::unique_ptr<Control> join(const Placement& placement,
                                         const ControlOptions& options);
    virtual ~Control() = default;
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

    const Placement& placement() const { return placement_; }
    int rank() const { return placement_.rank; }
    int size() const { return placement_.size; }

    /// Every process's bytes, in rank order; all processes call it. Waits for them as
    /// long as they live, which is never a stall. Throws RunStopped, also if another
    /// process came to the other kind of exchange or has said goodbye.
    virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
    /// Rank 0's bytes, whatever the others pass; all processes call it. Throws
    /// RunStopped.
    virtual std::string broadcast(const std::string& bytes) = 0;

    /// Between the two, this process must show progress, except while it waits in an
    /// exchange.
    virtual void begin_watching() = 0;
    virtual void end_watching() noexcept = 0;
    virtual void progress() noexcept = 0;

    /// Both are asked on the control thread, while the main one may hang. `describe`
    /// gives what this process has to say of itself; `explain`, on rank 0, makes the text
    /// of the failure of it: all processes' descriptions in rank order (empty if one
    /// did not answer within 2 seconds), and the rank that stood still first; if it
    /// throws, a plain text takes its place. They must not wait for the main thread. Once
    /// set_…({}) has returned the former one is not running and will not be called.
    using Describe = std::function<std::string()>;
    using Explain =
        std::function<std::string(const std::vector<std::string>&, int stalled)>;
    virtual void set_describe(Describe describe) = 0;
    virtual void set_explain(Explain explain) = 0;

    /// Stops the run on all processes; the first failure counts. Returns at once.
    virtual void fail(const Failure& failure) noexcept = 0;
    /// Cheap: read by every wait on the GPU.
    virtual bool stopped() const noexcept = 0;
    /// Throws RunStopped once the run has been stopped.
    virtual void check() const = 0;
    /// True on rank 0 of a stopped run, or who takes its place, for the first who asks:
    /// he prints the text.
    virtual bool claim_text() noexcept = 0;

  protected:
    explicit Control(Placement placement) : placement_(std::move(placement)) {}

  private:
    const Placement placement_;
};

}  // namespace lockstep::gpu
