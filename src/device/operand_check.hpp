#pragma once

#include <cstdint>
#include <string>

#include <fmt/core.h>

#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"
#include "src/device/heads.hpp"
#include "src/device/options.hpp"

namespace lockstep {

/// Checks the operands of one device operation. A check that fails throws UsageError with
/// a sentence that begins with the operation's name. The comments below say what each
/// check requires. Every operand must belong to the device. A grader runs untrusted
/// programs' operations, so the checks must be right for any integers, and never
/// overflow.
class OperandCheck {
  public:
    OperandCheck(const Device& device, const char* operation, SourceLine at)
        : device_(device), operation_(operation), at_(at) {}

    /// A tensor of this device, of any type.
    void own(const char* name, const Tensor& tensor) const {
        if (tensor.device() != &device_) [[unlikely]]
            refuse_owner(name, tensor);
    }
    /// f32, f64 or bf16.
    void real(const char* name, const Tensor& tensor) const;
    void dtype(const char* name, const Tensor& tensor, DType expected) const;
    /// The rows, columns and dtype of another operand.
    void like(const char* name, const Tensor& tensor, const char* other_name,
              const Tensor& other) const;
    /// Rows and columns.
    void matrix(const char* name, const Tensor& tensor, std::int64_t rows,
                std::int64_t columns) const;
    /// One row of `columns` elements and a dtype.
    void row(const char* name, const Tensor& tensor, std::int64_t columns,
             DType expected) const;
    /// `count` elements, in any shape, and a dtype.
    void count(const char* name, const Tensor& tensor, std::int64_t count,
               DType expected) const;
    /// Exactly this shape, and a dtype.
    void shape(const char* name, const Tensor& tensor, const Shape& expected,
               DType dtype) const;

    /// Attention's heads: (sequence, batches, columns), with enough columns for all
    /// heads.
    void heads(const char* name, const Heads& heads) const;
    /// `heads` divides `whole`, another number of heads.
    void group(const char* name, std::int64_t heads, const char* whole_name,
               std::int64_t whole) const;
    /// Checks group(), and that both have the same type, batches and columns per head.
    void grouped(const char* name, const Heads& heads, const char* whole_name,
                 const Heads& whole) const;
    /// Checks that both have the same type, rows, batches, heads and columns per head.
    void alike(const char* name, const Heads& heads, const char* other_name,
               const Heads& other) const;
    /// `tokens` lists at least `rows` tokens, counted from its place `tokens.first`.
    void tokens(const char* name, const TokenRows& tokens, std::int64_t rows) const;
    /// Checks a shard of `extent` entries and returns it with its `whole` filled in.
    VocabularyShard shard(const VocabularyShard& shard, std::int64_t extent) const;

    /// The two tensors share no memory.
    void apart(const char* name, const Tensor& tensor, const char* other_name,
               const Tensor& other) const;
    /// The two tensors share no memory or are the same memory.
    void same_or_apart(const char* name, const Tensor& tensor, const char* other_name,
                       const Tensor& other) const;

    /// Any other condition; `sentence` is the error if it is false.
    template <typename... Arguments>
    void that(bool condition, fmt::format_string<Arguments...> sentence,
              Arguments&&... arguments) const {
        if (!condition) [[unlikely]]
            refuse(fmt::vformat(sentence, fmt::make_format_args(arguments...)));
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const;
    [[noreturn]] void refuse_owner(const char* name, const Tensor& tensor) const;

    const Device& device_;
    const char* operation_;
    SourceLine at_;
};

}  // namespace lockstep
