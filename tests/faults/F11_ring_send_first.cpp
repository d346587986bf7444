// F11: a value moves around a ring. Every rank first sends and then receives.
//
// finds: F11
// check: cheap
// ranks: 4, 256
// parties: all

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int n = rank.size();
    const int right = (rank.index() + 1) % n;
    const int left = (rank.index() + n - 1) % n;
    const Tensor going = device.zeros({64}, DType::f32);
    const Tensor coming = device.zeros({64}, DType::f32);
    const Tensor sum = device.zeros({64}, DType::f32);
    const bool sends_first = true;  // twin: const bool sends_first = rank.index() % 2 == 0;
    for (int hop = 0; hop < n - 1; ++hop) {
        if (sends_first) rank.world().send(going, right).wait();  // line: send
        rank.world().recv(coming, left).wait();
        if (!sends_first) rank.world().send(going, right).wait();
        device.add(sum, coming);
        device.copy(going, coming);
    }
}
