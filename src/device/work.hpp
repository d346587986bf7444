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
    /// Waits for one of them, whichever ends first, and returns its place. One backend
    /// has made all of them; it is called of any.
    virtual std::size_t wait_any(std::span<PendingWork* const> works, SourceLine at) = 0;

  protected:
    int references() const { return references_; }

  private:
    /// The last Work has gone; a backend may keep the object for another operation.
    virtual void release() noexcept = 0;

    int references_ = 0;
    friend void intrusive_ptr_add_ref(PendingWork* work) { ++work->references_; }
    friend void intrusive_ptr_release(PendingWork* work) {
        if (--work->references_ == 0) work->release();
    }
};

/// A communication, or a copy between a device and its host, that was started. It runs
/// beside what the device does next; after wait(), what the device does next comes after
/// it (after a copy's, what the host does, too). Received values are there, and sent
/// buffers may be overwritten or let go of, only then: until wait() has returned, keep
/// the tensors of the call, and leave them alone (read what is sent, if you like). Wait
/// for each, or for a later one of the same queue, that is, of the same communicator, or
/// of copies in the same direction: what is in a queue ends in order.
class [[nodiscard]] Work {
  public:
    explicit Work(PendingWork* state) : state_(state) {}
    /// Throws UsageError where the Work was moved from.
    void wait(SourceLine at = SourceLine::here());

  private:
    friend std::size_t wait_any(std::span<Work> works, SourceLine at);

    boost::intrusive_ptr<PendingWork> state_;
};

/// Waits for one of several, whichever ends first, and returns its place; that Work is
/// used up as if it had been moved from, and those that are so already do not count.
/// Receives from several ranks, each over a communicator of its own, become "from whoever
/// comes first" so. Throws UsageError if none is left.
///
/// On virtual devices virtual time decides (of equals, the lowest place), so that equal
/// programs choose alike; on GPUs the events do, and the host waits for one of them. A
/// program that uses it may do other things, and hang, if others come first.
std::size_t wait_any(std::span<Work> works, SourceLine at = SourceLine::here());

}  // namespace lockstep
