#include "src/nn/offloaded_activations.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "src/core/require.hpp"
#include "src/nn/wrapper.hpp"

namespace lockstep {

/// A module of the model. Its activations are sent to the host and fetched.
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
    std::size_t place_;  ///< among the offloaded modules
};

OffloadedActivations::OffloadedActivations(Device& device, Sequential& model,
                                           std::size_t first, std::size_t last,
                                           const OffloadOptions& options)
    : on_host_(device, options.least_bytes), count_(last - first), options_(options) {
    require(first <= last && last <= model.size(),
            "OffloadedActivations: modules {} to {} of a Sequential of {}", first, last,
            model.size());
    require(options.prefetch >= 0 && options.least_bytes >= 0,
            "OffloadedActivations: prefetch is {} and least_bytes is {}; neither may be "
            "negative",
            options.prefetch, options.least_bytes);
    for (std::size_t place = 0; place < count_; ++place)
        model.replace(first + place, [&](std::unique_ptr<Module> module) {
            return std::make_unique<Layer>(*this, place, std::move(module));
        });
}

// lesson: offloaded-activations
void OffloadedActivations::after_forward(std::size_t place, Saved& saved) {
    saved.keep_value("before", place == 0 ? nullptr : before_);
    before_ = &saved;
    if (stays(place))
        on_host_.keep(saved);
    else
        on_host_.send(saved);
    on_host_.let_go(static_cast<std::size_t>(options_.prefetch));
}

void OffloadedActivations::before_backward(Saved& saved) {
    on_host_.let_go(0);
    on_host_.fetch(saved);
    Saved* ahead = saved.value<Saved*>("before");
    for (int i = 0; i < options_.prefetch && ahead != nullptr; ++i) {
        on_host_.fetch(*ahead);
        ahead = ahead->value<Saved*>("before");
    }
    on_host_.wait(saved);
}
// lesson: end

bool OffloadedActivations::stays(std::size_t place) const {
    return options_.last_stay &&
           place + 1 + static_cast<std::size_t>(options_.prefetch) >= count_;
}

}  // namespace lockstep
