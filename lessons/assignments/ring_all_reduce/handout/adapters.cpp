#include "adapters.hpp"

#include "ring.hpp"

using namespace lockstep;

void adapters::reduce_scatter(Rank& rank, const Tensor& buffer) {
    ::reduce_scatter(rank, buffer);
}

void adapters::all_gather(Rank& rank, const Tensor& buffer) {
    ::all_gather(rank, buffer);
}

void adapters::all_reduce(Rank& rank, const Tensor& buffer) {
    ::all_reduce(rank, buffer);
}
