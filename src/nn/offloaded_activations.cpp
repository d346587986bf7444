#include "src/nn/offloaded_activations.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "src/core/require.hpp"
#include "src/nn/wrapper.hpp"

namespace lockstep {

/// A module of the model, whose activations come and go.
class OffloadedActivations::Layer : public Wrapper {
  public:
    Layer(OffloadedActivations& offloaded, std::size_t place,
          std::unique_ptr<Module> module)
        : Wrapper("OffloadedActivations", std::move(module)),
          offloaded_(offloaded),
          place_(place) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        Tensor y = Wrapper::do_forward(x, saved);
        offloaded_.after_forward(place_, saved);
        return y;
    }
    Tensor do_backward(const Tensor& dy, Saved& saved) override {
        offloaded_.before_backward(saved);
        return Wrapper::do_backward(dy, saved);
    }
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        offloaded_.before_backward(saved);
        return Wrapper::do_backward_input(dy, saved);
    }

    OffloadedActivations& offloaded_;
    std::size_t place_;  ///< among those that are offloaded
};

OffloadedActivations::OffloadedActivations(Device& device, Sequential& model,
                                           std::size_t first, std::size_t last,
                                           const OffloadOptions& options)
    : device_(device), count_(last - first), options_(options) {
    require(first <= last && last <= model.size(),
            "OffloadedActivations: modules {} to {} of a Sequential of {}", first, last,
            model.size());
    require(options.prefetch >= 0 && options.least_bytes >= 0,
            "OffloadedActivations: {} modules are to be prefetched, and tensors of {} "
            "bytes on; neither may be negative",
            options.prefetch, options.least_bytes);
    device.host();  // refuses if there is none
    for (std::size_t place = 0; place < count_; ++place)
        model.replace(first + place, [&](std::unique_ptr<Module> module) {
            return std::make_unique<Layer>(*this, place, std::move(module));
        });
}

// lesson: offloaded-activations
void OffloadedActivations::after_forward(std::size_t place, Saved& saved) {
    saved.keep_value("before", place == 0 ? nullptr : before_);
    before_ = &saved;
    leaving_.push_back({&saved, {}});
    if (!stays(place)) send(saved);
    // The device lets go of what has left.
    while (leaving_.size() > static_cast<std::size_t>(options_.prefetch))
        wait_for_first(leaving_);
}

void OffloadedActivations::before_backward(Saved& saved) {
    while (!leaving_.empty())
        wait_for_first(leaving_);
    fetch(saved);
    Saved* ahead = saved.value<Saved*>("before");
    for (int i = 0; i < options_.prefetch && ahead != nullptr; ++i) {
        fetch(*ahead);
        ahead = ahead->value<Saved*>("before");
    }
    if (!returning_.empty() && returning_.front().of == &saved)
        wait_for_first(returning_);
}

/// Starts the copies of what the module saved, which from now on is on the host.
void OffloadedActivations::send(Saved& saved) {
    Device& host = device_.host();
    const MemoryScope scope(host, MemoryCategory::activations);
    const PinnedMemory pinned(host);
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

/// Starts the copies of what the module saved back to the device, if they were not.
void OffloadedActivations::fetch(Saved& saved) {
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

bool OffloadedActivations::goes(const Tensor& tensor) const {
    return tensor.device() == &device_ &&
           tensor.storage()->category == MemoryCategory::activations &&
           tensor.dtype() != DType::i32 && tensor.elements() > 0 &&
           tensor.bytes() >= options_.least_bytes;
}

bool OffloadedActivations::stays(std::size_t place) const {
    return options_.last_stay &&
           place + 1 + static_cast<std::size_t>(options_.prefetch) >= count_;
}

/// Waits for the copies that were started first; they end in order. Lets go of both
/// sides.
void OffloadedActivations::wait_for_first(Queue& queue) {
    if (!queue.front().list.empty()) queue.front().list.back().work.wait();
    queue.pop_front();
}

/// Returns the copy one side of which is this very range of memory; null if there is
/// none.
const OffloadedActivations::Copy* OffloadedActivations::find(const Queue& queue,
                                                             Tensor Copy::*side,
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
