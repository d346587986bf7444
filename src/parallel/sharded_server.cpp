#include "src/parallel/sharded_server.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

namespace {

using Parameters = std::vector<Parameter*>;

std::int64_t elements_of(const Parameters& parameters) {
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters)
        elements += parameter->shape().elements();
    return elements;
}

/// Returns each server's parameters: always the largest that is left goes to the server
/// that has least.
std::vector<Parameters> deal_whole(Parameters parameters, std::size_t servers) {
    std::ranges::stable_sort(parameters, std::greater(), [](const Parameter* parameter) {
        return parameter->shape().elements();
    });
    std::vector<Parameters> own(servers);
    for (Parameter* parameter : parameters)
        std::ranges::min_element(own, {}, elements_of)->push_back(parameter);
    return own;
}

/// Returns those of a bucket that a server has.
Parameters common(const Parameters& bucket, const Parameters& of_server) {
    Parameters both;
    std::ranges::copy_if(bucket, std::back_inserter(both), [&](Parameter* parameter) {
        return std::ranges::count(of_server, parameter) > 0;
    });
    return both;
}

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
    lay_out(plan);
}

void ShardedServer::lay_out(const ServerPlan& plan) {
    // Bucket by bucket, and in each of them server by server.
    Parameters order;
    const std::vector<Parameters> whole = deal_whole(parameters(), plan.servers.size());
    ranges_.assign(buckets().size(),
                   std::vector<Chunk>(static_cast<std::size_t>(group_.size())));
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        std::int64_t begin = elements_of(order);
        for (std::size_t i = 0; i < plan.servers.size(); ++i) {
            std::int64_t count = 0;
            if (plan.deal == ServerPlan::Deal::whole) {
                const Parameters own = common(buckets()[bucket], whole[i]);
                order.insert(order.end(), own.begin(), own.end());
                count = elements_of(own);
            } else {
                count = chunk(elements_of(buckets()[bucket]),
                              static_cast<int>(plan.servers.size()), static_cast<int>(i))
                            .count;
            }
            ranges_[bucket][static_cast<std::size_t>(plan.servers[i])] = {begin, count};
            begin += count;
        }
        if (plan.deal == ServerPlan::Deal::ranges)
            order.insert(order.end(), buckets()[bucket].begin(), buckets()[bucket].end());
    }
    values_ = make_flat(device_, order, &Parameter::value);
    gradients_ = make_flat(device_, order, &Parameter::gradient);
    if (!works()) keep_own(order);

    served_in_.resize(buckets().size());
    pushes_.resize(buckets().size());
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket)
        for (auto& shard : shards_in(order, range(bucket, group_.rank()),
                                     part(values_, bucket, group_.rank()),
                                     part(gradients_, bucket, group_.rank()), group_)) {
            served_in_[bucket].push_back(shard.get());
            served_.push_back(std::move(shard));
        }
}

void ShardedServer::keep_own(const Parameters& all) {
    for (Parameter* parameter : all)
        parameter->value = parameter->gradient = Tensor();
    std::int64_t elements = 0;
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        own_begin_.push_back(elements);
        elements += range(bucket, group_.rank()).count;
    }
    for (const auto& [flat, category] :
         {std::pair{&values_, MemoryCategory::parameters},
          std::pair{&gradients_, MemoryCategory::gradients}}) {
        const MemoryScope scope(device_, category);
        const Tensor own = device_.empty({elements}, flat->dtype());
        for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
            const auto [begin, count] = range(bucket, group_.rank());
            device_.copy(own.slice(own_begin_[bucket], count), flat->slice(begin, count));
        }
        *flat = own;
    }
}

// lesson: sharded-server
void ShardedServer::start(std::size_t bucket) {
    const Chunk& mine = range(bucket, group_.rank());
    for (int round = 0; round < rounds(); ++round) {
        const auto [server, worker] = partners(round);
        const bool sends = server && range(bucket, *server).count > 0;
        const bool receives = worker && mine.count > 0;
        if (!sends && !receives) continue;
        Tensor arriving;
        Group group = pushes_by_->group();
        if (sends) group.send(part(gradients_, bucket, *server), *server);
        if (receives) {
            const MemoryScope scope(device_, MemoryCategory::communication);
            arriving = device_.empty({mine.count}, gradients_.dtype());
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
            device_.add(part(gradients_, bucket, group_.rank()), push.arriving);
    }
    pushes_[bucket].clear();
    complete_gradients(served_in_[bucket], &group_);
    for (Parameter* shard : served_in_[bucket])
        shard->complete = true;
}

void ShardedServer::pull(std::size_t bucket) {
    const Chunk& mine = range(bucket, group_.rank());
    for (int round = 0; round < rounds(); ++round) {
        const auto [server, worker] = partners(round);
        const bool sends = worker && mine.count > 0;
        const bool receives = server && range(bucket, *server).count > 0;
        if (!sends && !receives) continue;
        Group group = pulls_by_->group();
        if (sends) group.send(part(values_, bucket, group_.rank()), *worker);
        if (receives) group.recv(part(values_, bucket, *server), *server);
        pulls_.push_back(group.start());
    }
}
// lesson: end

int ShardedServer::rounds() const {
    return static_cast<int>(std::max(workers_.size(), servers_.size()));
}

/// In round r worker i and server i - r are partners.
ShardedServer::Partners ShardedServer::partners(int round) const {
    const auto other_at = [this](const std::vector<int>& ranks, int place) {
        const auto wrapped = static_cast<std::size_t>((place + rounds()) % rounds());
        const bool is_other = wrapped < ranks.size() && ranks[wrapped] != group_.rank();
        return is_other ? std::optional(ranks[wrapped]) : std::nullopt;
    };
    Partners partners;
    if (const auto place = place_in(workers_))
        partners.server = other_at(servers_, *place - round);
    if (const auto place = place_in(servers_))
        partners.worker = other_at(workers_, *place + round);
    return partners;
}

void ShardedServer::begin() {
    GradientBuckets::begin();
    for (const auto& shard : served_)
        shard->complete = false;
}

void ShardedServer::finish() {
    start_rest();
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket)
        add_up(bucket);
}

void ShardedServer::update(Optimizer& optimizer) {
    optimizer.require_of("ShardedServer, where a rank updates served()", served());
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        if (serves())
            answer(bucket, optimizer);
        else if (!answers_early_ || bucket + 1 == buckets().size())
            pull(bucket);
    }
    wait_for_pulls();
}

void ShardedServer::serve(Optimizer& optimizer) {
    device_.fill(gradients_, 0);
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
    for (const Parameter* shard : served_in_[bucket])
        optimizer.step(*shard);
    pull(bucket);
}

std::vector<Parameter*> ShardedServer::served() const {
    std::vector<Parameter*> all;
    for (const auto& shard : served_)
        all.push_back(shard.get());
    return all;
}

std::optional<int> ShardedServer::place_in(const std::vector<int>& ranks) const {
    const auto found = std::ranges::find(ranks, group_.rank());
    if (found == ranks.end()) return std::nullopt;
    return static_cast<int>(found - ranks.begin());
}

const Chunk& ShardedServer::range(std::size_t bucket, int rank) const {
    return ranges_[bucket][static_cast<std::size_t>(rank)];
}

Tensor ShardedServer::part(const Tensor& flat, std::size_t bucket, int rank) const {
    const auto [begin, count] = range(bucket, rank);
    return flat.slice(works() ? begin : own_begin_[bucket], count);
}

}  // namespace lockstep
