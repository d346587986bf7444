#include "sim/replay.hpp"

#include <map>
#include <memory>
#include <span>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

namespace {

/// Makes one rank's calls again. Buffers have the size that each call needs.
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
    Tensor buffer(const LoggedCall& call, std::int64_t count) {
        return rank_.device().empty({count}, call.dtype, call.at);
    }

    CommOperation operation(const LoggedCall& call) {
        const VerbFacts facts = facts_of(call.verb);
        const Communicator& comm = communicator(call);
        const bool is_root = comm.rank() == call.peer;
        const auto holding = [&](VerbFacts::Holds holds) {
            const int blocks = holds == VerbFacts::Holds::blocks ? comm.size() : 1;
            return buffer(call, blocks * call.count);
        };
        return {call, facts.writes(is_root) ? holding(facts.output) : Tensor(),
                facts.reads(is_root) ? holding(facts.input) : Tensor()};
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

    /// Launches the operations that were launched together. Returns the place after them.
    std::size_t launch(std::size_t begin) {
        std::size_t end = begin;
        while (end < calls_.size() && calls_[end].kind == LoggedCall::Kind::launch &&
               calls_[end].work == calls_[begin].work)
            ++end;
        const LoggedCall& first = calls_[begin];
        if (first.all_to_all_v) {
            works_.emplace(first.work, all_to_all_v({&first, end - begin}));
        } else if (end == begin + 1) {
            works_.emplace(first.work, communicator(first).start(operation(first)));
        } else {
            Group group = communicator(first).group(first.at);
            for (std::size_t i = begin; i < end; ++i)
                group.add(operation(calls_[i]));
            works_.emplace(first.work, group.start());
        }
        return end;
    }

    /// `parts` are the sends and the recvs of the call, each in the order of ranks.
    Work all_to_all_v(std::span<const LoggedCall> parts) {
        std::vector<std::int64_t> counts[2];
        std::int64_t sums[2] = {0, 0};
        for (const LoggedCall& part : parts) {
            const std::size_t side = part.verb == Verb::send ? 0 : 1;
            counts[side].push_back(part.count);
            sums[side] += part.count;
        }
        const LoggedCall& first = parts.front();
        return communicator(first).all_to_all_v(buffer(first, sums[1]), counts[1],
                                                buffer(first, sums[0]), counts[0],
                                                first.at);
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
    // Buffers live only during a call, which the full checks would report.
    options.check = CheckLevel::cheap;
    for (const RankLog& log : logs)
        options.stands_still.push_back(!log.ended);
    try {
        make_cluster(std::move(options))->run([&](Rank& rank) {
            Player(rank, logs[rank.index()]).play();
        });
    } catch (const FaultError& fault) {
        Diagnosis diagnosis = fault.diagnosis();
        diagnosis.time = -1;  // the real run's clock is not known
        return diagnosis;
    } catch (const UsageError&) {
        // The real run has already refused calls that no communicator accepts.
    }
    return std::nullopt;
}

}  // namespace lockstep::sim
