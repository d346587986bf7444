#include "src/parallel/flat_buffer.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

Tensor make_flat(Device& device, const std::vector<Parameter*>& parameters,
                 Tensor Parameter::*member, std::int64_t multiple) {
    require(!parameters.empty(), "a flat buffer of no parameters");
    const DType dtype = (parameters.front()->*member).dtype();
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters) {
        const Tensor& tensor = parameter->*member;
        require(tensor && tensor.dtype() == dtype,
                "{} cannot be put into a flat buffer of {}: it is {}", parameter->name(),
                name_of(dtype), tensor ? name_of(tensor.dtype()) : "absent");
        elements += tensor.elements();
    }
    const bool values = member == &Parameter::value;
    const MemoryScope scope(
        device, values ? MemoryCategory::parameters : MemoryCategory::gradients);
    const std::int64_t padded = (elements + multiple - 1) / multiple * multiple;
    Tensor flat = device.zeros(Shape::flat(padded), dtype);
    std::int64_t begin = 0;
    for (Parameter* parameter : parameters) {
        Tensor& tensor = parameter->*member;
        const Tensor view = flat.slice(begin, tensor.elements()).reshaped(tensor.shape());
        device.copy(view, tensor);
        begin += tensor.elements();
        tensor = view;
        tensor.set_label(parameter->name());
        if (values) declare_again(*parameter);
    }
    return flat;
}

Tensor own_range(const Tensor& flat, const Communicator& line) {
    require(
        flat.elements() % line.size() == 0,
        "a flat buffer of {} elements over the {} ranks of {}: a multiple of these is "
        "expected",
        flat.elements(), line.size(), line.name());
    const std::int64_t share = flat.elements() / line.size();
    return flat.slice(line.rank() * share, share);
}

std::vector<std::unique_ptr<Parameter>> shards_in(
    const std::vector<Parameter*>& parameters, Chunk range, const Tensor& values,
    const Tensor& gradients, const Communicator& line) {
    std::vector<std::unique_ptr<Parameter>> shards;
    std::int64_t begin = 0;  // of the parameter, in the buffer
    for (const Parameter* parameter : parameters) {
        const std::int64_t end = begin + parameter->shape().elements();
        const std::int64_t from = std::max(begin, range.begin);
        const std::int64_t count = std::min(end, range.begin + range.count) - from;
        if (count > 0) {
            const Part part = flat_part(parameter->shape(), from - begin, count);
            auto shard = std::make_unique<Parameter>(
                parameter->name(), values.slice(from - range.begin, count),
                gradients.slice(from - range.begin, count),
                part_of_part(parameter->part(), part));
            shard->placements = parameter->placements;
            for (Placement& placement : shard->placements)
                if (placement.line == &line)
                    placement.kind = placement.has_terms() ? Placement::Kind::sharded_sum
                                                           : Placement::Kind::sharded;
            shards.push_back(std::move(shard));
        }
        begin = end;
    }
    return shards;
}

FlatShare share_flat(Device& device, const std::vector<Parameter*>& parameters,
                     Communicator& line) {
    FlatShare flat{make_flat(device, parameters, &Parameter::value, line.size()),
                   make_flat(device, parameters, &Parameter::gradient, line.size()),
                   {}};
    const std::int64_t share = flat.values.elements() / line.size();
    flat.shards =
        shards_in(parameters, {line.rank() * share, share}, own_range(flat.values, line),
                  own_range(flat.gradients, line), line);
    return flat;
}

}  // namespace lockstep
