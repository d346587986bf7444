#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::programs {

// The values that a setting can have, and its default.

struct Whole {
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::optional<std::int64_t> standard = std::nullopt;
};
struct Real {
    double least = 0;
    double most = 0;
    std::optional<double> standard = std::nullopt;
};
struct Choice {
    std::vector<std::string> words;
    std::optional<std::string> standard = std::nullopt;
};

/// A setting, for --set KEY=VALUE. The code that reads a setting declares the setting.
/// Its check, its help and its record follow from the declaration.
struct Setting {
    std::string key;
    std::string meaning;
    std::variant<Whole, Real, Choice> values;
    /// The default in words if it is no constant, such as "twice the ranks".
    std::string standard = "";
    /// If true, run.json has the default when the setting is not set.
    bool recorded = true;

    /// Returns the default as text; empty if there is none.
    std::string standard_text() const;
    /// Returns which values are allowed, such as "a whole number from 1 to 64".
    std::string expected() const;
    /// Returns the text for help: the meaning, the allowed values and the default.
    std::string help() const;
};

/// The values that declared settings have in a run.
class Settings {
  public:
    Settings() = default;
    /// `given` has the texts of --set, or of another option. Throws UsageError for a
    /// wrong value, and for an undeclared key; then the message names the declared keys.
    Settings(const std::vector<Setting>& declared,
             const std::map<std::string, std::string>& given,
             const std::string& option = "--set");

    // These return the value that was given, or the declared default. They throw
    // std::logic_error if the setting has neither, or is not declared.

    std::int64_t integer(const std::string& key) const;
    double number(const std::string& key) const;
    const std::string& word(const std::string& key) const;

    /// Returns the value that was given, else the declared default, else `otherwise`.
    std::int64_t integer(const std::string& key, std::int64_t otherwise) const {
        return has(key) ? integer(key) : otherwise;
    }
    /// Returns whether a declared setting has a value, given or by default.
    bool has(const std::string& key) const;

  private:
    using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

    template <typename T>
    const T& at(const std::string& key) const;

    std::map<std::string, Value> values_;  ///< of all declared settings
};

}  // namespace lockstep::programs
