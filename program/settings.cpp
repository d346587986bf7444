#include "program/settings.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"

namespace lockstep::programs {

namespace {

std::optional<std::int64_t> read(const Whole& range, const std::string& text) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    const bool whole = error == std::errc{} && stopped == end;
    if (!whole || value < range.least || value > range.most) return std::nullopt;
    return value;
}

std::optional<double> read(const Real& range, const std::string& text) {
    const std::optional<double> value = parse_number(text);
    const bool within = value && *value >= range.least && *value <= range.most;
    return within ? value : std::nullopt;
}

std::optional<std::string> read(const Choice& choice, const std::string& text) {
    const bool known = std::ranges::find(choice.words, text) != choice.words.end();
    return known ? std::optional(text) : std::nullopt;
}

/// Returns "1 to 64" or "on or off".
std::string range_text(const Setting& setting) {
    if (const auto* choice = std::get_if<Choice>(&setting.values))
        return either(choice->words);
    if (const auto* real = std::get_if<Real>(&setting.values))
        return fmt::format("{} to {}", real->least, real->most);
    const Whole& whole = std::get<Whole>(setting.values);
    return fmt::format("{} to {}", whole.least, whole.most);
}

}  // namespace

std::string Setting::standard_text() const {
    const auto text = [](const auto& kind) {
        return kind.standard ? fmt::format("{}", *kind.standard) : "";
    };
    return standard.empty() ? std::visit(text, values) : standard;
}

std::string Setting::expected() const {
    const char* kind = std::holds_alternative<Whole>(values)  ? "a whole number from "
                       : std::holds_alternative<Real>(values) ? "a number from "
                                                              : "";
    return kind + range_text(*this);
}

std::string Setting::help() const {
    const std::string otherwise = standard_text();
    return fmt::format("{} ({}{})", meaning, range_text(*this),
                       otherwise.empty() ? "" : "; default " + otherwise);
}

Settings::Settings(const std::vector<Setting>& declared,
                   const std::map<std::string, std::string>& given,
                   const std::string& option) {
    std::vector<std::string> keys;
    keys.reserve(declared.size());
    for (const Setting& setting : declared)
        keys.push_back(setting.key);
    for (const auto& [key, text] : given)
        require(std::ranges::find(keys, key) != keys.end(),
                "{} {}={}: no such setting; there are {}", option, printable(key),
                printable(text), fmt::join(keys, ", "));
    for (const Setting& setting : declared) {
        const auto text = given.find(setting.key);
        const auto value_of = [&](const auto& kind) {
            const auto value =
                text == given.end() ? kind.standard : read(kind, text->second);
            require(value || text == given.end(), [&] {
                return fmt::format("{} {}={}: {} is expected", option, setting.key,
                                   printable(text->second), setting.expected());
            });
            values_[setting.key] = value ? Value(*value) : Value();
        };
        std::visit(value_of, setting.values);
    }
}

bool Settings::has(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end())
        throw std::logic_error("the setting " + key + " is not declared");
    return !std::holds_alternative<std::monostate>(found->second);
}

template <typename T>
const T& Settings::at(const std::string& key) const {
    if (!has(key)) throw std::logic_error("the setting " + key + " has no default");
    return std::get<T>(values_.find(key)->second);
}

std::int64_t Settings::integer(const std::string& key) const {
    return at<std::int64_t>(key);
}

double Settings::number(const std::string& key) const {
    return at<double>(key);
}

const std::string& Settings::word(const std::string& key) const {
    return at<std::string>(key);
}

}  // namespace lockstep::programs
