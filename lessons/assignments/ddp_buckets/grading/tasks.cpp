#include <fmt/format.h>

#include "adapters.hpp"
#include "lessons/assignments/given_batches.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

BucketLimits limits_of(const TaskInputs& in) {
    return {in.number("first bytes"), in.number("bytes")};
}

/// Outputs each bucket, and one tensor with the gradients of all buckets in order.
void make_buckets(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = given_network(rank.device(), in);
    const std::vector<Tensor> buckets =
        adapters::make_buckets(rank, *network, limits_of(in));
    // If gradients are views of buckets, the numbers written here appear in the buckets.
    double number = 0;
    for (const Parameter* parameter : network->parameters())
        rank.device().fill(parameter->gradient, ++number);
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        out.tensors[fmt::format("bucket {}", i)] = buckets[i];
        if (buckets[i]) elements += buckets[i].elements();
    }
    const Tensor gradients = rank.device().empty({elements}, DType::f64);
    std::int64_t begin = 0;
    for (const Tensor& bucket : buckets)
        if (bucket) {
            const std::int64_t count = bucket.elements();
            rank.device().copy(gradients.slice(begin, count), bucket.flat());
            begin += count;
        }
    out.tensors["gradients"] = gradients;
}

void batch_gradient(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = given_network(rank.device(), in);
    out.tensors["loss"] = adapters::batch_gradient(
        rank, *network, given_batches<MicroBatch>(in), limits_of(in));
    for (const Parameter* parameter : network->parameters())
        out.tensors[parameter->name()] = parameter->gradient;
}

void train(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = given_network(rank.device(), in);
    out.tensors["losses"] =
        adapters::train(rank, *network, given_batches<MicroBatch>(in), limits_of(in),
                        in.integer("steps"), in_thousandths(in, "learning rate"));
    for (const Parameter* parameter : network->parameters())
        out.tensors[parameter->name()] = parameter->value;
}

}  // namespace

Tasks tasks() {
    return {{"make_buckets", make_buckets},
            {"batch_gradient", batch_gradient},
            {"train", train}};
}

}  // namespace lockstep
