#include "src/parallel/flat_buffer.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

namespace {

DType dtype_of(const Parameter& parameter, Tensor Parameter::*member) {
    const Tensor& tensor = parameter.*member;
    return tensor ? tensor.dtype() : parameter.dtype();
}

}  // namespace

Tensor make_flat(Device& device, const std::vector<Parameter*>& parameters,
                 Tensor Parameter::*member, std::int64_t multiple) {
    require(!parameters.empty(), "a flat buffer needs at least one parameter");
    const DType dtype = dtype_of(*parameters.front(), member);
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters) {
        const DType own = dtype_of(*parameter, member);
        require(own == dtype, "{} cannot be put into a flat buffer of {}: it is {}",
                parameter->name(), name_of(dtype), name_of(own));
        elements += parameter->shape().elements();
    }
    const bool values = member == &Parameter::value;
    const MemoryScope scope(
        device, values ? MemoryCategory::parameters : MemoryCategory::gradients);
    const std::int64_t padded = (elements + multiple - 1) / multiple * multiple;
    Tensor flat = device.zeros(Shape::flat(padded), dtype);
    std::int64_t begin = 0;
    for (Parameter* parameter : parameters) {
        const Shape& shape = parameter->shape();
        const Tensor view = flat.slice(begin, shape.elements()).reshaped(shape);
        begin += shape.elements();
        const Tensor before = std::exchange(parameter->*member, view);
        parameter->name_tensor(view);
        if (before)
            device.copy(view, before);
        else if (values)
            parameter->fill_initial();
        if (values) declare_again(*parameter);
    }
    return flat;
}

Tensor own_range(const Tensor& flat, const Communicator& line) {
    require(flat.elements() % line.size() == 0,
            "a flat buffer of {} elements cannot be sharded over the {} ranks of {}; a "
            "multiple of {} is expected",
            flat.elements(), line.size(), line.name(), line.size());
    const std::int64_t share = flat.elements() / line.size();
    return flat.slice(line.rank() * share, share);
}

std::unique_ptr<Parameter> make_shard(const Parameter& parameter, const Part& part,
                                      const Tensor& values, const Tensor& gradients,
                                      const Communicator& line) {
    auto shard = std::make_unique<Parameter>(
        parameter.name(), values.reshaped(part.shape), gradients.reshaped(part.shape),
        part_of_part(parameter.part(), part));
    shard->placements = parameter.placements;
    for (Placement& placement : shard->placements)
        if (placement.line == &line)
            placement.kind = placement.has_terms() ? Placement::Kind::sharded_sum
                                                   : Placement::Kind::sharded;
    return shard;
}

std::vector<std::unique_ptr<Parameter>> shards_in(
    const std::vector<Parameter*>& parameters, Chunk range, const Tensor& values,
    const Tensor& gradients, const Communicator& line) {
    std::vector<std::unique_ptr<Parameter>> shards;
    std::int64_t begin = 0;  // where the parameter begins in the buffer
    for (const Parameter* parameter : parameters) {
        const std::int64_t end = begin + parameter->shape().elements();
        const std::int64_t from = std::max(begin, range.begin);
        const std::int64_t count = std::min(end, range.begin + range.count) - from;
        if (count > 0) {
            const Part part = flat_part(parameter->shape(), from - begin, count);
            shards.push_back(
                make_shard(*parameter, part, values.slice(from - range.begin, count),
                           gradients.slice(from - range.begin, count), line));
        }
        begin = end;
    }
    return shards;
}

}  // namespace lockstep
