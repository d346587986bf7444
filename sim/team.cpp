#include "sim/team.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "sim/engine.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

void Batch::wait(SourceLine wait_at) {
    require(engine != nullptr, wait_at,
            "wait: the run that this work was part of is over");
    engine->wait(*this, wait_at);
}

void Batch::index_by_peer() {
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

Posted* Batch::unpaired(Verb verb, int peer) {
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

void Batch::release() noexcept {
    if (engine == nullptr)
        delete this;
    else
        engine->batches().give_back(this);
}

BatchPool::~BatchPool() {
    for (Batch* batch : free_)
        delete batch;
    for (Batch* batch = in_use_; batch != nullptr;) {
        Batch* const following = batch->pool_next;
        batch->engine = nullptr;
        if (batch->state != Batch::State::closed) intrusive_ptr_release(batch);
        batch = following;
    }
}

Batch* BatchPool::take() {
    if (free_.empty()) free_.push_back(new Batch);
    Batch* batch = free_.back();
    free_.pop_back();
    batch->engine = &engine_;
    batch->pool_previous = nullptr;
    batch->pool_next = in_use_;
    if (in_use_ != nullptr) in_use_->pool_previous = batch;
    in_use_ = batch;
    return batch;
}

void BatchPool::give_back(Batch* batch) noexcept {
    batch->by_peer.clear();
    batch->posted.clear();  // of one that was refused
    (batch->pool_previous ? batch->pool_previous->pool_next : in_use_) = batch->pool_next;
    if (batch->pool_next != nullptr)
        batch->pool_next->pool_previous = batch->pool_previous;
    free_.push_back(batch);
}

void Member::note_unwaited(const Batch& batch) {
    if (batch.posted.empty()) return;
    const Posted& first_posted = batch.posted.front();
    if (unwaited == nullptr) unwaited = std::make_unique<std::vector<Unwaited>>();
    Unwaited& entry =
        unwaited->emplace_back(Unwaited{batch.number, first_posted.sequence,
                                        batch.posted.size(), first_posted.operation});
    entry.operation.input = entry.operation.output = Tensor();
}

void Member::forget_waited() {
    std::erase_if(*unwaited,
                  [&](const Unwaited& entry) { return entry.number <= waited; });
    if (unwaited->empty()) unwaited.reset();
}

void Team::count_collective(const CollectiveCall& call, const ClusterSpec& spec) {
    const auto same_node = [&](int a, int b) { return spec.same_node(a, b); };
    if (shares.empty() || !(shared_call == call)) {
        shared_call = call;
        shares.assign(members.size(), {});
        for (int member = 0; member < size(); ++member)
            shares[member] = collective_share(call, member, ranks, same_node);
    }
    for (std::size_t member = 0; member < members.size(); ++member) {
        TrafficByLink& sum = counts[member][static_cast<std::size_t>(call.verb)];
        for (std::size_t link = 0; link < sum.size(); ++link)
            sum[link] += shares[member][link];
    }
}

}  // namespace lockstep::sim
