#include "src/parallel/sharded_server.hpp"

#include <algorithm>
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
    std::vector<Parameters> dealt(servers);
    std::vector<std::int64_t> held(servers);
    for (Parameter* parameter : parameters) {
        const auto least =
            static_cast<std::size_t>(std::ranges::min_element(held) - held.begin());
        dealt[least].push_back(parameter);
        held[least] += parameter->shape().elements();
    }
    return dealt;
}

}  // namespace

ShardedServer::ShardedServer(Device& device, Communicator& group,
                             std::vector<Parameter*> parameters, const ServerPlan& plan)
    : GradientBuckets(std::move(parameters), plan.sizes),
      device_(device),
      group_(group),
      pushes_by_(group.split(0, group.rank(), "pushes")),
      pulls_by_(group.split(0, group.rank(), "pulls")),
      workers_(plan.workers) {
    require(!plan.servers.empty(), "ShardedServer: the plan names no server");
    for (const std::vector<int>* ranks : {&plan.servers, &plan.workers})
        for (const int rank : *ranks)
            require(
                rank >= 0 && rank < group.size() && std::ranges::count(*ranks, rank) == 1,
                "ShardedServer: the plan names rank {}; each rank once, from 0 to "
                "{}, is expected",
                rank, group.size() - 1);
    lay_out(plan);
}

void ShardedServer::lay_out(const ServerPlan& plan) {
    // In the buffers parameters lie server by server, and in the order of buckets.
    Parameters order;
    for (const Bucket& bucket : buckets())
        order.insert(order.end(), bucket.begin(), bucket.end());
    const std::size_t servers = plan.servers.size();
    std::vector<Chunk> sections;
    if (plan.deal == ServerPlan::Deal::whole) {
        const std::vector<Parameters> dealt = deal_whole(parameters(), servers);
        Parameters sorted;
        for (const Parameters& own : dealt) {
            sections.push_back({elements_of(sorted), elements_of(own)});
            std::ranges::copy_if(order, std::back_inserter(sorted), [&](Parameter* one) {
                return std::ranges::find(own, one) != own.end();
            });
        }
        order = std::move(sorted);
    } else {
        for (std::size_t i = 0; i < servers; ++i)
            sections.push_back(chunk(elements_of(order), static_cast<int>(servers),
                                     static_cast<int>(i)));
    }
    values_ = make_flat(device_, order, &Parameter::value);
    gradients_ = make_flat(device_, order, &Parameter::gradient);

    // Of each bucket a server has one range.
    ranges_.assign(buckets().size(), std::vector<Range>(group_.size()));
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        std::int64_t begin = 0;
        for (Parameter* parameter : order) {
            const std::int64_t end = begin + parameter->shape().elements();
            if (std::ranges::find(buckets()[bucket], parameter) !=
                buckets()[bucket].end())
                for (std::size_t i = 0; i < servers; ++i) {
                    const std::int64_t from = std::max(begin, sections[i].begin);
                    const std::int64_t to =
                        std::min(end, sections[i].begin + sections[i].count);
                    Range& range = ranges_[bucket][plan.servers[i]];
                    if (from >= to) continue;
                    if (range.count == 0) range.begin = from;
                    range.count = to - range.begin;
                }
            begin = end;
        }
    }

    const auto mine = std::ranges::find(plan.servers, group_.rank());
    serves_ = mine != plan.servers.end();
    answers_early_ = std::ranges::none_of(
        plan.servers, [&](int server) { return is_worker(server); });
    if (!works())
        keep_own(order, serves_ ? sections[mine - plan.servers.begin()] : Chunk{});
    served_in_.resize(buckets().size());
    pushes_.resize(buckets().size());
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        const Range& own = range(bucket, group_.rank());
        for (auto& shard :
             shards_in(order, own, part(values_, own), part(gradients_, own), group_)) {
            served_in_[bucket].push_back(shard.get());
            served_.push_back(std::move(shard));
        }
    }
}

void ShardedServer::keep_own(const Parameters& all, Chunk section) {
    for (Parameter* parameter : all)
        parameter->value = parameter->gradient = Tensor();
    for (const auto& [flat, category] :
         {std::pair{&values_, MemoryCategory::parameters},
          std::pair{&gradients_, MemoryCategory::gradients}}) {
        const MemoryScope scope(device_, category);
        const Tensor own = device_.empty({section.count}, flat->dtype());
        device_.copy(own, flat->slice(section.begin, section.count));
        *flat = own;
    }
    first_ = section.begin;
}

// lesson: sharded-server
void ShardedServer::start(std::size_t bucket) {
    const Range& mine = range(bucket, group_.rank());
    for (int offset = 1; offset < group_.size(); ++offset) {
        const int to = rank_at(-offset);
        const int from = rank_at(offset);
        const Range& theirs = range(bucket, to);
        const bool sends = works() && theirs.count > 0;
        const bool receives = is_worker(from) && mine.count > 0;
        if (!sends && !receives) continue;
        Tensor arriving;
        Group group = pushes_by_->group();
        if (sends) group.send(part(gradients_, theirs), to);
        if (receives) {
            const MemoryScope scope(device_, MemoryCategory::communication);
            arriving = device_.empty({mine.count}, gradients_.dtype());
            group.recv(arriving, from);
        }
        pushes_[bucket].push_back({group.start(), arriving});
    }
    if (!serves() && answers_early_ && bucket > 0) pull(bucket - 1);
}

void ShardedServer::add_up(std::size_t bucket) {
    for (Push& push : pushes_[bucket]) {
        push.work.wait();
        if (push.arriving)
            device_.add(part(gradients_, range(bucket, group_.rank())), push.arriving);
    }
    pushes_[bucket].clear();
    complete_gradients(served_in_[bucket], &group_);
    for (Parameter* shard : served_in_[bucket])
        shard->complete = true;
}

void ShardedServer::pull(std::size_t bucket) {
    const Range& mine = range(bucket, group_.rank());
    for (int offset = 1; offset < group_.size(); ++offset) {
        const int to = rank_at(offset);
        const int from = rank_at(-offset);
        const Range& theirs = range(bucket, from);
        const bool sends = is_worker(to) && mine.count > 0;
        const bool receives = works() && theirs.count > 0;
        if (!sends && !receives) continue;
        Group group = pulls_by_->group();
        if (sends) group.send(part(values_, mine), to);
        if (receives) group.recv(part(values_, theirs), from);
        pulls_.push_back(group.start());
    }
}

void ShardedServer::finish() {
    start_rest();
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket)
        add_up(bucket);
}

void ShardedServer::update(Optimizer& optimizer) {
    require(std::ranges::is_permutation(optimizer.parameters(), served()),
            "ShardedServer: the optimizer is not one of served(): each rank updates what "
            "it serves, and no other parameter");
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        if (serves())
            answer(bucket, optimizer);
        else if (!answers_early_ || bucket + 1 == buckets().size())
            pull(bucket);
    }
    for (Work& work : pulls_)
        work.wait();
    pulls_.clear();
}

void ShardedServer::serve(Optimizer& optimizer) {
    device_.fill(gradients_, 0);
    begin();
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        start_first(answers_early_ ? bucket + 2 : buckets().size());
        add_up(bucket);
        answer(bucket, optimizer);
    }
    for (Work& work : pulls_)
        work.wait();
    pulls_.clear();
}

void ShardedServer::answer(std::size_t bucket, Optimizer& optimizer) {
    for (const Parameter* shard : served_in_[bucket])
        optimizer.step(*shard);
    pull(bucket);
}
// lesson: end

std::vector<Parameter*> ShardedServer::served() const {
    std::vector<Parameter*> all;
    for (const auto& shard : served_)
        all.push_back(shard.get());
    return all;
}

bool ShardedServer::is_worker(int rank) const {
    return workers_.empty() || std::ranges::find(workers_, rank) != workers_.end();
}

int ShardedServer::rank_at(int offset) const {
    return (group_.rank() + offset + group_.size()) % group_.size();
}

const Chunk& ShardedServer::range(std::size_t bucket, int rank) const {
    return ranges_[bucket][static_cast<std::size_t>(rank)];
}

Tensor ShardedServer::part(const Tensor& flat, const Range& range) const {
    if (range.count == 0) return flat.slice(0, 0);
    return flat.slice(range.begin - first_, range.count);
}

}  // namespace lockstep
