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

std::vector<std::unique_ptr<Parameter>> shard_flat(
    const std::vector<Parameter*>& parameters, const Tensor& values,
    const Tensor& gradients, Communicator& line) {
    const std::int64_t share = own_range(values, line).elements();
    require(own_range(gradients, line).elements() == share,
            "{} values and {} gradients to share out; as many are expected",
            values.elements(), gradients.elements());
    const std::int64_t first = line.rank() * share;
    std::vector<std::unique_ptr<Parameter>> shards;
    std::int64_t begin = 0;  // of the parameter, in the buffer
    for (const Parameter* parameter : parameters) {
        const std::int64_t end = begin + parameter->shape().elements();
        const std::int64_t from = std::max(begin, first);
        const std::int64_t count = std::min(end, first + share) - from;
        if (count > 0) {
            const Part range = flat_part(parameter->shape(), from - begin, count);
            shards.push_back(std::make_unique<Parameter>(
                parameter->name(), values.slice(from, count),
                gradients.slice(from, count), part_of_part(parameter->part(), range)));
            shards.back()->placements = parameter->placements;
            for (Placement& placement : shards.back()->placements)
                if (placement.line == &line)
                    placement.kind = placement.has_terms() ? Placement::Kind::sharded_sum
                                                           : Placement::Kind::sharded;
        }
        begin = end;
    }
    return shards;
}

}  // namespace lockstep
