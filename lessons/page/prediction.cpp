#include "lessons/page/prediction.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "src/text/numbers.hpp"

namespace lockstep::lessons {

namespace {

constexpr double kTolerance = 0.01;

bool is_about(double value, double wanted) {
    return std::abs(value - wanted) <= kTolerance * std::abs(wanted);
}

struct UnitName {
    std::string_view name;
    double size;
};

constexpr double kKibi = 1024;
// The first match counts, so a name comes before the shorter names with which it ends.
constexpr std::array<UnitName, 21> kBytes{{{"kbit", 125},
                                           {"Mbit", 125e3},
                                           {"Gbit", 125e6},
                                           {"bits", 0.125},
                                           {"bit", 0.125},
                                           {"KiB", kKibi},
                                           {"MiB", kKibi* kKibi},
                                           {"GiB", kKibi* kKibi* kKibi},
                                           {"TiB", kKibi* kKibi* kKibi* kKibi},
                                           {"kB", 1e3},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"bytes", 1},
                                           {"byte", 1},
                                           {"B", 1},
                                           {"字节", 1},
                                           {"k", 1e3},
                                           {"M", 1e6},
                                           {"G", 1e9}}};
constexpr std::array<UnitName, 8> kTimes{{{"ps", 1},
                                          {"ns", 1e3},
                                          {"us", 1e6},
                                          {"µs", 1e6},
                                          {"μs", 1e6},
                                          {"ms", 1e9},
                                          {"微秒", 1e6},
                                          {"s", 1e12}}};

double size_asked_for(const Figure& answer) {
    if (answer.unit != Unit::time) return 1;
    double size = 1;
    for (const UnitName& unit : kTimes)
        if (unit.name == unit_asked_for(answer)) size = unit.size;
    return size;
}

/// Also reads "1/4".
std::optional<double> typed_fraction(std::string_view text) {
    const std::size_t stroke = text.find('/');
    if (stroke == text.npos) return parse_typed_number(text);
    const std::optional<double> numerator = parse_typed_number(text.substr(0, stroke));
    const std::optional<double> denominator = parse_typed_number(text.substr(stroke + 1));
    if (!numerator || !denominator || *denominator == 0) return std::nullopt;
    return *numerator / *denominator;
}

template <std::size_t N>
std::optional<double> with_unit(std::string_view text,
                                const std::array<UnitName, N>& units, double otherwise) {
    for (const UnitName& unit : units) {
        if (!text.ends_with(unit.name)) continue;
        const std::optional<double> value =
            typed_fraction(text.substr(0, text.size() - unit.name.size()));
        return value ? std::optional(*value * unit.size) : std::nullopt;
    }
    const std::optional<double> value = typed_fraction(text);
    return value ? std::optional(*value * otherwise) : std::nullopt;
}

/// Returns the possible meanings of a typed text, in the answer's unit. A part of a whole
/// may be typed as 25, 25% or 1/4.
std::vector<double> meanings(std::string_view text, const Figure& answer) {
    std::optional<double> value;
    bool is_percent = false;
    if (text.ends_with('%')) {
        is_percent = true;
        text = trimmed(text.substr(0, text.size() - 1));
    }
    switch (answer.unit) {
        case Unit::bytes:
        case Unit::memory:
            value = with_unit(text, kBytes, 1);
            break;
        case Unit::time:
            value = with_unit(text, kTimes, size_asked_for(answer));
            break;
        case Unit::seconds:
            value = with_unit(text, kTimes, kTimes.back().size);
            if (value) *value /= kTimes.back().size;
            break;
        default:
            value = typed_fraction(text);
    }
    if (!value) return {};
    if (answer.unit == Unit::percent && !is_percent) return {*value, *value * 100};
    if (answer.unit != Unit::percent && is_percent) return {*value / 100};
    return {*value};
}

/// Returns a remark on a wrong number; it suits any question.
const char* remark_on(double value, const Figure& answer) {
    const char* const direction =
        value < answer.value ? "The answer is larger." : "The answer is smaller.";
    if (answer.unit != Unit::bytes && answer.unit != Unit::memory) return direction;
    if (is_about(value, 8 * answer.value) || is_about(value, answer.value / 8))
        return "Bits or bytes? A byte has 8 bits.";
    // KiB for kB, MiB for MB, GiB for GB, TiB for TB.
    for (const int power : {1, 2, 3, 4}) {
        const double ratio = std::pow(kKibi / 1000, power);
        if (is_about(value, answer.value * ratio) ||
            is_about(value, answer.value / ratio))
            return "1 KiB is 1,024 bytes, 1 kB is 1,000.";
    }
    return direction;
}

Judgement judge_choice(const Prediction& prediction, std::string_view typed) {
    if (typed.size() != 1) return {};
    const int chosen = std::tolower(static_cast<unsigned char>(typed[0])) - 'a';
    if (chosen < 0 || chosen >= static_cast<int>(prediction.choices.size())) return {};
    const std::string& key = prediction.choices[static_cast<std::size_t>(chosen)].key;
    Judgement judgement{key == prediction.right_choice ? Judgement::Outcome::right
                                                       : Judgement::Outcome::wrong};
    const auto hint = std::ranges::find(prediction.hints, key, &Hint::choice);
    if (hint != prediction.hints.end()) judgement.hint = &*hint;
    return judgement;
}

}  // namespace

std::string letter_of(std::size_t choice) {
    return {static_cast<char>('a' + choice)};
}

std::string unit_asked_for(const Figure& answer, Language language) {
    switch (answer.unit) {
        case Unit::bytes:
        case Unit::memory:
            return said(language, "bytes");
        case Unit::time: {
            const std::string text = text_of(answer);
            return text.substr(text.rfind(' ') + 1);
        }
        case Unit::seconds:
            return "s";
        case Unit::percent:
            return "%";
        default:
            return "";
    }
}

std::string answer_text(const Prediction& prediction, Language language) {
    if (!prediction.has_choices()) return text_of(prediction.answer, language);
    for (std::size_t i = 0; i < prediction.choices.size(); ++i)
        if (prediction.choices[i].key == prediction.right_choice) {
            const Document& text = prediction.choices[i].text;
            const auto* words = text.size() == 1 ? text[0].as<Paragraph>() : nullptr;
            return letter_of(i) + (words ? ", " + plain(words->text) : "");
        }
    return "";
}

Judgement judge(const Prediction& prediction, std::string_view typed) {
    const std::string_view text = trimmed(typed);
    if (prediction.has_choices()) return judge_choice(prediction, text);
    const std::vector<double> values = meanings(text, prediction.answer);
    if (values.empty()) return {};
    Judgement judgement{Judgement::Outcome::wrong};
    for (const double value : values) {
        if (is_about(value, prediction.answer.value))
            return {Judgement::Outcome::right, nullptr, nullptr};
        for (const Hint& hint : prediction.hints)
            if (!judgement.hint && is_about(value, hint.wrong)) judgement.hint = &hint;
    }
    const auto is_nearer = [&](double left, double right) {
        return std::abs(left - prediction.answer.value) <
               std::abs(right - prediction.answer.value);
    };
    const double nearest = *std::min_element(values.begin(), values.end(), is_nearer);
    if (!judgement.hint) judgement.remark = remark_on(nearest, prediction.answer);
    return judgement;
}

}  // namespace lockstep::lessons
