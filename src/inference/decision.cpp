#include "src/inference/decision.hpp"

#include <vector>

namespace lockstep {

std::int32_t told_by_first(Device& device, Communicator& group, std::int32_t own,
                           SourceLine at) {
    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor number =
        device.upload(HostTensor::of<std::int32_t>({1}, std::vector{own}), at);
    group.broadcast(number, 0, at).wait(at);
    const HostTensor told = device.download(number, at);
    return device.has_numbers() ? told.values<std::int32_t>()[0] : own;
}

bool decided_by_first(Device& device, Communicator& group, bool own, SourceLine at) {
    const std::int32_t told = told_by_first(device, group, own ? 1 : 0, at);
    if (device.has_numbers()) return told == 1;
    // In the new group, rank 0 is first if it decides yes, and last if it decides no. If
    // it is last, the numbers of the other ranks become lower by 1.
    constexpr int kBefore = 0, kOthers = 1, kBehind = 2;
    const bool decides = group.rank() == 0;
    const int place = !decides ? kOthers : own ? kBefore : kBehind;
    const auto order = group.split(0, place, "decision", at);
    return decides ? own : order->rank() == group.rank();
}

}  // namespace lockstep
