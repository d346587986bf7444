#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gpu/nccl.hpp"
#include "gpu/stream.hpp"
#include "src/comm/communicator.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::gpu {

struct RankRun;

/// What a run's communicators and pending work hold of it; null once it is over.
using RunHandle = std::shared_ptr<RankRun*>;

/// Operations launched together: their buffers, and the event that ends them.
class LaunchedWork final : public PendingWork {
  public:
    LaunchedWork(RunHandle run, std::int64_t number, std::span<CommOperation> operations);

    void wait(SourceLine at) override;
    /// The host waits: which one it is has to be known there.
    std::size_t wait_any(std::span<PendingWork* const> works, SourceLine at) override;
    bool done() const { return end.done(); }

    Event end;

  private:
    void release() noexcept override { delete this; }

    RunHandle run_;
    std::int64_t number_;  ///< in the log
    std::vector<Tensor> buffers_;
};

/// A communicator's way to the other GPUs. It belongs to the run, which keeps it to its
/// end: to end an NCCL communicator takes all its ranks, and a program may drop its own
/// at any time.
struct Channel {
    Stream stream;  ///< goes after the handle
    NcclHandle own;
    NcclHandle* handle = nullptr;  ///< `own`, or one that outlives the run
    std::string name;
    std::vector<int> ranks;  ///< of the run, by member
    int number = 0;          ///< in the log
    Tensor token;            ///< one element, for barriers
    TrafficByVerb traffic{};
    /// What runs on the stream; holds its buffers.
    std::deque<boost::intrusive_ptr<LaunchedWork>> in_flight;

    void let_go_of_finished();
};

}  // namespace lockstep::gpu
