// F17: a pipeline stage sends its activations to the next stage. Meanwhile it computes
// the next micro-batch into the same buffer.
//
// finds: F17
// check: full
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& stages = rank.world();
    constexpr int kMicroBatches = 4;
    const bool first = rank.index() == 0;
    const bool last = rank.index() == stages.size() - 1;
    const Tensor weight = device.zeros({8, 8}, DType::f32);
    const Tensor input = device.zeros({4, 8}, DType::f32);
    const Tensor output = device.zeros({4, 8}, DType::f32);

    std::vector<Work> sending;
    for (int m = 0; m < kMicroBatches; ++m) {
        if (!first) stages.recv(input, rank.index() - 1).wait();
        // twin: if (!sending.empty()) sending.back().wait();
        device.matmul_into(output, input, weight);  // line: write
        if (!last)
            sending.push_back(stages.send(output, rank.index() + 1));  // line: launch
    }
    for (Work& work : sending)
        work.wait();
}
