#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/nccl.hpp"
#include "gpu/stream.hpp"
#include "src/comm/communicator.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::gpu {

struct RankRun;

/// A run's communicators and pending work hold this of it; null once it is over.
using RunHandle = std::shared_ptr<RankRun*>;

/// A launch: the buffers of what was started together, and the event that ends it.
class LaunchedWork final : public PendingWork {
  public:
    /// Communications, which have that number in the log.
    LaunchedWork(RunHandle run, std::int64_t number, std::span<CommOperation> operations);
    /// A copy between the device and its host: the program itself waits for its end.
    LaunchedWork(RunHandle run, const Tensor& destination, const Tensor& source);

    void wait(SourceLine at) override;
    /// The host waits: which one it is has to be known there.
    std::size_t wait_any(std::span<PendingWork* const> works, SourceLine at) override;
    bool done() const { return end.done(); }

    Event end;

  private:
    void release() noexcept override { delete this; }
    void wait_in(RankRun& run, SourceLine at);

    RunHandle run_;
    std::optional<std::int64_t> number_;  ///< in the log; a copy has none
    std::vector<Tensor> buffers_;
};

/// A stream, and what runs on it and holds its buffers.
struct LaunchQueue {
    Stream stream{Stream::Priority::urgent};
    std::deque<boost::intrusive_ptr<LaunchedWork>> in_flight;

    /// Returns the work that ends what the stream holds now.
    Work launched(const boost::intrusive_ptr<LaunchedWork>& work);
    void let_go_of_finished();
};

/// A communicator's way to the other GPUs. It belongs to the run, which keeps it to its
/// end: to end an NCCL communicator takes all its ranks, and a program may drop its own
/// at any time.
struct Channel : LaunchQueue {
    NcclHandle own;                ///< goes before the stream
    NcclHandle* handle = nullptr;  ///< `own`, or one that outlives the run
    std::string name;
    std::vector<int> ranks;  ///< of the run, by member
    int number = 0;          ///< in the log
    Tensor token;            ///< one element, for barriers
    TrafficByVerb traffic{};
};

}  // namespace lockstep::gpu
