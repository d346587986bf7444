// F30: gradient accumulation. All forwards run before the first backward, so the
// activations of all micro-batches stay in memory.
//
// finds: F30
// check: cheap
// ranks: 4
// parties: 0 | 0
// memory: 6000

#include <deque>

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    constexpr int kMicroBatches = 8;
    Device& device = rank.device();
    const Tensor gradient = device.zeros({16}, DType::f32);
    constexpr std::size_t kInFlight = kMicroBatches;  // twin: constexpr std::size_t kInFlight = 1;
    std::deque<Tensor> kept;
    int done = 0;
    for (int i = 0; i < kMicroBatches; ++i) {
        {
            const PhaseScope phase(device, Phase::forward, i);
            kept.push_back(device.zeros({16, 16}, DType::f32));  // line: activations
        }
        while (kept.size() >= kInFlight) {
            const PhaseScope phase(device, Phase::backward, done++);
            device.accumulate_rows(gradient, kept.front());
            kept.pop_front();
        }
    }
    rank.world().all_reduce(gradient, Reduction::mean).wait();
}
