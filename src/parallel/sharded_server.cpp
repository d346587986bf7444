#include "src/parallel/sharded_server.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

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

/// Parameters as they lie in the flat buffers, and each server's section of these.
struct Dealt {
    Parameters order;
    std::vector<Chunk> sections;
};

/// Always the largest parameter that is left goes to the server that has least; a server
/// keeps the order of `parameters`.
Dealt deal_whole(const Parameters& parameters, std::size_t servers) {
    Parameters by_size = parameters;
    std::ranges::stable_sort(by_size, std::greater(), [](const Parameter* parameter) {
        return parameter->shape().elements();
    });
    std::vector<Parameters> own(servers);
    for (Parameter* parameter : by_size)
        std::ranges::min_element(own, {}, elements_of)->push_back(parameter);
    Dealt dealt;
    for (const Parameters& of_server : own) {
        dealt.sections.push_back({elements_of(dealt.order), elements_of(of_server)});
        std::ranges::copy_if(parameters, std::back_inserter(dealt.order),
                             [&](Parameter* parameter) {
                                 return std::ranges::count(of_server, parameter) > 0;
                             });
    }
    return dealt;
}

Dealt deal_ranges(Parameters parameters, std::size_t servers) {
    Dealt dealt{std::move(parameters), {}};
    for (std::size_t i = 0; i < servers; ++i)
        dealt.sections.push_back(chunk(elements_of(dealt.order),
                                       static_cast<int>(servers), static_cast<int>(i)));
    return dealt;
}

/// Returns the section's elements that are the bucket's; they lie side by side, since
/// parameters lie in the order of buckets.
Chunk range_of(const Parameters& bucket, const Parameters& order, const Chunk& section) {
    Chunk range;
    std::int64_t begin = 0;
    for (Parameter* parameter : order) {
        const std::int64_t end = begin + parameter->shape().elements();
        const std::int64_t from = std::max(begin, section.begin);
        const std::int64_t to = std::min(end, section.begin + section.count);
        if (from < to && std::ranges::count(bucket, parameter) > 0)
            range = range.count == 0 ? Chunk{from, to - from}
                                     : Chunk{range.begin, to - range.begin};
        begin = end;
    }
    return range;
}

}  // namespace

ShardedServer::ShardedServer(Device& device, Communicator& group,
                             std::vector<Parameter*> parameters, const ServerPlan& plan)
    : GradientBuckets(std::move(parameters), plan.sizes),
      device_(device),
      group_(group),
      pushes_by_(group.split(0, group.rank(), "pushes")),
      pulls_by_(group.split(0, group.rank(), "pulls")),
      workers_(plan.workers),
      serves_(std::ranges::count(plan.servers, group.rank()) > 0),
      answers_early_(std::ranges::none_of(
          plan.servers, [this](int server) { return is_worker(server); })) {
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
    Parameters all;
    for (const Bucket& bucket : buckets())
        all.insert(all.end(), bucket.begin(), bucket.end());
    const auto [order, sections] = plan.deal == ServerPlan::Deal::whole
                                       ? deal_whole(all, plan.servers.size())
                                       : deal_ranges(all, plan.servers.size());
    values_ = make_flat(device_, order, &Parameter::value);
    gradients_ = make_flat(device_, order, &Parameter::gradient);

    const auto ranks = static_cast<std::size_t>(group_.size());
    const auto own = static_cast<std::size_t>(group_.rank());
    std::vector<Chunk> section_of(ranks);  // of those that serve
    for (std::size_t i = 0; i < sections.size(); ++i)
        section_of[static_cast<std::size_t>(plan.servers[i])] = sections[i];
    if (!works()) keep_own(order, section_of[own]);

    ranges_.assign(buckets().size(), std::vector<Chunk>(ranks));
    served_in_.resize(buckets().size());
    pushes_.resize(buckets().size());
    for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) {
        for (std::size_t rank = 0; rank < ranks; ++rank)
            ranges_[bucket][rank] = range_of(buckets()[bucket], order, section_of[rank]);
        const Chunk& mine = ranges_[bucket][own];
        for (auto& shard : shards_in(order, mine, part(values_, mine),
                                     part(gradients_, mine), group_)) {
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
    const Chunk& mine = range(bucket, group_.rank());
    for (int offset = 1; offset < group_.size(); ++offset) {
        const int to = rank_at(-offset);
        const int from = rank_at(offset);
        const Chunk& theirs = range(bucket, to);
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
    const Chunk& mine = range(bucket, group_.rank());
    for (int offset = 1; offset < group_.size(); ++offset) {
        const int to = rank_at(offset);
        const int from = rank_at(-offset);
        const Chunk& theirs = range(bucket, from);
        const bool sends = is_worker(to) && mine.count > 0;
        const bool receives = works() && theirs.count > 0;
        if (!sends && !receives) continue;
        Group group = pulls_by_->group();
        if (sends) group.send(part(values_, mine), to);
        if (receives) group.recv(part(values_, theirs), from);
        pulls_.push_back(group.start());
    }
}

// lesson: end

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
    require(std::ranges::is_permutation(optimizer.parameters(), served()),
            "ShardedServer: the optimizer is not one of served(): each rank updates what "
            "it serves, and no other parameter");
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

bool ShardedServer::is_worker(int rank) const {
    return workers_.empty() || std::ranges::find(workers_, rank) != workers_.end();
}

int ShardedServer::rank_at(int offset) const {
    return (group_.rank() + offset + group_.size()) % group_.size();
}

const Chunk& ShardedServer::range(std::size_t bucket, int rank) const {
    return ranges_[bucket][static_cast<std::size_t>(rank)];
}

Tensor ShardedServer::part(const Tensor& flat, const Chunk& range) const {
    if (range.count == 0) return flat.slice(0, 0);
    return flat.slice(range.begin - first_, range.count);
}

}  // namespace lockstep
