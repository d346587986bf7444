#include "src/nn/saved_on_host.hpp"

#include <algorithm>

namespace lockstep {

SavedOnHost::SavedOnHost(Device& device, std::int64_t least_bytes)
    : device_(device), least_bytes_(least_bytes) {
    device.host();  // throws if there is no host
}

// lesson: saved-on-host
void SavedOnHost::send(Saved& saved) {
    Device& host = device_.host();
    const MemoryScope scope(host, MemoryCategory::activations);
    const PinnedMemory pinned(host);
    leaving_.push_back({&saved, {}});
    saved.each_tensor([&](Tensor& tensor) {
        if (!goes(tensor)) return;
        const Copy* copy = find(leaving_, &Copy::here, tensor);
        if (copy == nullptr) {
            const SourceLine at = saved.line();
            const Tensor there = host.empty({tensor.elements()}, tensor.dtype(), at);
            std::vector<Copy>& list = leaving_.back().list;
            list.push_back(
                {tensor.flat(), there, device_.start_copy(there, tensor.flat(), at)});
            copy = &list.back();
        }
        tensor = copy->there.reshaped(tensor.shape());
    });
}

void SavedOnHost::fetch(Saved& saved) {
    const auto is_it = [&](const Copies& copies) { return copies.saved == &saved; };
    while (std::any_of(leaving_.begin(), leaving_.end(), is_it))
        wait_for_first(leaving_);
    const MemoryScope scope(device_, MemoryCategory::activations);
    returning_.push_back({&saved, {}});
    std::vector<Copy>& list = returning_.back().list;
    saved.each_tensor([&](Tensor& tensor) {
        if (tensor.device() != &device_.host()) return;
        const Copy* copy = find(returning_, &Copy::there, tensor);
        if (copy == nullptr) {
            const SourceLine at = saved.line();
            const Tensor here = device_.empty({tensor.elements()}, tensor.dtype(), at);
            list.push_back(
                {here, tensor.flat(), device_.start_copy(here, tensor.flat(), at)});
            copy = &list.back();
        }
        tensor = copy->here.reshaped(tensor.shape());
    });
    if (list.empty()) returning_.pop_back();
}
// lesson: end

void SavedOnHost::let_go(std::size_t most) {
    while (leaving_.size() > most)
        wait_for_first(leaving_);
}

void SavedOnHost::wait(const Saved& saved) {
    if (!returning_.empty() && returning_.front().saved == &saved)
        wait_for_first(returning_);
}

bool SavedOnHost::goes(const Tensor& tensor) const {
    return tensor.device() == &device_ &&
           tensor.storage()->category == MemoryCategory::activations &&
           tensor.dtype() != DType::i32 && tensor.elements() > 0 &&
           tensor.bytes() >= least_bytes_;
}

/// Waits for the oldest copies in the queue; copies end in order. Releases the tensors on
/// both sides.
void SavedOnHost::wait_for_first(Queue& queue) {
    if (!queue.front().list.empty()) queue.front().list.back().work.wait();
    queue.pop_front();
}

/// Returns the copy whose tensor on this side has exactly this range of memory; null if
/// there is none.
const SavedOnHost::Copy* SavedOnHost::find(const Queue& queue, Tensor Copy::*side,
                                           const Tensor& range) {
    for (const Copies& copies : queue)
        for (const Copy& copy : copies.list) {
            const Tensor& known = copy.*side;
            if (known.storage() == range.storage() && known.dtype() == range.dtype() &&
                known.offset_bytes() == range.offset_bytes() &&
                known.bytes() == range.bytes())
                return &copy;
        }
    return nullptr;
}

}  // namespace lockstep
