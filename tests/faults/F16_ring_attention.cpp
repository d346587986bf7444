// F16: ring self-attention. Keys move around the ring. At the same time a rank should
// compute with keys that it has, but it computes with keys that have not arrived yet.
//
// finds: F16
// check: full
// ranks: 4, 64
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& ring = rank.world();
    const int n = ring.size();
    const int right = (rank.index() + 1) % n;
    const int left = (rank.index() + n - 1) % n;
    const Tensor queries = device.zeros({4, 8}, DType::f32);
    Tensor keys = device.zeros({4, 8}, DType::f32);
    Tensor next = device.zeros({4, 8}, DType::f32);

    std::vector<Tensor> scores;
    for (int step = 0; step < n; ++step) {
        Group exchange = ring.group();
        exchange.send(keys, right);
        exchange.recv(next, left);  // line: launch
        Work moving = exchange.start();
        const Tensor& here = next;  // twin: const Tensor& here = keys;
        scores.push_back(device.matmul(queries, here, {.transpose_b = true}));  // line: read
        moving.wait();
        std::swap(keys, next);
    }
}
