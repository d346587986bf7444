#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lessons/grader/remote/wire_fields.hpp"
#include "src/core/host_tensor.hpp"
#include "src/core/members.hpp"
#include "src/core/shape.hpp"
#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"

namespace lockstep::lessons {

// How values go between the grader, where devices are, and the process of a rank, where
// the student's code is: numbers as 8 bytes, the rest made of those. The grader trusts no
// byte that it reads.

/// What was read is not what the other side may send.
class WireError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A tensor of the grader's, as the line has it.
struct TensorOnWire {
    std::int64_t handle = 0;  ///< of its storage, from 1; 0 is no tensor
    std::int64_t offset = 0;  ///< in bytes
    Shape shape;
    DType dtype = DType::f32;
    std::string label;
};

/// Each side's own tensors for what the line names, and the other way round.
class TensorNames {
  public:
    virtual ~TensorNames() = default;
    virtual TensorOnWire named(const Tensor& tensor) = 0;
    virtual Tensor found(const TensorOnWire& tensor) = 0;
    /// A line of the other side's source.
    virtual SourceLine source_line(const std::string& file, int line) {
        return SourceLine::of(file, line);
    }
};

/// What no number of a program is beyond: products of two fit 62 bits.
inline constexpr std::int64_t kMostNumber = std::int64_t{1} << 31;

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
    explicit WireWriter(TensorNames& names) : names_(names) {}

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

    template <typename T>
    void put(const T& value) {
        if constexpr (std::is_same_v<T, double>) {
            put_bytes(&value, sizeof value);
        } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
            put_number(static_cast<std::int64_t>(value));
        } else if constexpr (std::is_same_v<T, std::string>) {
            put_text(value);
        } else if constexpr (std::is_same_v<T, HostTensor>) {
            put_host(value);
        } else if constexpr (std::is_same_v<T, Tensor>) {
            put(names_.named(value));
        } else if constexpr (std::is_same_v<T, SourceLine>) {
            put_text(value.file);
            put_number(value.line);
        } else if constexpr (std::is_same_v<T, Shape>) {
            put_number(value.dimensions());
            for (int d = 0; d < value.dimensions(); ++d)
                put_number(value[d]);
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

    TensorNames& names_;
    std::string bytes_;
};

/// Takes values out of a message, in the order in which they were put in. Throws
/// WireError for what cannot be.
class WireReader {
  public:
    WireReader(TensorNames& names, std::string_view bytes)
        : names_(names), bytes_(bytes) {}

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
    /// A number in [low, high].
    std::int64_t number(std::int64_t low, std::int64_t high);
    /// Nothing may be left.
    void end() const;

  private:
    void take_bytes(void* data, std::size_t bytes);
    std::string take_text();
    HostTensor take_host();
    SourceLine take_line();
    Shape take_shape();
    std::int64_t take_size();

    template <typename T>
    void take(T& value) {
        if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::uint64_t>) {
            take_bytes(&value, sizeof value);
        } else if constexpr (std::is_same_v<T, bool>) {
            value = number(0, 1) == 1;
        } else if constexpr (std::is_enum_v<T>) {
            value = static_cast<T>(number(0, kLast<T>));
        } else if constexpr (std::is_integral_v<T>) {
            value = static_cast<T>(number(
                std::max<std::int64_t>(std::numeric_limits<T>::min(), -kMostNumber),
                std::min<std::int64_t>(std::numeric_limits<T>::max(), kMostNumber)));
        } else if constexpr (std::is_same_v<T, std::string>) {
            value = take_text();
        } else if constexpr (std::is_same_v<T, HostTensor>) {
            value = take_host();
        } else if constexpr (std::is_same_v<T, Tensor>) {
            value = names_.found(get<TensorOnWire>());
        } else if constexpr (std::is_same_v<T, SourceLine>) {
            value = take_line();
        } else if constexpr (std::is_same_v<T, Shape>) {
            value = take_shape();
        } else if constexpr (kIsVector<T>) {
            const std::int64_t size = take_size();
            value.clear();
            for (std::int64_t i = 0; i < size; ++i)
                value.push_back(get<typename T::value_type>());
        } else if constexpr (kIsMap<T>) {
            const std::int64_t size = take_size();
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

    TensorNames& names_;
    std::string_view bytes_;
};

}  // namespace lockstep::lessons
