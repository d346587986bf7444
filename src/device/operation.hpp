#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "src/core/tensor.hpp"
#include "src/device/derivation.hpp"
#include "src/device/heads.hpp"
#include "src/device/operand_check.hpp"
#include "src/device/options.hpp"

namespace lockstep {

// An operation of a device is data: a struct with its operands, its options and
// everything else that must be known about it. src/device/operations/ has one file for
// each family of operations. Each operation has
//
//     static constexpr const char* kName          its name in traces and messages
//     members                                     tensors, Heads, options; plain data
//     void check(const OperandCheck&)             refuses operands that do not fit, and
//                                                 may complete the options
//     OperandList operands() const                tensors, and how each is used
//     std::int64_t flops() const                  floating point operations
//     Derivation derivation() const               what the results are made of
//
// and, if it applies,
//
//     void make(f)                 calls f(tensor, shape, dtype) for each result that the
//                                  operation makes; the caller gives all other results
//     void when_empty(fill) const  if an operand is empty: calls fill(tensor, value) for
//                                  each tensor that must still be written
//     static constexpr bool kIdleWithoutFlops = true
//                                  if flops() is 0, nothing is run, and nothing charged
//     const Tensor& indices() const, std::int64_t bound() const
//                                  indices; each must be in [0, bound)
//     static constexpr bool kInPlace = true
//                                  element by element: a destination may be the same
//                                  memory as a source
//     static constexpr bool kSumsMayOverlap = true
//                                  the tensors to which it adds may share memory with
//                                  each other
//
// The following is written once and uses only these members: the checks and charges of
// Device's functions, what a monitor gets (DeviceOperation), the call of a backend,
// the message to a device in another process, and the tests that cover all operations. A
// backend adds how each operation is computed: a specialization of its compute<Op>() for
// operands that are checked and have elements.

/// The floating point operations of one exp, tanh, erf or log. Each +, -, *, /, maximum
/// and square root in an operation's textbook formula counts 1; a product of matrices
/// counts 2mkn. Operations without arithmetic, or bound by memory, count 0: copies,
/// fills, embeddings and random numbers. Only flops of products matter for a run's time.
/// All other operations are bound by memory, and their bytes are counted exactly.
inline constexpr std::int64_t kTranscendental = 8;

/// The maximum number of elements of a result. A check refuses results with more
/// elements: if one extent of an operand is 0, its other extents may be huge.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

/// One tensor of an operation, and how it is used.
struct Operand {
    enum class Use : std::uint8_t {
        read,
        result,   ///< made by the operation
        written,  ///< given, and overwritten
        updated,  ///< read, and written in its place
        added_to  ///< updated by adding
    };

    const char* name;
    const Tensor* tensor;  ///< null if the operation does not use it
    Use use;
    std::int64_t bytes;  ///< moved by each read and by each write

    bool is_read() const {
        return use == Use::read || use == Use::updated || use == Use::added_to;
    }
    bool is_written() const { return use != Use::read; }
};

/// Returns the bytes of a view's heads.
inline std::int64_t bytes_of_view(const Heads& heads) {
    return heads.rows() * heads.batches() * heads.heads * heads.width *
           bytes_of(heads.tensor.dtype());
}

inline Operand reads(const char* name, const Tensor& tensor) {
    return {name, &tensor, Operand::Use::read, tensor.bytes()};
}
inline Operand reads(const char* name, const Heads& heads) {
    return {name, &heads.tensor, Operand::Use::read, bytes_of_view(heads)};
}
inline Operand makes(const char* name, const Tensor& tensor) {
    return {name, &tensor, Operand::Use::result, tensor.bytes()};
}
inline Operand writes(const char* name, const Tensor& tensor) {
    return {name, &tensor, Operand::Use::written, tensor.bytes()};
}
inline Operand writes(const char* name, const Heads& heads) {
    return {name, &heads.tensor, Operand::Use::written, bytes_of_view(heads)};
}
inline Operand updates(const char* name, const Tensor& tensor) {
    return {name, &tensor, Operand::Use::updated, tensor.bytes()};
}
inline Operand adds_to(const char* name, const Tensor& tensor) {
    return {name, &tensor, Operand::Use::added_to, tensor.bytes()};
}
inline Operand adds_to(const char* name, const Heads& heads) {
    return {name, &heads.tensor, Operand::Use::added_to, bytes_of_view(heads)};
}
/// Returns the operand with `bytes` as the bytes that it moves.
inline Operand sized(std::int64_t bytes, Operand operand) {
    operand.bytes = bytes;
    return operand;
}
/// Returns the operand if `condition` is true, else no operand.
inline Operand only_if(bool condition, Operand operand) {
    if (!condition) operand.tensor = nullptr;
    return operand;
}

/// The operands of one operation. A monitor gets the operands in this order. A Derivation
/// numbers the operands that are read, in this order.
class OperandList {
  public:
    static constexpr std::size_t kMost = 9;

    OperandList(std::initializer_list<Operand> operands) {
        for (const Operand& operand : operands)
            if (operand.tensor != nullptr) {
                assert(count_ < kMost);
                operands_[count_++] = operand;
                bytes_ += (operand.is_read() + operand.is_written()) * operand.bytes;
                adds_ |= operand.use == Operand::Use::added_to;
            }
    }

    const Operand* begin() const { return operands_.data(); }
    const Operand* end() const { return operands_.data() + count_; }

    /// Returns the bytes that all operands move.
    std::int64_t bytes() const { return bytes_; }
    bool adds() const { return adds_; }
    bool has_empty() const {
        for (const Operand& operand : *this)
            if (operand.tensor->elements() == 0) return true;
        return false;
    }

  private:
    std::array<Operand, kMost> operands_;  // the first `count_` of them are set
    std::size_t count_ = 0;
    std::int64_t bytes_ = 0;
    bool adds_ = false;
};

/// A list of types; the types may be incomplete. `+` joins two lists.
template <typename... Op>
struct OperationList {
    static constexpr std::size_t kCount = sizeof...(Op);
};

template <typename... A, typename... B>
constexpr OperationList<A..., B...> operator+(OperationList<A...> /*a*/,
                                              OperationList<B...> /*b*/) {
    return {};
}

}  // namespace lockstep
