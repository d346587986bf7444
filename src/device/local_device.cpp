#include "src/device/local_device.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "src/core/no_count.hpp"
#include "src/core/require.hpp"

namespace lockstep {

LocalDevice::~LocalDevice() {
    assert(live_ == nullptr && "the backend's destructor calls free_all()");
}

Tensor LocalDevice::empty(Shape shape, DType dtype, SourceLine at) {
    auto storage = std::make_unique<Storage>();
    storage->device = this;
    storage->bytes = shape.elements() * bytes_of(dtype);
    storage->category = category();
    storage->pinned = pins();
    storage->allocated_at = at;
    storage->allocated_in = monitor().moment();
    link(*storage);
    // Ask the ledger before the backend, so that the ledger's error comes first.
    try {
        monitor().allocated(*storage);
    } catch (...) {
        unlink(*storage);
        throw;
    }
    try {
        allocate_for(*storage, "empty", at);
    } catch (...) {
        monitor().freed(*storage);
        unlink(*storage);
        throw;
    }
    return {boost::intrusive_ptr<Storage>(storage.release()), shape, dtype};
}

Tensor LocalDevice::scratch(Shape shape, DType dtype, SourceLine at) {
    auto storage = std::make_unique<Storage>();
    storage->device = this;
    storage->bytes = shape.elements() * bytes_of(dtype);
    storage->counted = false;
    allocate_for(*storage, "scratch", at);
    link(*storage);
    return {boost::intrusive_ptr<Storage>(storage.release()), shape, dtype};
}

void LocalDevice::allocate_for(Storage& storage, const char* operation, SourceLine at) {
    if (!has_numbers() || storage.bytes == 0) return;
    attempt(operation, at, [&] { storage.data = do_allocate(storage); });
}

void LocalDevice::link(Storage& storage) noexcept {
    storage.previous = nullptr;
    storage.next = live_;
    if (live_ != nullptr) live_->previous = &storage;
    live_ = &storage;
}

void LocalDevice::unlink(Storage& storage) noexcept {
    (storage.previous != nullptr ? storage.previous->next : live_) = storage.next;
    if (storage.next != nullptr) storage.next->previous = storage.previous;
    storage.previous = storage.next = nullptr;
}

void LocalDevice::release(Storage& storage) noexcept {
    if (storage.counted) monitor().freed(storage);
    unlink(storage);
    if (storage.data != nullptr) do_free(storage);
}

void LocalDevice::free_all() noexcept {
    while (live_ != nullptr) {
        Storage& storage = *live_;
        unlink(storage);
        if (storage.data != nullptr) do_free(storage);
        storage.data = nullptr;
        storage.device = nullptr;
    }
}

void LocalDevice::upload_into(const Tensor& destination, const HostTensor& values,
                              SourceLine at) {
    const OperandCheck check(*this, "upload", at);
    check.dtype("destination", destination, values.dtype());
    check.that(destination.shape() == values.shape(),
               "destination has shape {}, but the values have {}", destination.shape(),
               values.shape());
    monitor().copy(CopyDirection::to_device, destination, at,
                   [&] { put_values(destination, values, at); });
}

void LocalDevice::transfer_from_host(const Tensor& destination, const HostTensor& values,
                                     SourceLine at) {
    put_values(destination, values, at);
}

void LocalDevice::put_values(const Tensor& destination, const HostTensor& values,
                             SourceLine at) {
    if (destination.bytes_begin() != nullptr && destination.elements() > 0)
        attempt("upload", at, [&] { do_upload(destination, values); });
}

HostTensor LocalDevice::download(const Tensor& source, SourceLine at) {
    OperandCheck(*this, "download", at).own("source", source);
    HostTensor values;
    monitor().copy(CopyDirection::to_host, source, at,
                   [&] { values = values_of(source, "download", at); });
    return values;
}

HostTensor LocalDevice::peek(const Tensor& source, SourceLine at) {
    OperandCheck(*this, "peek", at).own("source", source);
    monitor().peeked(source, at);
    return values_of(source, "peek", at);
}

HostTensor LocalDevice::transfer_to_host(const Tensor& source, SourceLine at) {
    return values_of(source, "download", at);
}

HostTensor LocalDevice::values_of(const Tensor& source, const char* operation,
                                  SourceLine at) {
    HostTensor values(source.shape(), source.dtype());
    if (values.elements() == 0) return values;
    if (source.bytes_begin() != nullptr) {
        attempt(operation, at, [&] { do_download(values, source); });
    } else if (is_floating(source.dtype())) {
        // A run that computes only shapes has no numbers. If all bits are set, a value of
        // any floating type is NaN.
        std::memset(values.data(), 0xff, static_cast<std::size_t>(values.bytes()));
    } else {
        std::ranges::fill(values.values<std::int32_t>(), kNoCount);
    }
    return values;
}

namespace {

/// The tensors that an operation reads and writes, in the form that a monitor gets.
struct Told {
    std::array<const Tensor*, OperandList::kMost> reads, writes;
    std::size_t read = 0, written = 0;

    explicit Told(const OperandList& operands) {
        for (const Operand& operand : operands) {
            if (operand.is_read()) reads[read++] = operand.tensor;
            if (operand.is_written()) writes[written++] = operand.tensor;
        }
    }
};

/// Returns whether to compare a written operand with another; each pair is compared once.
/// Results made by the operation share no memory with other operands.
bool may_clash(const Operand& written, const Operand& other, bool sums_may_overlap) {
    using Use = Operand::Use;
    if (!written.is_written() || written.use == Use::result || &written == &other)
        return false;
    if (other.is_written() && &other < &written) return false;
    return !(sums_may_overlap && written.use == other.use);
}

/// How far an operation allows its operands to share memory.
struct Sharing {
    bool in_place;          ///< a destination may be the same memory as a source
    bool sums_may_overlap;  ///< tensors to which an operation adds may share memory
};

template <typename Op>
Sharing sharing_of() {
    constexpr bool kInPlace = requires {
        Op::kInPlace;
    };
    constexpr bool kSumsMayOverlap = requires {
        Op::kSumsMayOverlap;
    };
    return {kInPlace, kSumsMayOverlap};
}

/// Refuses a written operand that shares memory with another operand, unless the
/// operation allows this.
void check_memory(const OperandCheck& check, const OperandList& operands,
                  Derivation::Kind kind, const Sharing& allowed) {
    for (const Operand& written : operands)
        for (const Operand& other : operands) {
            if (!may_clash(written, other, allowed.sums_may_overlap)) continue;
            // The message about a copy names the source first. The message about an
            // update names the later operand first: state, gradient, parameter.
            const bool backwards =
                allowed.in_place || kind == Derivation::Kind::part ||
                (kind == Derivation::Kind::update && &written < &other);
            const Operand& first = backwards ? other : written;
            const Operand& second = backwards ? written : other;
            if (allowed.in_place)
                check.same_or_apart(first.name, *first.tensor, second.name,
                                    *second.tensor);
            else
                check.apart(first.name, *first.tensor, second.name, *second.tensor);
        }
}

/// Returns the dtype whose rate is charged for the operation's flops: the dtype of its
/// result, unless the operation says otherwise.
template <typename Op>
DType multiplied_in(const Op& operation, const Told& told) {
    if constexpr (requires { operation.multiplied_in(); })
        return operation.multiplied_in();
    else
        return told.writes[0]->dtype();
}

template <typename Op>
constexpr bool kHasIndices = requires(const Op operation) {
    operation.indices();
};

/// A range of bf16 memory with one or more operands of an operation.
struct Narrow {
    Tensor flat;
    bool is_read = false;
    bool is_written = false;
    Tensor wide = {};  ///< the same numbers in f32
};

bool has_bf16(const OperandList& operands) {
    return std::any_of(operands.begin(), operands.end(), [](const Operand& operand) {
        return operand.tensor->dtype() == DType::bf16;
    });
}

/// Returns the smallest range that contains both tensors, which overlap.
Tensor joined(const Tensor& a, const Tensor& b) {
    const Tensor& first = a.offset_bytes() <= b.offset_bytes() ? a : b;
    const std::int64_t end =
        std::max(a.offset_bytes() + a.bytes(), b.offset_bytes() + b.bytes());
    return first.extended((end - first.offset_bytes()) / bytes_of(first.dtype()));
}

/// Returns ranges that do not overlap each other and contain all bf16 operands.
std::vector<Narrow> narrow_ranges(const OperandList& operands) {
    std::vector<Narrow> ranges;
    for (const Operand& operand : operands) {
        if (operand.tensor->dtype() != DType::bf16) continue;
        // Heads may be only some of a tensor's columns. The other columns must not
        // change, so a tensor that the operation only writes is read first.
        Narrow range{operand.tensor->flat(), operand.use != Operand::Use::result,
                     operand.is_written()};
        std::erase_if(ranges, [&](const Narrow& known) {
            if (!known.flat.overlaps(range.flat)) return false;
            range.flat = joined(known.flat, range.flat);
            range.is_read |= known.is_read;
            range.is_written |= known.is_written;
            return true;
        });
        ranges.push_back(std::move(range));
    }
    return ranges;
}

}  // namespace

bool LocalDevice::takes_bf16(OperationRef operation) const {
    return operation.kind() == kKindOf<ops::Copy> ||
           operation.kind() == kKindOf<ops::CopyColumns> ||
           operation.kind() == kKindOf<ops::StorePages> ||
           operation.kind() == kKindOf<ops::Cast>;
}

void LocalDevice::do_compute(OperationRef operation, SourceLine at) {
    operation.visit([&]<typename Op>(const Op&) {
        attempt(Op::kName, at, [&] { compute_in_own_types(operation); });
    });
}

/// Computes directly on bf16 if the backend does, else on f32 copies.
void LocalDevice::compute_in_own_types(OperationRef operation) {
    operation.visit([&](const auto& op) {
        if (takes_bf16(operation) || !has_bf16(op.operands()))
            return compute_native(operation);
        auto copy = op;
        compute_in_f32(OperationRef(copy), copy.operands());
    });
}

/// Computes the operation on f32 copies of its bf16 operands, and rounds the written
/// results. Replaces the operation's tensors, to which `operands` points, by these
/// copies.
void LocalDevice::compute_in_f32(OperationRef operation, const OperandList& operands) {
    const auto cast = [this](const Tensor& destination, const Tensor& source) {
        const ops::Cast conversion{destination, source};
        compute_native(OperationRef(conversion));
    };
    std::vector<Narrow> ranges = narrow_ranges(operands);
    for (Narrow& range : ranges) {
        range.wide = scratch(range.flat.shape(), DType::f32);
        if (range.is_read) cast(range.wide, range.flat);
    }
    for (const Operand& operand : operands) {
        if (operand.tensor->dtype() != DType::bf16) continue;
        const Tensor flat = operand.tensor->flat();
        const Narrow& range = *std::ranges::find_if(
            ranges, [&](const Narrow& known) { return known.flat.overlaps(flat); });
        const std::int64_t begin =
            (flat.offset_bytes() - range.flat.offset_bytes()) / bytes_of(DType::bf16);
        const_cast<Tensor&>(*operand.tensor) =
            range.wide.slice(begin, flat.elements()).reshaped(operand.tensor->shape());
    }
    compute_native(operation);
    for (const Narrow& range : ranges)
        if (range.is_written) cast(range.flat, range.wide);
}

void LocalDevice::perform(OperationRef operation, SourceLine at) {
    operation.visit([&](auto& op) { perform(op, at); });
}

namespace {

template <typename Op>
std::int64_t extent_of(const Op& operation) {
    if constexpr (requires { operation.least_extent(); })
        return operation.least_extent();
    else
        return 0;
}

}  // namespace

template <typename Op>
void LocalDevice::perform(Op& operation, SourceLine at) {
    const OperandCheck check(*this, Op::kName, at);
    operation.check(check);
    if constexpr (kMakesResults<Op>)
        operation.make([&](Tensor& result, const Shape& shape, DType dtype) {
            result = empty(shape, dtype, at);
        });
    const OperandList operands = operation.operands();
    Derivation derivation = operation.derivation();
    derivation.adds = operands.adds();
    check_memory(check, operands, derivation.kind, sharing_of<Op>());
    const std::int64_t flops = operation.flops();
    if constexpr (requires { Op::kIdleWithoutFlops; })
        if (flops == 0) return;

    const Told told(operands);
    const DeviceOperation charged{
        .kind = kKindOf<Op>,
        .name = Op::kName,
        .flops = flops,
        .extent = extent_of(operation),
        .bytes = operands.bytes(),
        .dtype = multiplied_in(operation, told),
        .reads = {told.reads.data(), told.read},
        .writes = {told.writes.data(), told.written},
        .at = at,
        .derivation = derivation,
    };
    const bool is_empty = operands.has_empty();
    const auto numbers = [&] {
        if constexpr (kHasIndices<Op>) require_indices(operation, is_empty, at);
        if (!is_empty) return compute_in_own_types(OperationRef(operation));
        // If an operand is empty, a result that has elements comes from an empty sum.
        if constexpr (requires { operation.when_empty([](const Tensor&, double) {}); })
            operation.when_empty([this](const Tensor& tensor, double value) {
                transfer_fill(tensor, value);
            });
    };
    monitor().execute(charged, [&] { attempt(Op::kName, at, numbers); });
}

/// Throws UsageError that names the first index outside the operation's bound. If the
/// bound is 0, names the first index.
template <typename Op>
void LocalDevice::require_indices(const Op& operation, bool is_empty, SourceLine at) {
    const Tensor& indices = operation.indices();
    const std::int64_t bound = operation.bound();
    try {
        if (!is_empty) check_indices(indices, bound);
        if (is_empty && bound == 0 && indices.elements() > 0) {
            const HostTensor first = transfer_to_host(indices.flat().slice(0, 1));
            throw IndexOutside{0, first.values<std::int32_t>()[0]};
        }
    } catch (const IndexOutside& outside) {
        throw UsageError(fmt::format("{}: index {} is {}, outside [0, {})", Op::kName,
                                     outside.position, outside.index, bound),
                         at);
    }
}

}  // namespace lockstep
