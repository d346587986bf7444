#include "ddp_buckets.hpp"

#include "src/course/not_written.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

using namespace lockstep;

Buckets::Buckets(Rank& /*rank*/, Module& /*network*/, const BucketLimits& /*limits*/) {
    throw NotWritten("a7.1: the constructor of Buckets in ddp_buckets.cpp");
}

Buckets::~Buckets() = default;

std::vector<Tensor> Buckets::tensors() const {
    throw NotWritten("a7.1: Buckets::tensors in ddp_buckets.cpp");
}

void Buckets::begin(int /*micro_batches*/) {
    throw NotWritten("a7.2: Buckets::begin in ddp_buckets.cpp");
}

void Buckets::finish() {
    throw NotWritten("a7.2: Buckets::finish in ddp_buckets.cpp");
}

Tensor batch_gradient(Rank& /*rank*/, Module& /*network*/, Buckets& /*buckets*/,
                      const MicroBatches& /*micro_batches*/) {
    throw NotWritten("a7.2: batch_gradient in ddp_buckets.cpp");
}

Tensor train(Rank& /*rank*/, Module& /*network*/, const MicroBatches& /*micro_batches*/,
             const BucketLimits& /*limits*/, int /*steps*/, double /*learning_rate*/) {
    throw NotWritten("a7.3: train in ddp_buckets.cpp");
}
