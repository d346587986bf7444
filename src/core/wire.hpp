#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/members.hpp"
#include "src/core/shape.hpp"
#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"

namespace lockstep {

// How values are sent to another process: a number is 8 bytes, and larger values are made
// of numbers and bytes. A plain struct is sent member by member. For any other struct,
// fields(line, value) names the values to send.

/// Thrown if the bytes that were read are no valid message of the other side.
class WireError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A tensor on a device, as the other process knows it.
struct TensorOnWire {
    std::int64_t handle = 0;  ///< the storage's number, from 1; 0: no tensor
    /// In bytes. In a large model's flat buffer, the offset may exceed the limit of other
    /// numbers.
    std::uint64_t offset = 0;
    Shape shape;
    DType dtype = DType::f32;
    std::string label;
    std::string part{};  ///< which part of `label` it is
};

/// Translates a side's own tensors to their names on the wire, and back.
class TensorNames {
  public:
    virtual ~TensorNames() = default;
    virtual TensorOnWire named(const Tensor& tensor) = 0;
    virtual Tensor found(const TensorOnWire& tensor) = 0;
    /// Returns a line of the other side's source.
    virtual SourceLine source_line(const std::string& file, int line) {
        return SourceLine::of(file, line);
    }
};

/// The last of an enumeration's values, which begin at 0.
template <typename Enum>
inline constexpr std::int64_t kLast = -1;
template <>
inline constexpr std::int64_t kLast<DType> = static_cast<std::int64_t>(DType::bf16);
template <>
inline constexpr std::int64_t kLast<MemoryCategory> = kMemoryCategories - 1;

template <typename T>
inline constexpr bool kIsArray = false;
template <typename T, std::size_t N>
inline constexpr bool kIsArray<std::array<T, N>> = true;
template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <typename T>
inline constexpr bool kIsMap = false;
template <typename T>
inline constexpr bool kIsMap<std::map<std::string, T>> = true;

/// Puts values into a message.
class WireWriter {
  public:
    /// A writer for values that contain no device tensors.
    WireWriter() = default;
    explicit WireWriter(TensorNames& names) : names_(&names) {}

    template <typename... T>
    void operator()(const T&... values) {
        (put(values), ...);
    }
    std::string& bytes() { return bytes_; }

  private:
    void put_bytes(const void* data, std::size_t bytes);
    void put_number(std::int64_t value) { put_bytes(&value, sizeof value); }
    void put_text(std::string_view text);
    void put_host(const HostTensor& values);

    /// One branch for each kind of type.
    template <typename T>  // NOLINTNEXTLINE(readability-function-cognitive-complexity)
    void put(const T& value) {
        if constexpr (std::is_same_v<T, double>) {
            put_bytes(&value, sizeof value);
        } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
            put_number(static_cast<std::int64_t>(value));
        } else if constexpr (std::is_convertible_v<T, std::string_view>) {
            put_text(value);
        } else if constexpr (std::is_same_v<T, HostTensor>) {
            put_host(value);
        } else if constexpr (std::is_same_v<T, Tensor>) {
            assert(names_ != nullptr);
            put(names_->named(value));
        } else if constexpr (std::is_same_v<T, SourceLine>) {
            put_text(value.file);
            put_number(value.line);
        } else if constexpr (std::is_same_v<T, Shape>) {
            put_number(value.dimensions());
            for (int d = 0; d < value.dimensions(); ++d)
                put_number(value[d]);
        } else if constexpr (kIsArray<T>) {
            for (const auto& element : value)
                put(element);
        } else if constexpr (kIsVector<T>) {
            put_number(static_cast<std::int64_t>(value.size()));
            for (const auto& element : value)
                put(element);
        } else if constexpr (kIsMap<T>) {
            put_number(static_cast<std::int64_t>(value.size()));
            for (const auto& [key, element] : value) {
                put_text(key);
                put(element);
            }
        } else if constexpr (requires(WireWriter & line, T & v) { fields(line, v); }) {
            T copy = value;
            fields(*this, copy);
        } else {
            with_members(value, *this);
        }
    }

    TensorNames* names_ = nullptr;
    std::string bytes_;
};

/// Takes values out of a message, in the order in which they were put in. Throws
/// WireError for impossible values.
class WireReader {
  public:
    /// A reader for values that contain no device tensors. The bytes of the message bound
    /// the sizes of values; kMostElementsSent bounds the elements of a tensor.
    explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
    /// For untrusted messages: refuses sizes that no student's program needs.
    WireReader(TensorNames& names, std::string_view bytes)
        : names_(&names), bytes_(bytes) {}

    template <typename... T>
    void operator()(T&... values) {
        (take(values), ...);
    }
    template <typename T>
    T get() {
        T value{};
        take(value);
        return value;
    }
    /// Reads a number in [low, high].
    std::int64_t number(std::int64_t low, std::int64_t high);
    /// Throws WireError if bytes are left.
    void end() const;

  private:
    // The largest values that a student's program may need. Larger values are mistakes or
    // attacks.
    static constexpr std::int64_t kMostNumber = std::int64_t{1} << 31;  ///< squares fit
    static constexpr std::int64_t kMostText = 1 << 20;
    static constexpr std::int64_t kMostItems = 1 << 16;
    static constexpr std::int64_t kMostElementsSent = std::int64_t{1} << 32;

    void take_bytes(void* data, std::size_t bytes);
    std::string take_text();
    HostTensor take_host();
    SourceLine take_line();
    Shape take_shape();
    /// `most` is the limit for untrusted messages.
    std::int64_t take_size(std::int64_t most);

    template <typename T>  // NOLINTNEXTLINE(readability-function-cognitive-complexity)
    void take(T& value) {
        if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::uint64_t>) {
            take_bytes(&value, sizeof value);
        } else if constexpr (std::is_same_v<T, bool>) {
            value = number(0, 1) == 1;
        } else if constexpr (std::is_enum_v<T>) {
            static_assert(kLast<T> >= 0, "say which value is the last");
            value = static_cast<T>(number(0, kLast<T>));
        } else if constexpr (std::is_integral_v<T>) {
            using Range = std::numeric_limits<T>;
            const std::int64_t most = names_ ? kMostNumber : INT64_MAX;
            value = static_cast<T>(number(std::max<std::int64_t>(Range::min(), -most),
                                          std::min<std::int64_t>(Range::max(), most)));
        } else if constexpr (std::is_same_v<T, std::string>) {
            value = take_text();
        } else if constexpr (std::is_same_v<T, HostTensor>) {
            value = take_host();
        } else if constexpr (std::is_same_v<T, Tensor>) {
            assert(names_ != nullptr);
            value = names_->found(get<TensorOnWire>());
        } else if constexpr (std::is_same_v<T, SourceLine>) {
            value = take_line();
        } else if constexpr (std::is_same_v<T, Shape>) {
            value = take_shape();
        } else if constexpr (kIsArray<T>) {
            for (auto& element : value)
                take(element);
        } else if constexpr (kIsVector<T>) {
            const std::int64_t size = take_size(kMostItems);
            value.clear();
            for (std::int64_t i = 0; i < size; ++i)
                value.push_back(get<typename T::value_type>());
        } else if constexpr (kIsMap<T>) {
            const std::int64_t size = take_size(kMostItems);
            value.clear();
            for (std::int64_t i = 0; i < size; ++i) {
                std::string key = take_text();
                value.insert_or_assign(std::move(key), get<typename T::mapped_type>());
            }
        } else if constexpr (requires(WireReader & line, T & v) { fields(line, v); }) {
            fields(*this, value);
        } else {
            with_members(value, *this);
        }
    }

    TensorNames* names_ = nullptr;
    std::string_view bytes_;
};

}  // namespace lockstep
