#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu/launcher/placement.hpp"

namespace lockstep::gpu {

/// The reason why a run stopped early. All processes of the run get the same Failure.
struct Failure {
    int rank = 0;      ///< where it began
    int status = 1;    ///< the exit status of every process
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
    /// A watched process that makes no progress for this long stands still. A process
    /// that does not reach the rendezvous within this time is missing.
    double timeout_seconds = 60;
    /// After a stop, a process has this long to destroy its Control; then it is ended.
    /// The time begins once the main thread has seen the stop.
    double grace_seconds = 5;
};

/// The control line between the processes of a run: sockets from all of them to rank 0.
/// Each end has its own thread, so a process answers while its program computes or hangs.
///
/// If a process fails or is lost, or if the run stalls, all processes are told the first
/// cause, and check() throws it everywhere. If a main thread does not call check() soon
/// after, its process is ended with the failure's status.
///
/// A run stalls if at least one process is watched and all watched processes stand still.
/// A run also stalls if one process stands still for ten times the timeout: until then,
/// this process might be waiting for another process's work.
///
/// The control threads of rank 0 and of each other process exchange beats, which show
/// that they run. A process that sends nothing for timeout_seconds (at least 3) is
/// stopped or out of reach. Then the run ends, no matter what the programs wait for.
///
/// A caller that catches RunStopped on rank 0 prints the failure's text if claim_text()
/// returns true. The control thread prints the text if it is not claimed within half a
/// second after the stop, or if the main thread leaves without having seen the stop.
/// Other ranks print nothing. If rank 0 does not answer, rank 1 and the first process of
/// each other machine print the text instead. The text is empty if a process was lost and
/// a supervisor reports that (Placement::supervised).
///
/// Only the main thread may call exchanges and watching. Any thread may call progress(),
/// fail(), stopped(), check() and claim_text().
///
/// The destructor says goodbye. On rank 0 it waits for the goodbyes of the other ranks,
/// at most timeout_seconds; a process that ends without a goodbye is lost. On another
/// rank it waits for rank 0's answer. In a stopped run rank 0 answers after the text has
/// been claimed: a launcher kills all processes when one ends in error, so rank 0 must
/// print first. The wait for the answer is at most grace_seconds + 1.
class Control {
  public:
    /// Meets the other processes. Each of them and rank 0 prove to each other that they
    /// know the secret of the rendezvous. Throws UsageError if the address is not
    /// possible, if it is host:port and there is no secret, or if rank 0 refuses this
    /// process. If ranks do not arrive in time, rank 0 throws
    /// MissingError with their numbers, and the ranks that arrived throw RunStopped with
    /// status 3. If rank 0 does not arrive, throws MissingError.
    static std::unique_ptr<Control> join(const Placement& placement,
                                         const ControlOptions& options);
    virtual ~Control() = default;
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

    const Placement& placement() const { return placement_; }
    int rank() const { return placement_.rank; }
    int size() const { return placement_.size; }

    /// Returns the bytes of every process, in rank order; all processes must call it.
    /// Waits for the other processes as long as they live; this wait is never a stall. A
    /// process can send at most a GiB; more is a UsageError.
    /// Throws RunStopped, for example if another process calls broadcast() instead or has
    /// said goodbye.
    virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
    /// Returns rank 0's bytes; the other ranks' bytes are ignored. All processes must
    /// call it. Throws RunStopped.
    virtual std::string broadcast(const std::string& bytes) = 0;

    /// Between begin_watching() and end_watching() this process must show progress,
    /// except while it waits in an exchange.
    virtual void begin_watching() = 0;
    virtual void end_watching() noexcept = 0;
    virtual void progress() noexcept = 0;

    /// Both functions are called on the control thread, because the main thread may hang.
    /// `describe` returns a description of this process. `explain`, on rank 0, makes the
    /// failure's text from the descriptions of all processes, in rank order, and from the
    /// rank that stood still first. A description is empty if its process did not answer
    /// within 2 seconds. If `explain` throws, a plain text is used. Neither function may
    /// wait for the main thread. Once set_…({}) has returned, the function that
    /// was set before does not run and is not called again.
    using Describe = std::function<std::string()>;
    using Explain =
        std::function<std::string(const std::vector<std::string>&, int stalled)>;
    virtual void set_describe(Describe describe) = 0;
    virtual void set_explain(Explain explain) = 0;

    /// Stops the run on all processes; only the first failure counts. Returns at once.
    virtual void fail(const Failure& failure) noexcept = 0;
    /// Cheap: every wait on the GPU calls it.
    virtual bool stopped() const noexcept = 0;
    /// Throws RunStopped once the run has been stopped.
    virtual void check() const = 0;
    /// Returns true for the first caller on rank 0 of a stopped run, or on a process that
    /// takes rank 0's place: that caller must print the text.
    virtual bool claim_text() noexcept = 0;

  protected:
    explicit Control(Placement placement) : placement_(std::move(placement)) {}

  private:
    const Placement placement_;
};

}  // namespace lockstep::gpu
