#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// Returns the text as a JSON string with its quotes. Bytes that are not UTF-8 become
/// U+FFFD.
std::string json_quoted(std::string_view text);

/// Returns the number as JSON text from which the same double is read back. JSON has no
/// infinity and no NaN, so these become strings: "NaN", "Infinity", "-Infinity".
std::string json_number(double value);

bool is_utf8(std::string_view text);

/// Thrown if a text is not JSON, or if a value is not of the kind that is asked for.
struct JsonError : std::runtime_error {
    explicit JsonError(const std::string& what, std::size_t where = 0)
        : std::runtime_error(what), byte(where) {}
    std::size_t byte;  ///< the wrong byte, counted from 1; 0 if the text is JSON
};

/// A JSON value, for writing and reading documents. Members of an object keep their
/// order. The library's own header takes seconds to compile; this header is for code that
/// only needs a tree.
class Json {
  public:
    using Array = std::vector<Json>;
    using Object = std::vector<std::pair<std::string, Json>>;

    Json() = default;
    Json(std::nullptr_t) {}
    Json(bool value) : value_(value) {}
    template <typename T>
    requires std::is_arithmetic_v<T> Json(T value) {
        if constexpr (std::is_floating_point_v<T>)
            value_ = static_cast<double>(value);
        else if constexpr (std::is_signed_v<T>)
            value_ = static_cast<std::int64_t>(value);
        else
            value_ = static_cast<std::uint64_t>(value);
    }
    Json(std::string text) : value_(std::move(text)) {}
    Json(const char* text) : value_(std::string(text)) {}
    Json(std::string_view text) : value_(std::string(text)) {}
    Json(Array elements) : value_(std::move(elements)) {}
    Json(Object members) : value_(std::move(members)) {}
    template <typename T>
    Json(const std::vector<T>& list) : value_(Array(list.begin(), list.end())) {}
    template <typename T>
    Json(const std::map<std::string, T>& members)
        : value_(Object(members.begin(), members.end())) {}
    /// {{"key", value}, …} is an object; any other list is an array.
    Json(std::initializer_list<Json> list);
    static Json array() { return Array{}; }
    static Json object() { return Object{}; }

    void push_back(Json element) {
        std::get<Array>(value_).push_back(std::move(element));
    }
    /// Returns the member of that name. If it is missing, adds it as null.
    Json& operator[](const std::string& key);

    /// Writes the value on one line, or on several, with `indent` spaces for each
    /// level. Bytes that are not UTF-8 become U+FFFD.
    std::string dump(int indent = -1) const;

    /// Throws JsonError for text that is not JSON, and for numbers that are too large.
    /// Values that are nested more than 500 deep are left out.
    static Json parse(const std::string& text);

    bool is_null() const { return is<std::nullptr_t>(); }
    bool is_object() const { return is<Object>(); }
    bool is_array() const { return is<Array>(); }
    bool is_string() const { return is<std::string>(); }
    bool is_integer() const { return is<std::int64_t>() || is<std::uint64_t>(); }
    bool is_number() const { return is_integer() || is<double>(); }
    bool is(std::string_view text) const {
        return is_string() && std::get<std::string>(value_) == text;
    }
    std::size_t size() const {
        return is_object() ? members().size() : elements().size();
    }
    bool contains(const std::string& key) const { return find(key) != nullptr; }

    // These functions throw JsonError if the value is of another kind.
    const Array& elements() const;
    const Object& members() const;
    const Json& at(const std::string& key) const;
    /// T is std::string, bool or a type of number. A double becomes a whole number
    /// without its fraction; a double that does not fit is of another kind.
    template <typename T>
    T get() const;
    /// Calls `visitor` with the value in its own type.
    template <typename Visitor>
    auto visit(const Visitor& visitor) const {
        return std::visit(visitor, value_);
    }

  private:
    using Value = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double,
                               std::string, Array, Object>;

    template <typename T>
    bool is() const {
        return std::holds_alternative<T>(value_);
    }
    const Json* find(const std::string& key) const;
    [[noreturn]] static void fail(const char* expected);

    Value value_;
};

/// Returns any number as json_number() writes it, even if it is not finite.
inline Json json_figure(double value) {
    return std::isfinite(value) ? Json(value) : Json::parse(json_number(value));
}

template <typename T>
T Json::get() const {
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, bool>) {
        if (is<T>()) return std::get<T>(value_);
        fail(std::is_same_v<T, bool> ? "true or false" : "a string");
    } else {
        if (is<std::int64_t>()) return static_cast<T>(std::get<std::int64_t>(value_));
        if (is<std::uint64_t>()) return static_cast<T>(std::get<std::uint64_t>(value_));
        if (!is<double>()) fail("a number");
        const double value = std::get<double>(value_);
        if constexpr (std::is_integral_v<T>) {
            using Range = std::numeric_limits<T>;
            const bool fits = value >= static_cast<double>(Range::min()) &&
                              value < std::ldexp(1.0, Range::digits);
            if (!fits) fail("a number of another size");
        }
        return static_cast<T>(value);
    }
}

}  // namespace lockstep
