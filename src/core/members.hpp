#pragma once

#include <cstddef>
#include <type_traits>

namespace lockstep {

// Visits the members of a plain struct without a list of them, so no member can be
// forgotten.

/// Converts to the type of any member.
struct AnyMember {
    template <typename T>
    operator T() const;  // NOLINT: an implicit conversion is what it is for
};

/// Returns the number of a struct's members, or kMostMembers if it has more.
template <typename T, typename... Given>
constexpr std::size_t count_members(Given... given) {
    constexpr std::size_t kMostMembers = 12;
    if constexpr (sizeof...(Given) < kMostMembers && requires {
                      T{given..., AnyMember{}};
                  })
        return count_members<T>(given..., AnyMember{});
    else
        return sizeof...(Given);
}

/// Calls `f(first member, second member, …)`.
template <typename T, typename F>
decltype(auto) with_members(T& object, F&& f) {
    using Plain = std::remove_const_t<T>;
    static_assert(std::is_aggregate_v<Plain>, "only plain structs tell their members");
    constexpr std::size_t kCount = count_members<Plain>();
    static_assert(kCount >= 1 && kCount <= 11, "extend with_members for so many members");
    if constexpr (kCount == 1) {
        auto& [a] = object;
        return f(a);
    } else if constexpr (kCount == 2) {
        auto& [a, b] = object;
        return f(a, b);
    } else if constexpr (kCount == 3) {
        auto& [a, b, c] = object;
        return f(a, b, c);
    } else if constexpr (kCount == 4) {
        auto& [a, b, c, d] = object;
        return f(a, b, c, d);
    } else if constexpr (kCount == 5) {
        auto& [a, b, c, d, e] = object;
        return f(a, b, c, d, e);
    } else if constexpr (kCount == 6) {
        auto& [a, b, c, d, e, g] = object;
        return f(a, b, c, d, e, g);
    } else if constexpr (kCount == 7) {
        auto& [a, b, c, d, e, g, h] = object;
        return f(a, b, c, d, e, g, h);
    } else if constexpr (kCount == 8) {
        auto& [a, b, c, d, e, g, h, i] = object;
        return f(a, b, c, d, e, g, h, i);
    } else if constexpr (kCount == 9) {
        auto& [a, b, c, d, e, g, h, i, j] = object;
        return f(a, b, c, d, e, g, h, i, j);
    } else if constexpr (kCount == 10) {
        auto& [a, b, c, d, e, g, h, i, j, k] = object;
        return f(a, b, c, d, e, g, h, i, j, k);
    } else {
        auto& [a, b, c, d, e, g, h, i, j, k, l] = object;
        return f(a, b, c, d, e, g, h, i, j, k, l);
    }
}

}  // namespace lockstep
