#include "src/parallel/scattered_sum.hpp"

#include <utility>

namespace lockstep {

void ScatteredSum::start(Device& device, Communicator& line,
                         std::vector<SummedShare> shares, bool adds, SourceLine at) {
    device_ = &device;
    shares_ = std::move(shares);
    adds_ = adds;
    const MemoryScope scope(device, MemoryCategory::communication);
    Group group = line.group(at);
    for (SummedShare& each : shares_) {
        const DType dtype = each.share.dtype();
        if (each.whole.dtype() != dtype) {
            const Tensor cast = device.empty(each.whole.shape(), dtype, at);
            device.cast(cast, each.whole, at);
            each.whole = cast;
        }
        const bool straight = !adds && each.share.device() == &device;
        arriving_.push_back(straight ? each.share.flat()
                                     : device.empty({each.share.elements()}, dtype, at));
        group.reduce_scatter(arriving_.back(), each.whole.flat(), Reduction::sum, at);
    }
    sums_ = group.start(at);
}

void ScatteredSum::finish(SourceLine at) {
    if (!sums_) return;
    sums_->wait(at);
    sums_.reset();
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        const Tensor& share = shares_[i].share;
        if (share.device() == device_) {
            if (adds_) device_->add(share, arriving_[i].reshaped(share.shape()), 1, at);
            continue;
        }
        Device& host = *share.device();
        const PinnedMemory pinned(host);
        const MemoryScope scope(host, MemoryCategory::communication);
        const Tensor there = adds_ ? host.empty(share.shape(), share.dtype(), at) : share;
        copies_.push_back({there, arriving_[i], share, adds_,
                           device_->start_copy(there.flat(), arriving_[i], at)});
    }
    shares_.clear();
    arriving_.clear();
}

void ScatteredSum::settle(SourceLine at) {
    finish(at);
    for (Copy& copy : copies_) {
        copy.work.wait(at);
        if (copy.adds) copy.share.device()->add(copy.share, copy.there, 1, at);
    }
    copies_.clear();
}

void SumsInTurn::before(ScatteredSum& next, SourceLine at) {
    if (last_) last_->finish(at);
    if (before_last_ && program_waits_) before_last_->settle(at);
    before_last_ = std::exchange(last_, &next);
    next.settle(at);  // copies of the previous micro-batch
}

void SumsInTurn::finish(SourceLine at) {
    if (last_) last_->finish(at);
}

}  // namespace lockstep
