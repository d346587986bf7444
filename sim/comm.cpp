#include "sim/comm.hpp"

#include <exception>

#include <fmt/format.h>

#include "sim/engine.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

Engine& Comm::engine(SourceLine at) const {
    if (*engine_ == nullptr) [[unlikely]]
        throw used_after_run(made_at_, at);
    Engine& engine = **engine_;
    require(engine.current() == owner(), at,
            "rank {} used the {} communicator of rank {}; ranks share nothing but "
            "messages",
            engine.current(), name(), owner());
    return engine;
}

Comm::~Comm() {
    // After a run, or while it fails, unfinished work is no mistake of the program.
    if (*engine_ == nullptr) return;
    if (std::uncaught_exceptions() > 0) {
        team_.lifetimes[rank()].went = true;
        return;
    }
    Engine& engine = **engine_;
    engine.communicator_went(team_, rank());
    if (engine.current() != owner()) return;
    try {
        require_groups_started();
    } catch (const FaultError&) {
        engine.note_mistake(owner(), std::current_exception());
    }
}

Work Comm::do_launch(std::span<CommOperation> operations, SourceLine at) {
    // Requires that the run still goes on.
    Engine& engine = this->engine(at);

    // Records the request.
    Launch& launch = engine.post(team_, rank(), operations, at);
    Work work(&launch);

    // The launch begins after earlier operations of the device and after earlier launches
    // of this communicator. sim/engine.cpp finds the partners and moves the values.
    engine.enqueue(launch);

    // The returned work waits for the end of the launch.
    return work;
}

std::unique_ptr<Communicator> Comm::do_split(const SplitRequest& request, SourceLine at) {
    // Requires that the run still goes on.
    Engine& engine = this->engine(at);

    // Records the request.
    RankState::Split& split = engine.split_of(owner());
    split = {request, nullptr, 0};

    // Every rank sends its colour and key to all.
    CommOperation operation;
    operation.verb = Verb::split;
    operation.at = at;
    do_launch({&operation, 1}, at).wait(at);
    if (split.team == nullptr) return nullptr;

    // The ranks of one colour, ordered by their keys, make a communicator.
    split.team->lifetimes[split.member].made_at = at;
    return std::make_unique<Comm>(engine_, device(), *split.team, split.member, at);
}

BytesByVerb Comm::do_bytes_sent(SourceLine at) const {
    engine(at);
    const auto member = static_cast<std::size_t>(rank());
    const Launch* const open = team_.members[member].first;
    require(open == nullptr, at, [&] {
        return fmt::format(
            "the bytes sent over {} are known only after its {} at {} has ended; call "
            "wait() on the Work first",
            name(), text_of(open->posted.front().operation), open->at.text());
    });
    team_.settle_counts();
    BytesByVerb bytes{};
    for (std::size_t verb = 0; verb < kVerbs; ++verb)
        for (const TrafficCount& link : team_.counts[member][verb])
            bytes[verb] += link.bytes_sent;
    return bytes;
}

void Comm::do_expect_replicated(const Tensor& tensor, const std::string& name,
                                SourceLine at) {
    engine(at).expect_replicated(team_, rank(), tensor, name, at);
}

void Comm::do_declare_replicas(const Tensor& tensor, const std::string& name,
                               SourceLine at) {
    engine(at).declare_replicas(team_, rank(), tensor, name, at);
}

void Comm::do_declare_same(const Tensor& tensor, const std::string& name, SourceLine at) {
    Engine& engine = this->engine(at);
    if (engine.options().check == CheckLevel::full)
        engine.declare_same(team_, rank(), tensor, name, at);
}

void Comm::do_declare_same(const HostTensor& values, const std::string& name,
                           SourceLine at) {
    Engine& engine = this->engine(at);
    if (engine.options().check == CheckLevel::full)
        engine.declare_same(team_, rank(), values, name, at);
}

}  // namespace lockstep::sim
