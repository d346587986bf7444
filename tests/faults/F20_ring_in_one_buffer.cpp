// F20: a ring exchange in one group. Each rank sends its block to the right, and receives
// the left rank's block into the same buffer.
//
// finds: F20
// check: cheap
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& ring = rank.world();
    const int n = ring.size();
    const int right = (rank.index() + 1) % n;
    const int left = (rank.index() + n - 1) % n;
    const Tensor total = device.zeros({16}, DType::f32);
    const Tensor block = device.zeros({16}, DType::f32);
    const Tensor spare = device.zeros({16}, DType::f32);
    device.fill(block, rank.index());
    for (int step = 0; step < n - 1; ++step) {
        device.add(total, block);
        const Tensor& arriving = block;  // twin: const Tensor& arriving = spare;
        Group group = ring.group();
        group.send(block, right);    // line: send
        group.recv(arriving, left);  // line: recv
        group.start().wait();
        device.copy(block, arriving);
    }
}
