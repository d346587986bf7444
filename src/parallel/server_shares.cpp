#include "src/parallel/server_shares.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

#include "src/parallel/flat_buffer.hpp"

namespace lockstep {

namespace {

using Parameters = std::vector<Parameter*>;

std::int64_t elements_of(const Parameters& parameters) {
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters)
        elements += parameter->shape().elements();
    return elements;
}

/// Returns each server's parameters. The largest remaining parameter always goes to the
/// server with the fewest elements.
std::vector<Parameters> deal_whole(Parameters parameters, std::size_t servers) {
    std::ranges::stable_sort(parameters, std::greater(), [](const Parameter* parameter) {
        return parameter->shape().elements();
    });
    std::vector<Parameters> own(servers);
    for (Parameter* parameter : parameters)
        std::ranges::min_element(own, {}, elements_of)->push_back(parameter);
    return own;
}

/// Returns which of the bucket's parameters the server has.
Parameters common(const Parameters& bucket, const Parameters& of_server) {
    Parameters both;
    std::ranges::copy_if(bucket, std::back_inserter(both), [&](Parameter* parameter) {
        return std::ranges::count(of_server, parameter) > 0;
    });
    return both;
}

}  // namespace

ServerShares::ServerShares(Device& device, const Communicator& group,
                           const std::vector<Parameters>& buckets,
                           const std::vector<int>& servers, ServerDeal deal,
                           bool keeps_all)
    : rank_(group.rank()), served_in_(buckets.size()) {
    const Parameters order = deal_out(buckets, servers, deal, group.size());
    values_ = make_flat(device, order, &Parameter::value);
    gradients_ = make_flat(device, order, &Parameter::gradient);
    if (!keeps_all) keep_own(device, order);

    for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket)
        for (auto& shard : shards_in(order, range(bucket, rank_), values(bucket, rank_),
                                     gradients(bucket, rank_), group)) {
            served_in_[bucket].push_back(shard.get());
            shards_.push_back(std::move(shard));
        }
}

ServerShares::Parameters ServerShares::deal_out(const std::vector<Parameters>& buckets,
                                                const std::vector<int>& servers,
                                                ServerDeal deal, int ranks) {
    Parameters all;
    for (const Parameters& bucket : buckets)
        all.insert(all.end(), bucket.begin(), bucket.end());
    const std::vector<Parameters> whole = deal_whole(all, servers.size());

    // Orders parameters by bucket, and within a bucket by server.
    Parameters order;
    for (const Parameters& bucket : buckets) {
        std::int64_t begin = elements_of(order);
        auto& ranges = ranges_.emplace_back(static_cast<std::size_t>(ranks));
        for (std::size_t i = 0; i < servers.size(); ++i) {
            std::int64_t count = 0;
            if (deal == ServerDeal::whole) {
                const Parameters own = common(bucket, whole[i]);
                order.insert(order.end(), own.begin(), own.end());
                count = elements_of(own);
            } else {
                count = chunk(elements_of(bucket), static_cast<int>(servers.size()),
                              static_cast<int>(i))
                            .count;
            }
            ranges[static_cast<std::size_t>(servers[i])] = {begin, count};
            begin += count;
        }
        if (deal == ServerDeal::ranges)
            order.insert(order.end(), bucket.begin(), bucket.end());
    }
    return order;
}

void ServerShares::keep_own(Device& device, const Parameters& all) {
    for (Parameter* parameter : all)
        parameter->value = parameter->gradient = Tensor();
    std::int64_t elements = 0;
    for (std::size_t bucket = 0; bucket < ranges_.size(); ++bucket) {
        own_begin_.push_back(elements);
        elements += range(bucket, rank_).count;
    }
    for (const auto& [flat, category] :
         {std::pair{&values_, MemoryCategory::parameters},
          std::pair{&gradients_, MemoryCategory::gradients}}) {
        const MemoryScope scope(device, category);
        const Tensor own = device.empty({elements}, flat->dtype());
        for (std::size_t bucket = 0; bucket < ranges_.size(); ++bucket) {
            const auto [begin, count] = range(bucket, rank_);
            device.copy(own.slice(own_begin_[bucket], count), flat->slice(begin, count));
        }
        *flat = own;
    }
}

std::vector<Parameter*> ServerShares::served() const {
    std::vector<Parameter*> all;
    for (const auto& shard : shards_)
        all.push_back(shard.get());
    return all;
}

Tensor ServerShares::values(std::size_t bucket, int rank) const {
    return part(values_, bucket, rank);
}

Tensor ServerShares::gradients(std::size_t bucket, int rank) const {
    return part(gradients_, bucket, rank);
}

const Chunk& ServerShares::range(std::size_t bucket, int rank) const {
    return ranges_[bucket][static_cast<std::size_t>(rank)];
}

Tensor ServerShares::part(const Tensor& flat, std::size_t bucket, int rank) const {
    const auto [begin, count] = range(bucket, rank);
    return flat.slice(own_begin_.empty() ? begin : own_begin_[bucket], count);
}

}  // namespace lockstep
