#include "lessons/grader/remote/remote_device.hpp"

#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

/// Only communicators may move values without cost.
[[noreturn]] void refuse() {
    throw UsageError(
        "only communicators may call this; a program uses copy(), add() and similar "
        "functions");
}

}  // namespace

Tensor RemoteDevice::empty(Shape shape, DType dtype, SourceLine at) {
    return line_.ask<Tensor>(RankRequest::empty, category(), shape, dtype, at);
}

void RemoteDevice::upload_into(const Tensor& destination, const HostTensor& values,
                               SourceLine at) {
    line_.ask<void>(RankRequest::upload_into, destination, values, at);
}

HostTensor RemoteDevice::download(const Tensor& source, SourceLine at) {
    return line_.ask<HostTensor>(RankRequest::download, source, at);
}

HostTensor RemoteDevice::peek(const Tensor& source, SourceLine at) {
    return line_.ask<HostTensor>(RankRequest::peek, source, at);
}

void RemoteDevice::perform(OperationRef operation, SourceLine at) {
    operation.visit([&](auto& op) {
        line_.tell(RankRequest::operation, category(), operation.kind(), op, at);
        const std::string answer = line_.receive();
        WireReader in(line_, answer);
        if constexpr (kMakesResults<std::remove_reference_t<decltype(op)>>)
            op.make([&in](Tensor& result, const Shape&, DType) {
                result = in.get<Tensor>();
            });
    });
}

Tensor RemoteDevice::scratch(Shape, DType, SourceLine) {
    refuse();
}

HostTensor RemoteDevice::transfer_to_host(const Tensor&, SourceLine) {
    refuse();
}

void RemoteDevice::transfer_from_host(const Tensor&, const HostTensor&, SourceLine) {
    refuse();
}

void RemoteDevice::do_compute(OperationRef, SourceLine) {
    refuse();
}

}  // namespace lockstep::lessons
