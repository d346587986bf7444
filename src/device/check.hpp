#pragma once

#include <string>

#include "src/core/require.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// Checks the operands of one operation of a device; what fails throws UsageError, in a
/// sentence that begins with the operation. Every operand is checked to be the device's
/// own. Checks are a boundary of trust, since a grader's devices do what other programs
/// ask for: they hold for any integers, and none overflows.
class Check {
  public:
    Check(const Device& device, const char* operation, SourceLine at)
        : device_(device), operation_(operation), at_(at) {}

    /// A tensor of this device; of any type.
    void own(const char* name, const Tensor& tensor) const {
        if (tensor.device() != &device_) [[unlikely]]
            refuse_owner(name, tensor);
    }
    /// f32 or f64; bf16 where the run computes shapes only.
    void real(const char* name, const Tensor& tensor) const;
    /// A type with arithmetic: what real() allows, or i32.
    void number(const char* name, const Tensor& tensor) const;
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

    /// The two share no memory.
    void apart(const char* name, const Tensor& tensor, const char* other_name,
               const Tensor& other) const;
    /// The two share no memory or are the same memory.
    void same_or_apart(const char* name, const Tensor& tensor, const char* other_name,
                       const Tensor& other) const;

    /// Anything else: throws with the sentence "operation: " + what() unless `condition`
    /// holds.
    template <typename What>
    void that(bool condition, What&& what) const {
        require(condition, at_, [&] { return operation_ + (": " + what()); });
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const;
    [[noreturn]] void refuse_owner(const char* name, const Tensor& tensor) const;

    const Device& device_;
    const char* operation_;
    SourceLine at_;
};

}  // namespace lockstep
