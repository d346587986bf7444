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

/// All operations of a device; each family has its own file.
using Operations = decltype(ops::MoveOperations() + ops::MatrixOperations() +
                            ops::ActivationOperations() + ops::NormOperations() +
                            ops::AttentionOperations() + ops::LossOperations() +
                            ops::LookupOperations() + ops::OptimizerOperations());

/// An operation's place in the list of all operations.
enum class OperationKind : std::uint8_t {};

template <std::size_t kPlace, typename Op>
struct PlacedOperation {};
/// Has one base, a PlacedOperation, for each operation and its place. The compiler
/// deduces the place from this base. So a source instantiates one function for each
/// operation that it looks up, and does not compare the operation with all others.
template <typename Places, typename All>
struct PlacedOperations;
template <std::size_t... kPlaces, typename... All>
struct PlacedOperations<std::index_sequence<kPlaces...>, OperationList<All...>>
    : PlacedOperation<kPlaces, All>... {};
template <typename Op, std::size_t kPlace>
constexpr OperationKind kind_among(const PlacedOperation<kPlace, Op>& /*operations*/) {
    return OperationKind{kPlace};
}
/// The place of an operation. Does not compile if the operation is in no family's list.
template <typename Op>
inline constexpr OperationKind kKindOf = kind_among<Op>(
    PlacedOperations<std::make_index_sequence<Operations::kCount>, Operations>());

inline constexpr std::size_t kOperations = Operations::kCount;

/// True if the operation makes tensors; otherwise the caller gives all tensors that it
/// writes.
template <typename Op>
inline constexpr bool kMakesResults = requires(Op operation) {
    operation.make([](Tensor&, const Shape&, DType) {});
};

/// A reference to an operation of any kind.
class OperationRef {
  public:
    template <typename Op>
    explicit OperationRef(Op& operation)
        : kind_(kKindOf<std::remove_const_t<Op>>),
          operation_(const_cast<std::remove_const_t<Op>*>(&operation)) {}

    OperationKind kind() const { return kind_; }

    /// Calls `f` with the operation, in its own type.
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

/// Calls `f` with a default-constructed operation of the kind.
template <typename F>
void with_operation(OperationKind kind, F&& f) {
    using Call = void (*)(F&);
    static constexpr auto kCalls = []<typename... All>(OperationList<All...> /*all*/) {
        return std::array<Call, kOperations>{[](F& call) { call(All{}); }...};
    }(Operations());
    kCalls[static_cast<std::size_t>(kind)](f);
}

}  // namespace lockstep
