#include "src/parallel/zero_offload.hpp"

#include <utility>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"

namespace lockstep {

ZeroOffload::ZeroOffload(Device& device, Communicator& replicas,
                         std::vector<Parameter*> parameters, const ZeroOptions& options,
                         bool delayed)
    : Zero2("ZeroOffload", &device.host(), device, replicas, std::move(parameters),
            options),
      delayed_(delayed) {
    if (!delayed_) return;
    in_turn().let_program_go_on();  // the host updates while the device runs backward
    Device& host = device.host();
    const MemoryScope scope(host, MemoryCategory::gradients);
    const PinnedMemory pinned(host);
    for (Shared& bucket : shared())
        before_.push_back(
            host.zeros(bucket.own_gradients.shape(), bucket.own_gradients.dtype()));
}

void ZeroOffload::finish() {
    finish_sums();  // also starts the copies to the host
    if (delayed_) return;
    for (Shared& bucket : shared())
        bucket.sum.settle();
    complete_shards();
}

void ZeroOffload::update(Optimizer& optimizer) {
    require_own(optimizer);
    if (!delayed_) return renew(&optimizer);
    if (steps_++ > 0) renew(&optimizer);  // while the device is still in backward
    for (Shared& bucket : shared())
        bucket.sum.settle();
    turn_gradients();
    complete_shards();
}

void ZeroOffload::send_values() {
    steps_ = 0;  // the pending gradient belongs to old values
    Zero2::send_values();
}

// lesson: zero-offload
/// While a bucket is updated, the previous bucket is copied back to the device. A delayed
/// update waits for copies only after all buckets are updated: the device is still in
/// backward, and copies begin when it no longer reads the old values.
void ZeroOffload::renew(Optimizer* optimizer) {
    std::vector<std::pair<Shared*, Work>> copies;
    const auto gather_copied = [&] {
        for (auto& [bucket, copy] : copies) {
            copy.wait();
            gather(*bucket);
        }
        copies.clear();
    };
    for (std::size_t i = shared().size(); i-- > 0;) {  // the last bucket is used first
        Shared& bucket = shared()[i];
        if (optimizer)
            for (const auto& shard : bucket.shards)
                optimizer->step(*shard);
        if (!delayed_) gather_copied();
        copies.emplace_back(
            &bucket,
            device().start_copy(own_range(bucket.values, replicas()), bucket.own_values));
    }
    gather_copied();
    if (!options().hide_gather) wait_for_values();
}
// lesson: end

/// Points the shards at this step's gradients; the next step writes to the other buffer.
void ZeroOffload::turn_gradients() {
    for (std::size_t i = 0; i < shared().size(); ++i) {
        Shared& bucket = shared()[i];
        std::int64_t begin = 0;
        for (const auto& shard : bucket.shards) {
            const Shape& shape = shard->shape();
            shard->gradient =
                bucket.own_gradients.slice(begin, shape.elements()).reshaped(shape);
            begin += shape.elements();
        }
        std::swap(bucket.own_gradients, before_[i]);
    }
}

}  // namespace lockstep
