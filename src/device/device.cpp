#include "src/device/device.hpp"

#include <cassert>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/device/check.hpp"

namespace lockstep {

void intrusive_ptr_release(Storage* storage) {
    if (--storage->references_ > 0) return;
    if (storage->device != nullptr) storage->device->release(*storage);
    delete storage;
}

Device::~Device() {
    assert(live_ == nullptr && "the backend's destructor calls free_all()");
}

Tensor Device::empty(Shape shape, DType dtype, SourceLine at) {
    auto storage = std::make_unique<Storage>();
    storage->device = this;
    storage->bytes = shape.elements() * bytes_of(dtype);
    storage->category = category_;
    storage->allocated_at = at;
    storage->allocated_in = monitor_.moment();
    link(*storage);
    // The ledger's "no" comes before the host's.
    try {
        monitor_.allocated(*storage);
    } catch (...) {
        unlink(*storage);
        throw;
    }
    if (has_numbers() && storage->bytes > 0) {
        try {
            storage->data = do_allocate(storage->bytes);
        } catch (...) {
            monitor_.freed(*storage);
            unlink(*storage);
            throw;
        }
    }
    return {boost::intrusive_ptr<Storage>(storage.release()), shape, dtype};
}

Tensor Device::scratch(Shape shape, DType dtype) {
    auto storage = std::make_unique<Storage>();
    storage->device = this;
    storage->bytes = shape.elements() * bytes_of(dtype);
    storage->counted = false;
    if (has_numbers() && storage->bytes > 0) storage->data = do_allocate(storage->bytes);
    link(*storage);
    return {boost::intrusive_ptr<Storage>(storage.release()), shape, dtype};
}

Tensor Device::zeros(Shape shape, DType dtype, SourceLine at) {
    Tensor tensor = empty(shape, dtype, at);
    fill(tensor, 0, at);
    return tensor;
}

void Device::link(Storage& storage) noexcept {
    storage.previous = nullptr;
    storage.next = live_;
    if (live_ != nullptr) live_->previous = &storage;
    live_ = &storage;
}

void Device::unlink(Storage& storage) noexcept {
    (storage.previous != nullptr ? storage.previous->next : live_) = storage.next;
    if (storage.next != nullptr) storage.next->previous = storage.previous;
    storage.previous = storage.next = nullptr;
}

void Device::release(Storage& storage) noexcept {
    if (storage.counted) monitor_.freed(storage);
    unlink(storage);
    if (storage.data != nullptr) do_free(storage.data);
}

void Device::free_all() noexcept {
    while (live_ != nullptr) {
        Storage& storage = *live_;
        unlink(storage);
        if (storage.data != nullptr) do_free(storage.data);
        storage.data = nullptr;
        storage.device = nullptr;
    }
}

Tensor Device::upload(const HostTensor& values, SourceLine at) {
    Tensor tensor = empty(values.shape(), values.dtype(), at);
    upload_into(tensor, values, at);
    return tensor;
}

void Device::upload_into(const Tensor& destination, const HostTensor& values,
                         SourceLine at) {
    const Check check(*this, "upload", at);
    check.dtype("destination", destination, values.dtype());
    check.that(destination.shape() == values.shape(), [&] {
        return fmt::format("destination has shape {}, but the values have {}",
                           destination.shape().text(), values.shape().text());
    });
    monitor_.copy(CopyDirection::to_device, destination, at, [&] {
        if (destination.bytes_begin() != nullptr && destination.elements() > 0)
            do_upload(destination, values);
    });
}

HostTensor Device::download(const Tensor& source, SourceLine at) {
    Check(*this, "download", at).own("source", source);
    HostTensor values;
    monitor_.copy(CopyDirection::to_host, source, at, [&] { values = read(source); });
    return values;
}

HostTensor Device::peek(const Tensor& source, SourceLine at) {
    Check(*this, "peek", at).own("source", source);
    monitor_.peeked(source, at);
    return read(source);
}

HostTensor Device::read(const Tensor& source) {
    HostTensor values(source.shape(), source.dtype());
    if (values.elements() == 0) return values;
    if (source.bytes_begin() != nullptr) {
        do_download(values, source);
    } else if (is_floating(source.dtype())) {
        // A run that computes shapes only has no numbers to give. All bits set are a NaN
        // in every floating type.
        std::memset(values.data(), 0xff, static_cast<std::size_t>(values.bytes()));
    }
    return values;
}

void Device::run(const Charge& charge, Operands reads, Operands writes,
                 FunctionRef<void()> numbers, FunctionRef<void()> numbers_if_empty) {
    bool empty = false;
    std::int64_t bytes = 0;
    for (const Operands& operands : {reads, writes}) {
        for (const Tensor* operand : operands) {
            bytes += operand->bytes();
            empty = empty || operand->elements() == 0;
        }
    }
    const DeviceOperation operation{
        .name = charge.operation,
        .flops = charge.flops,
        .bytes = charge.bytes == Charge::kOperands ? bytes : charge.bytes,
        .dtype = (*writes.begin())->dtype(),
        .reads = {reads.begin(), reads.size()},
        .writes = {writes.begin(), writes.size()},
        .at = charge.at,
        .derivation = charge.derivation,
    };
    monitor_.execute(operation, empty ? numbers_if_empty : numbers);
}

void Device::run_indexed(const Charge& charge, std::int64_t bound, Operands reads,
                         Operands writes, FunctionRef<void()> numbers,
                         FunctionRef<void()> numbers_if_empty) {
    const auto naming_the_culprit = [&](FunctionRef<void()> compute) {
        try {
            compute();
        } catch (const IndexOutside& outside) {
            throw UsageError(
                fmt::format("{}: index {} is {}, outside [0, {})", charge.operation,
                            outside.position, outside.index, bound),
                charge.at);
        }
    };
    run(
        charge, reads, writes, [&] { naming_the_culprit(numbers); },
        [&] { naming_the_culprit(numbers_if_empty); });
}

void Device::refuse_any_index(const Tensor& indices) {
    if (indices.elements() > 0)
        throw IndexOutside{0, read(indices.flat().rows(0, 1)).values<std::int32_t>()[0]};
}

}  // namespace lockstep
