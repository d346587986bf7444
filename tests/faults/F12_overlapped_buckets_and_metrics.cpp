// F12: data parallelism with overlapped buckets on a separate communicator. The rank that
// logs reduces its loss first. The other ranks reduce their losses last.
//
// finds: F12
// check: full
// ranks: 4, 256
// parties: 0 | 0 | 1 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const auto buckets = rank.world().split(0, rank.index(), "buckets");
    const Tensor first = device.zeros({64}, DType::f32);
    const Tensor second = device.zeros({64}, DType::f32);
    const Tensor loss = device.zeros({1}, DType::f32);
    const bool logs = rank.index() == 0;  // twin: const bool logs = rank.index() < 0;
    std::vector<Work> works;
    if (logs) works.push_back(rank.world().all_reduce(loss));  // line: metrics
    works.push_back(buckets->all_reduce(first));   // line: bucket
    works.push_back(buckets->all_reduce(second));
    if (!logs) works.push_back(rank.world().all_reduce(loss));  // line: later
    for (Work& work : works)
        work.wait();
}
