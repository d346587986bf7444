#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "src/device/operations/activation.hpp"
#include "src/device/operations/attention.hpp"
#include "src/device/operations/lookup.hpp"
#include "src/device/operations/loss.hpp"
#include "src/device/operations/matrix.hpp"
#include "src/device/operations/move.hpp"
#include "src/device/operations/norm.hpp"
#include "src/device/operations/optimizer.hpp"

namespace lockstep {

/// All operations of a device, each family in a file of its own.
using Operations = decltype(ops::MoveOperations() + ops::MatrixOperations() +
                            ops::ActivationOperations() + ops::NormOperations() +
                            ops::AttentionOperations() + ops::LossOperations() +
                            ops::LookupOperations() + ops::OptimizerOperations());

/// An operation, by its place among all.
enum class OperationKind : std::uint8_t {};

template <typename Op, typename... All>
constexpr OperationKind find_kind(OperationList<All...> /*all*/) {
    static_assert((std::is_same_v<Op, All> || ...),
                  "the operation is in no family's list");
    std::uint8_t place = 0;
    (void)((std::is_same_v<Op, All> || (++place, false)) || ...);
    return OperationKind{place};
}
template <typename Op>
inline constexpr OperationKind kKindOf = find_kind<Op>(Operations());

inline constexpr std::size_t kOperations = Operations::kCount;

/// True if the operation makes tensors; otherwise all that it writes are given to it.
template <typename Op>
inline constexpr bool kMakesResults = requires(Op operation) {
    operation.make([](Tensor&, const Shape&, DType) {});
};

/// An operation of any kind, which somebody else owns.
class OperationRef {
  public:
    template <typename Op>
    explicit OperationRef(Op& operation)
        : kind_(kKindOf<std::remove_const_t<Op>>),
          operation_(const_cast<std::remove_const_t<Op>*>(&operation)) {}

    OperationKind kind() const { return kind_; }

    /// Calls `f` with the operation as what it is.
    template <typename F>
    void visit(F&& f) const {
        using Call = void (*)(void*, F&);
        static constexpr auto kCalls =
            []<typename... All>(OperationList<All...> /*all*/) {
                return std::array<Call, kOperations>{[](void* operation, F& call) {
                    call(*static_cast<All*>(operation));
                }...};
            }(Operations());
        kCalls[static_cast<std::size_t>(kind_)](operation_, f);
    }

  private:
    OperationKind kind_;
    void* operation_;
};

/// Calls `f` with an operation of the kind, of which nothing is filled in yet.
template <typename F>
void with_operation(OperationKind kind, F&& f) {
    using Call = void (*)(F&);
    static constexpr auto kCalls = []<typename... All>(OperationList<All...> /*all*/) {
        return std::array<Call, kOperations>{[](F& call) { call(All{}); }...};
    }(Operations());
    kCalls[static_cast<std::size_t>(kind)](f);
}

}  // namespace lockstep
