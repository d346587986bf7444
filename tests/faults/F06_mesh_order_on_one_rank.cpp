// F06: data and tensor parallelism. The rank that writes the log makes its
// tensor-parallel group first; the other ranks make it second.
//
// finds: F06
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    constexpr int kTensor = 2;
    Communicator& world = rank.world();
    const int shard = rank.index() % kTensor;
    const int replica = rank.index() / kTensor;
    std::unique_ptr<Communicator> data;
    std::unique_ptr<Communicator> tensor;
    const bool log = rank.index() == 0;  // twin: const bool log = rank.size() == 1;
    if (log) {
        tensor = world.split(replica, shard, "tp");  // line: tensor
        rank.keep_value("tensor ranks", tensor->size());
    }
    data = world.split(shard, replica, "dp");  // line: data
    if (!log) tensor = world.split(replica, shard, "tp");

    const Tensor partial = rank.device().zeros({8, 4}, DType::f32);
    const Tensor gradient = rank.device().zeros({32}, DType::f32);
    tensor->all_reduce(partial).wait();
    data->all_reduce(gradient, Reduction::mean).wait();
}
