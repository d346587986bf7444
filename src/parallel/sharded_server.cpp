#include "src/parallel/sharded_server.hpp"

#include <algorithm>
#include <numeric>

#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

namespace {

std::vector<int> all_ranks(const Communicator& group) {
    std::vector<int> ranks(static_cast<std::size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

}  // namespace

ShardedServer::ShardedServer(Device& device, Communicator& group,
                             std::vector<Parameter*> parameters, const ServerPlan& plan)
    : GradientBuckets(std::move(parameters), plan.sizes),
      device_(device),
      group_(group),
      pushes_by_(group.split(0, group.rank(), "pushes")),
      pulls_by_(group.split(0, group.rank(), "pulls")),
      servers_(plan.servers),
      workers_(plan.workers.empty() ? all_ranks(group) : plan.workers),
      answers_early_(std::ranges::find_first_of(servers_, workers_) == servers_.end()) {
    require(!servers_.empty(), "ShardedServer: the plan names no server");
    for (const std::vector<int>* ranks : {&servers_, &workers_})
        for (const int rank : *ranks)
            require(
                rank >= 0 && rank < group.size() && std::ranges::count(*ranks, rank) == 1,
                "ShardedServer: the plan names rank {}; each rank once, from 0 to "
                "{}, is expected",
                rank, group.size() - 1);
    shares_ = std::make_unique<ServerShares>(device, group, buckets(), servers_,
                                             plan.deal, works());
    pushes_.resize(buckets().size());
}

// lesson: sharded-server
void ShardedServer::start(std::size_t bucket) {
    for (int round = 0; round < rounds(); ++round) {
        const auto [server, worker] = partners(bucket, round);
        if (!server && !worker) continue;
        Tensor arriving;
        Group group = pushes_by_->group();
        if (server) group.send(shares_->gradients(bucket, *server), *server);
        if (worker) {
            const MemoryScope scope(device_, MemoryCategory::communication);
            const Tensor own = shares_->gradients(bucket, group_.rank());
            arriving = device_.empty(own.shape(), own.dtype());
            group.recv(arriving, *worker);
        }
        pushes_[bucket].push_back({group.start(), arriving});
    }
    if (!serves() && answers_early_ && bucket > 0) pull(bucket - 1);
}

void ShardedServer::add_up(std::size_t bucket) {
    for (Push& push : pushes_[bucket]) {
        push.work.wait();
        if (push.arriving)
            device_.add(shares_->gradients(bucket, group_.rank()), push.arriving);
    }
    pushes_[bucket].clear();
    complete_gradients(shares_->served(bucket), &group_);
    for (Parameter* shard : shares_->served(bucket))
        shard->complete = true;
}

void ShardedServer::pull(std::size_t bucket) {
    for (int round = 0; round < rounds(); ++round) {
        const auto [server, worker] = partners(bucket, round);
        if (!server && !worker) continue;
        Group group = pulls_by_->group();
        if (worker) group.send(shares_->values(bucket, group_.rank()), *worker);
        if (server) group.recv(shares_->values(bucket, *server), *server);
        pulls_.push_back(group.start());
    }
}
// lesson: end

int ShardedServer::rounds() const {
    return static_cast<int>(std::max(workers_.size(), servers_.size()));
}

/// In round r, worker i and server (i - r) mod rounds() exchange messages, if the server
/// has a part of the bucket.
ShardedServer::Partners ShardedServer::partners(std::size_t bucket, int round) const {
    const auto other_at = [this](const std::vector<int>& ranks, int place) {
        const auto wrapped = static_cast<std::size_t>((place + rounds()) % rounds());
        const bool is_other = wrapped < ranks.size() && ranks[wrapped] != group_.rank();
        return is_other ? std::optional(ranks[wrapped]) : std::nullopt;
    };
    Partners partners;
    if (const auto place = place_in(workers_))
        partners.server = other_at(servers_, *place - round);
    if (partners.server && !shares_->has(bucket, *partners.server))
        partners.server.reset();
    if (const auto place = place_in(servers_);
        place && shares_->has(bucket, group_.rank()))
        partners.worker = other_at(workers_, *place + round);
    return partners;
}

void ShardedServer::begin() {
    GradientBuckets::begin();
    for (Parameter* shard : shards())
        shard->complete = false;
}

void ShardedServer::finish() {
    start_rest();
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket)
        add_up(bucket);
}

void ShardedServer::update(Optimizer& optimizer) {
    optimizer.require_of("ShardedServer, where a rank updates shards()", shards());
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        if (serves())
            answer(bucket, optimizer);
        else if (!answers_early_ || bucket + 1 == buckets().size())
            pull(bucket);
    }
    wait_for_pulls();
}

void ShardedServer::serve(Optimizer& optimizer) {
    device_.fill(shares_->all_gradients(), 0);
    begin();
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        start_first(answers_early_ ? bucket + 2 : buckets().size());
        add_up(bucket);
        answer(bucket, optimizer);
    }
    wait_for_pulls();
}

void ShardedServer::wait_for_pulls() {
    for (Work& work : pulls_)
        work.wait();
    pulls_.clear();
}

void ShardedServer::answer(std::size_t bucket, Optimizer& optimizer) {
    for (const Parameter* shard : shares_->served(bucket))
        optimizer.step(*shard);
    pull(bucket);
}

std::optional<int> ShardedServer::place_in(const std::vector<int>& ranks) const {
    const auto found = std::ranges::find(ranks, group_.rank());
    if (found == ranks.end()) return std::nullopt;
    return static_cast<int>(found - ranks.begin());
}

}  // namespace lockstep
