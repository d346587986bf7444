#include "src/device/device.hpp"

#include <limits>

namespace lockstep {

void intrusive_ptr_release(Storage* storage) {
    if (--storage->references_ > 0) return;
    if (storage->device != nullptr) storage->device->release(*storage);
    delete storage;
}

Tensor Device::zeros(Shape shape, DType dtype, SourceLine at) {
    Tensor tensor = empty(shape, dtype, at);
    fill(tensor, 0, at);
    return tensor;
}

Tensor Device::upload(const HostTensor& values, SourceLine at) {
    Tensor tensor = empty(values.shape(), values.dtype(), at);
    upload_into(tensor, values, at);
    return tensor;
}

Device& Device::host(SourceLine at) {
    require(host_ != nullptr, at, "host: {}", no_host_);
    return *host_;
}

Work Device::start_copy(const Tensor& destination, const Tensor& source, SourceLine at) {
    const OperandCheck check(*this, "start_copy", at);
    Device& host = this->host(at);
    check.that(&host != this, "a host was asked to start a copy; ask its device");
    const bool to_host = destination.device() == &host;
    if (to_host) {
        check.own("source", source);
    } else {
        check.own("destination", destination);
        OperandCheck(host, "start_copy", at).own("source", source);
    }
    check.that(destination.dtype() == source.dtype(),
               "source is {}, but destination is {}", name_of(source.dtype()),
               name_of(destination.dtype()));
    check.that(destination.elements() == source.elements(),
               "source has {} elements, but destination has {}", source.elements(),
               destination.elements());
    return monitor_.start_copy(
        to_host ? CopyDirection::to_host : CopyDirection::to_device, destination, source,
        at);
}

OnlineAttention Device::begin_attention(const Heads& queries, SourceLine at) {
    const OperandCheck check(*this, "begin_attention", at);
    check.heads("queries", queries);
    ops::check_width(check, queries);
    const DType dtype = computed_in(queries.tensor.dtype());
    const Shape rows = ops::shape_of_rows(queries);
    OnlineAttention state{zeros(ops::shape_of_result(queries), dtype, at),
                          empty(rows, dtype, at), zeros(rows, dtype, at)};
    fill(state.maximum, -std::numeric_limits<double>::infinity(), at);
    return state;
}

}  // namespace lockstep
