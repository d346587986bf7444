#include "src/nn/recompute.hpp"

#include <utility>

#include "src/core/require.hpp"

namespace lockstep {

Recompute::Recompute(std::unique_ptr<Module> module)
    : Wrapper("Recompute", std::move(module)) {}

// lesson: recompute
Tensor Recompute::do_forward(const Tensor& x, Saved& saved) {
    Tensor y = Wrapper::do_forward(x, saved);
    saved.child(0).clear_to_repeat();
    saved.keep("x", x);
    return y;
}

void Recompute::forward_again(Saved& saved) {
    Wrapper::do_forward(saved.at("x"), saved);
    saved.drop("x");
}

Tensor Recompute::do_backward_input(const Tensor& dy, Saved& saved) {
    forward_again(saved);
    return Wrapper::do_backward_input(dy, saved);
}

Tensor Recompute::do_backward(const Tensor& dy, Saved& saved) {
    forward_again(saved);
    return Wrapper::do_backward(dy, saved);
}
// lesson: end

void recompute_modules(Sequential& model, std::size_t first, std::size_t last) {
    require(first <= last && last <= model.size(),
            "cannot recompute modules {} to {} of a Sequential of {}", first, last,
            model.size());
    for (std::size_t i = first; i < last; ++i)
        model.replace(i, [](std::unique_ptr<Module> module) {
            return std::make_unique<Recompute>(std::move(module));
        });
}

void recompute_blocks(Sequential& gpt, const GptSizes& sizes) {
    const auto first = static_cast<std::size_t>(sizes.first_block());
    recompute_modules(gpt, first, first + static_cast<std::size_t>(sizes.layers));
}

// lesson: selective-recompute
GptKit selective_recompute(GptKit kit) {
    require(
        kit.tokens.ranks == 1 || kit.core,
        "selective_recompute(): the kit's tokens are sharded over {} ranks, but its "
        "attention does not see the other ranks' tokens; use context_parallel() first",
        kit.tokens.ranks);
    kit.core = [core = kit.core](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<Recompute>(
            core ? core(device, sizes) : std::make_unique<CoreAttention>(device, sizes));
    };
    return kit;
}
// lesson: end

}  // namespace lockstep
