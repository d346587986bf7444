#include "src/parallel/context_parallel.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/parallel/gather_attention.hpp"
#include "src/parallel/ring_attention.hpp"
#include "src/parallel/ring_self_attention.hpp"
#include "src/parallel/ulysses_attention.hpp"

namespace lockstep {

const char* name_of(ContextMethod method) {
    constexpr const char* kNames[] = {"ring-self-attention", "ring-attention", "gather",
                                      "ulysses"};
    return kNames[static_cast<int>(method)];
}

const std::vector<ContextMethod>& all_context_methods() {
    static const std::vector<ContextMethod> methods = {
        ContextMethod::ring_self_attention, ContextMethod::ring_attention,
        ContextMethod::gather, ContextMethod::ulysses};
    return methods;
}

ContextMethod context_method(const std::string& name) {
    for (const ContextMethod method : all_context_methods())
        if (name == name_of(method)) return method;
    throw UsageError(
        fmt::format("attention '{}'; ring-self-attention, ring-attention, "
                    "gather or ulysses is expected",
                    name));
}

std::unique_ptr<Module> make_context_attention(ContextMethod method, Device& device,
                                               Communicator& group,
                                               const AttentionSizes& sizes,
                                               TokenOrder order) {
    const auto make = [&]<typename Attention>() {
        return std::make_unique<Attention>(device, group, sizes, order);
    };
    switch (method) {
        case ContextMethod::ring_self_attention:
            return make.template operator()<RingSelfAttention>();
        case ContextMethod::ring_attention:
            return make.template operator()<RingAttention>();
        case ContextMethod::gather:
            return make.template operator()<GatherAttention>();
        case ContextMethod::ulysses:
            return make.template operator()<UlyssesAttention>();
    }
    throw UsageError("unknown method of context parallelism");
}

// lesson: context-parallel
GptKit context_parallel(GptKit kit, Communicator& group, ContextMethod method,
                        TokenOrder order) {
    require(kit.tokens.ranks == 1,
            "context_parallel(): the kit's tokens are sharded already");
    kit.tokens = {order, group.size(), group.rank()};
    kit.core = [=, &group](Device& device, const AttentionSizes& sizes) {
        return make_context_attention(method, device, group, sizes, order);
    };
    return kit;
}
// lesson: end

}  // namespace lockstep
