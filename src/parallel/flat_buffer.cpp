#include "src/parallel/flat_buffer.hpp"

#include "src/core/require.hpp"

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
    }
    return flat;
}

}  // namespace lockstep
