#include "sim/team.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "sim/engine.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

bool can_meet(const Team& team, const CommOperation& a, const CommOperation& b) {
    if (!same_signature(a, b)) return false;
    if (!a.is_sum() || !a.input || !b.input) return true;
    const Storage::Label *one = a.input.labelled(), *other = b.input.labelled();
    if (one == nullptr || other == nullptr) return true;
    if (one->name != other->name)
        return team.declared.contains(one->name) && team.declared.contains(other->name);
    return one->part == other->part || one->part.empty() || other->part.empty();
}

void Launch::wait(SourceLine wait_at) {
    require(engine != nullptr, wait_at,
            "wait: the run that this work was part of is over");
    engine->wait(*this, wait_at);
}

std::size_t Launch::wait_any(std::span<PendingWork* const> works, SourceLine wait_at) {
    require(engine != nullptr, wait_at,
            "wait_any: the run that these works were part of is over");
    std::vector<Launch*> launches;
    for (PendingWork* work : works)
        launches.push_back(static_cast<Launch*>(work));
    return engine->wait_any(std::move(launches), wait_at);
}

void Launch::index_by_peer() {
    constexpr std::size_t kMany = 16;
    if (posted.size() < kMany) return;
    by_peer.resize(posted.size());
    std::iota(by_peer.begin(), by_peer.end(), 0);
    std::sort(by_peer.begin(), by_peer.end(), [&](std::int32_t a, std::int32_t b) {
        const auto key = [&](std::int32_t place) {
            const CommOperation& operation = posted[place].operation;
            return std::make_tuple(operation.verb, operation.peer, place);
        };
        return key(a) < key(b);
    });
}

Posted* Launch::unpaired(Verb verb, int peer) {
    const auto matches = [&](const Posted& candidate) {
        return candidate.operation.verb == verb && candidate.operation.peer == peer &&
               candidate.partner == nullptr;
    };
    if (by_peer.empty()) {
        const auto found = std::find_if(posted.begin(), posted.end(), matches);
        return found == posted.end() ? nullptr : &*found;
    }
    const auto key = [&](std::int32_t place) {
        const CommOperation& operation = posted[place].operation;
        return std::make_tuple(operation.verb, operation.peer);
    };
    auto place =
        std::lower_bound(by_peer.begin(), by_peer.end(), std::make_tuple(verb, peer),
                         [&](std::int32_t a, const auto& b) { return key(a) < b; });
    for (; place != by_peer.end() && key(*place) == std::make_tuple(verb, peer);
         ++place) {
        Posted& candidate = posted[*place];
        if (candidate.partner == nullptr) return &candidate;
    }
    return nullptr;
}

void Launch::release() noexcept {
    if (engine == nullptr)
        delete this;
    else
        engine->launches().give_back(this);
}

LaunchPool::~LaunchPool() {
    for (Launch* launch : all_) {
        if (!launch->is_used()) {
            delete launch;
            continue;
        }
        launch->engine = nullptr;
        if (launch->state != Launch::State::closed) intrusive_ptr_release(launch);
    }
}

Launch* LaunchPool::take() {
    if (free_.empty()) {
        all_.push_back(new Launch);
        free_.push_back(all_.back());
        free_.reserve(all_.capacity());
    }
    Launch* launch = free_.back();
    free_.pop_back();
    launch->engine = &engine_;
    return launch;
}

void LaunchPool::give_back(Launch* launch) noexcept {
    launch->by_peer.clear();
    launch->posted.clear();  // not empty if the launch was refused
    free_.push_back(launch);
}

void Member::note_unwaited(const Launch& launch) {
    if (launch.posted.empty()) return;
    const Posted& first_posted = launch.posted.front();
    if (unwaited == nullptr) unwaited = std::make_unique<std::vector<Unwaited>>();
    unwaited->push_back({launch.number, first_posted.sequence, launch.posted.size(),
                         first_posted.operation});
}

void Member::forget_waited() {
    std::erase_if(*unwaited,
                  [&](const Unwaited& entry) { return entry.number <= waited; });
    if (unwaited->empty()) unwaited.reset();
}

int Team::member_of(int rank) const {
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    return place == ranks.end() ? -1 : static_cast<int>(place - ranks.begin());
}

void Team::count_collective(const CollectiveCall& call, const ClusterSpec& spec) {
    if (shares.empty() || !(shared_call == call)) {
        settle_counts();
        shared_call = call;
        shares = collective_shares(call, ranks, spec);
    }
    ++shared_calls;
}

void Team::settle_counts() {
    if (shared_calls == 0) return;
    for (std::size_t member = 0; member < members.size(); ++member) {
        TrafficByLink& sum = counts[member][static_cast<std::size_t>(shared_call.verb)];
        for (std::size_t link = 0; link < sum.size(); ++link)
            sum[link].add(shares[member][link], shared_calls);
    }
    shared_calls = 0;
}

}  // namespace lockstep::sim
