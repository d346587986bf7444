#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

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

template <std::size_t kPlace, typename Op>
struct PlacedOperation {};
/// Has a base for each operation, with its place. The compiler deduces an operation's
/// place from its base: that is one function for each operation that is asked for, and
/// not a comparison of each with all others, in every source.
template <typename Places, typename All>
struct PlacedOperations;
template <std::size_t... kPlaces, typename... All>
struct PlacedOperations<std::index_sequence<kPlaces...>, OperationList<All...>>
    : PlacedOperation<kPlaces, All>... {};
template <typename Op, std::size_t kPlace>
constexpr OperationKind kind_among(const PlacedOperation<kPlace, Op>& /*operations*/) {
    return OperationKind{kPlace};
}
/// The place of an operation. It does not compile if that is in no family's list.
template <typename Op>
inline constexpr OperationKind kKindOf = kind_among<Op>(
    PlacedOperations<std::make_index_sequence<Operations::kCount>, Operations>());

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
