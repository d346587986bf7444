#include "src/nn/routing.hpp"

#include "src/core/require.hpp"

namespace lockstep {

Routing route(Device& device, const Tensor& ids, std::int64_t experts, SourceLine at) {
    require(experts > 0, at, "route: {} experts; one is expected at least", experts);
    Routing routing;
    routing.order = device.empty({ids.elements()}, DType::i32, at);
    routing.rows = device.empty({ids.elements()}, DType::i32, at);
    HostTensor counts;
    {
        const MemoryScope scope(device, MemoryCategory::workspace);
        const Tensor on_device = device.empty({experts}, DType::i32, at);
        device.sort_ids(routing.order, routing.rows, on_device, ids, false, at);
        counts = device.download(on_device, at);
    }
    for (std::int64_t expert = 0; expert < experts; ++expert) {
        const std::int64_t even =
            ids.elements() / experts + (expert < ids.elements() % experts ? 1 : 0);
        routing.counts.push_back(
            device.has_numbers() ? static_cast<std::int64_t>(counts.at(expert)) : even);
    }
    return routing;
}

}  // namespace lockstep
