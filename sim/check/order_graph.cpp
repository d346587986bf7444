#include "sim/check/order_graph.hpp"

#include <algorithm>

namespace lockstep::sim {

namespace {

/// A circle stays one, so it is as well found late. Queues that grow this long are likely
/// to stand still.
constexpr std::size_t kPatience = 4096;

}  // namespace

std::uint64_t OrderGraph::collective_key(const Past& what) {
    return static_cast<std::uint64_t>(what.team->id) << 40 | what.sequence;
}

std::uint64_t OrderGraph::message_key(const Past& what, int member) {
    const bool sends = what.verb == Verb::send;
    const auto source = static_cast<std::uint64_t>(sends ? member : what.peer);
    const auto destination = static_cast<std::uint64_t>(sends ? what.peer : member);
    return static_cast<std::uint64_t>(what.team->id) << 40 | source << 20 | destination;
}

OrderGraph::OrderGraph(const Engine& engine)
    : engine_(engine), queues_(engine.ranks().size()), patience_(kPatience) {}

OrderGraph::Launch& OrderGraph::at(Place place) {
    return queues_[place.rank].launches[place.index];
}

void OrderGraph::launched(Batch& batch) {
    if (batch.posted.empty()) return;
    Queue& queue = queues_[batch.rank];
    const bool at_head = queue.launches.empty();
    for (const Posted& posted : batch.posted) {
        Launch& launch = queue.launches.emplace_back();
        launch.what = past_of(posted);
        launch.member = batch.member;
    }
    const std::size_t first = queue.launches.size() - batch.posted.size();
    queue.launches[first].together = static_cast<int>(batch.posted.size());
    longest_ = std::max(longest_, queue.launches.size());
    if (!at_head) return;
    std::vector<int> done;
    arrive(batch.rank, done);
    advance(std::move(done));
}

/// Heads that are done make room for the next ones, until none is.
void OrderGraph::advance(std::vector<int> done) {
    while (!done.empty()) {
        const int rank = done.back();
        done.pop_back();
        auto& launches = queues_[rank].launches;
        launches.erase(launches.begin(), launches.begin() + launches.front().together);
        if (!launches.empty()) arrive(rank, done);
    }
}

void OrderGraph::arrive(int rank, std::vector<int>& done) {
    Queue& queue = queues_[rank];
    const int together = queue.launches.front().together;
    queue.undone = together;
    for (int index = 0; index < together; ++index)
        arrive(Place{rank, index}, done);
}

void OrderGraph::arrive(Place place, std::vector<int>& done) {
    const Launch& launch = at(place);
    const Past& what = launch.what;
    if (!is_point_to_point(what.verb)) {
        const auto waiting = collectives_.try_emplace(collective_key(what)).first;
        waiting->second.push_back(place);
        if (static_cast<int>(waiting->second.size()) < what.team->size()) return;
        const Waiting all = std::move(waiting->second);
        collectives_.erase(waiting);
        for (const Place& member : all)
            meet(member, done);
        return;
    }
    const auto waiting = messages_.try_emplace(message_key(what, launch.member)).first;
    Waiting& line = waiting->second;
    if (line.empty() || at(line.front()).what.verb == what.verb) {
        line.push_back(place);
        return;
    }
    const Place partner = line.front();
    line.erase(line.begin());
    if (line.empty()) messages_.erase(waiting);
    meet(place, done);
    meet(partner, done);
}

void OrderGraph::meet(Place place, std::vector<int>& done) {
    at(place).met = true;
    if (--queues_[place.rank].undone == 0) done.push_back(place.rank);
}

void OrderGraph::quiet() {
    if (longest_ < patience_) return;
    require_no_circle();
    longest_ = 0;
    for (const Queue& queue : queues_)
        longest_ = std::max(longest_, queue.launches.size());
    patience_ = std::max(kPatience, 2 * longest_);
}

void OrderGraph::run_ended() {
    require_no_circle();
}

}  // namespace lockstep::sim
