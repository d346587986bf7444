#include "sim/replay.hpp"

#include <map>
#include <memory>
#include <span>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

namespace {

/// One rank's calls, made again. Buffers hold what a call's count asks for.
class Player {
  public:
    Player(Rank& rank, const RankLog& log) : rank_(rank), calls_(log.calls) {
        communicators_.push_back(&rank.world());
    }

    void play() {
        for (std::size_t i = 0; i < calls_.size();) {
            const LoggedCall& call = calls_[i];
            switch (call.kind) {
                case LoggedCall::Kind::wait:
                    wait(call);
                    ++i;
                    break;
                case LoggedCall::Kind::split:
                    split(call);
                    ++i;
                    break;
                case LoggedCall::Kind::launch:
                    i = launch(i);
                    break;
            }
        }
    }

  private:
    Communicator& communicator(const LoggedCall& call) {
        return *communicators_.at(static_cast<std::size_t>(call.communicator));
    }
    Tensor buffer(const LoggedCall& call, std::int64_t parts = 1) {
        return rank_.device().empty({parts * call.count}, call.dtype, call.at);
    }

    void wait(const LoggedCall& call) {
        const auto launched = works_.find(call.work);
        if (launched == works_.end()) return;
        launched->second.wait(call.at);
    }

    void split(const LoggedCall& call) {
        owned_.push_back(communicator(call).split(call.split, call.at));
        communicators_.push_back(owned_.back().get());
    }

    /// Returns the place after the operations that were launched together.
    std::size_t launch(std::size_t begin) {
        std::size_t end = begin;
        while (end < calls_.size() && calls_[end].kind == LoggedCall::Kind::launch &&
               calls_[end].work == calls_[begin].work)
            ++end;
        const LoggedCall& first = calls_[begin];
        if (first.all_to_all_v) {
            works_.emplace(first.work, all_to_all_v({&first, end - begin}));
        } else if (end == begin + 1) {
            works_.emplace(first.work, launch_one(first));
        } else {
            Group group = communicator(first).group(first.at);
            for (std::size_t i = begin; i < end; ++i)
                add(group, calls_[i]);
            works_.emplace(first.work, group.start());
        }
        return end;
    }

    /// The log has its sends and recvs, each in the order of ranks.
    Work all_to_all_v(std::span<const LoggedCall> parts) {
        std::vector<std::int64_t> counts[2];
        std::int64_t sums[2] = {0, 0};
        for (const LoggedCall& part : parts) {
            const std::size_t side = part.verb == Verb::send ? 0 : 1;
            counts[side].push_back(part.count);
            sums[side] += part.count;
        }
        const LoggedCall& first = parts.front();
        const auto buffer = [&](std::int64_t count) {
            return rank_.device().empty({count}, first.dtype, first.at);
        };
        return communicator(first).all_to_all_v(buffer(sums[1]), counts[1],
                                                buffer(sums[0]), counts[0], first.at);
    }

    Work launch_one(const LoggedCall& call) {
        Communicator& comm = communicator(call);
        const int n = comm.size();
        const bool root = comm.rank() == call.peer;
        switch (call.verb) {
            case Verb::all_reduce:
                return comm.all_reduce(buffer(call), call.reduction, call.at);
            case Verb::all_gather:
                return comm.all_gather(buffer(call, n), buffer(call), call.at);
            case Verb::reduce_scatter:
                return comm.reduce_scatter(buffer(call), buffer(call, n), call.reduction,
                                           call.at);
            case Verb::broadcast:
                return comm.broadcast(buffer(call), call.peer, call.at);
            case Verb::reduce:
                return comm.reduce(buffer(call), call.peer, call.reduction, call.at);
            case Verb::gather:
                return comm.gather(root ? buffer(call, n) : Tensor(), buffer(call),
                                   call.peer, call.at);
            case Verb::scatter:
                return comm.scatter(buffer(call), root ? buffer(call, n) : Tensor(),
                                    call.peer, call.at);
            case Verb::all_to_all:
                return comm.all_to_all(buffer(call, n), buffer(call, n), call.at);
            case Verb::send:
                return comm.send(buffer(call), call.peer, call.at);
            case Verb::recv:
                return comm.recv(buffer(call), call.peer, call.at);
            case Verb::barrier:
            case Verb::split:
                break;
        }
        return comm.barrier(call.at);
    }

    void add(Group& group, const LoggedCall& call) {
        const int n = communicator(call).size();
        switch (call.verb) {
            case Verb::send:
                group.send(buffer(call), call.peer, call.at);
                return;
            case Verb::recv:
                group.recv(buffer(call), call.peer, call.at);
                return;
            case Verb::all_reduce:
                group.all_reduce(buffer(call), call.reduction, call.at);
                return;
            case Verb::all_gather:
                group.all_gather(buffer(call, n), buffer(call), call.at);
                return;
            case Verb::reduce_scatter:
                group.reduce_scatter(buffer(call), buffer(call, n), call.reduction,
                                     call.at);
                return;
            case Verb::broadcast:
                group.broadcast(buffer(call), call.peer, call.at);
                return;
            case Verb::reduce:
                group.reduce(buffer(call), call.peer, call.reduction, call.at);
                return;
            default:
                throw UsageError("a log names a verb that no group has");
        }
    }

    Rank& rank_;
    const std::vector<LoggedCall>& calls_;
    std::vector<Communicator*> communicators_;
    std::vector<std::unique_ptr<Communicator>> owned_;
    std::map<std::int64_t, Work> works_;
};

}  // namespace

std::optional<Diagnosis> replay(const std::vector<RankLog>& logs) {
    ClusterOptions options;
    options.ranks = static_cast<int>(logs.size());
    options.spec = load_cluster("unit");
    options.numbers = false;
    // Its buffers are made for each call and gone after it: no matter, under these.
    options.check = CheckLevel::cheap;
    for (const RankLog& log : logs)
        options.stands_still.push_back(!log.ended);
    try {
        make_cluster(std::move(options))->run([&](Rank& rank) {
            Player(rank, logs[rank.index()]).play();
        });
    } catch (const FaultError& fault) {
        Diagnosis diagnosis = fault.diagnosis();
        diagnosis.time = -1;  // no clock of the run's
        return diagnosis;
    } catch (const UsageError&) {
        // Calls that no communicator takes would have been refused where they were made.
    }
    return std::nullopt;
}

}  // namespace lockstep::sim
