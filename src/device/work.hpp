#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <cstddef>
#include <span>

#include "src/core/source_line.hpp"

namespace lockstep {

/// A launched operation's state, made by a backend.
class PendingWork {
  public:
    virtual ~PendingWork() = default;
    virtual void wait(SourceLine at) = 0;
    /// Waits for the first of the works to end, and returns its place. All works are from
    /// one backend, and the function may be called on any of them.
    virtual std::size_t wait_any(std::span<PendingWork* const> works, SourceLine at) = 0;

  protected:
    int references() const { return references_; }

  private:
    /// Called when the last Work is destroyed. A backend may keep the object for another
    /// operation.
    virtual void release() noexcept = 0;

    int references_ = 0;
    friend void intrusive_ptr_add_ref(PendingWork* work) { ++work->references_; }
    friend void intrusive_ptr_release(PendingWork* work) {
        if (--work->references_ == 0) work->release();
    }
};

/// A communication, or a copy between a device and its host, that was started. A Work
/// overlaps with later operations of the device. Operations of the device that are issued
/// after wait() run after the Work has ended. If the Work is a copy, the same is true of
/// the host's operations. Received values exist only after wait(). Until wait() has
/// returned, keep the tensors of the call and do not touch them; buffers that are sent
/// may only be read. Wait for each Work, or for a later Work of its queue: Works in a
/// queue end in order. A queue is a communicator, or all copies in one direction.
class [[nodiscard]] Work {
  public:
    /// A Work without an operation, as after a move: for a container whose Works are
    /// assigned later.
    Work() = default;
    explicit Work(PendingWork* state) : state_(state) {}
    /// Throws UsageError if the Work has no operation.
    void wait(SourceLine at = SourceLine::here());

  private:
    friend std::size_t wait_any(std::span<Work> works, SourceLine at);

    boost::intrusive_ptr<PendingWork> state_;
};

/// Waits for the first of several Works to end, and returns its place. That Work is then
/// used up, as if it had been moved from; used-up Works are skipped. If a program
/// receives from several ranks, each over its own communicator, it can take the message
/// that arrives first. Throws UsageError if no Work is left.
///
/// On virtual devices, virtual time decides which Work is first (if times are equal, the
/// lowest place), so equal programs make equal choices. On GPUs events decide, and the
/// host waits for an event. A program that calls wait_any may behave differently, or
/// hang, if another Work ends first.
std::size_t wait_any(std::span<Work> works, SourceLine at = SourceLine::here());

}  // namespace lockstep
