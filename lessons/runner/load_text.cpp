#include "lessons/runner/load_text.hpp"

#include <cmath>

#include <fmt/format.h>

#include "lessons/runner/load_file.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// The code points of a text, each as a number.
std::vector<std::int32_t> code_points(std::string_view bytes, const std::string& name) {
    std::vector<std::int32_t> points;
    points.reserve(bytes.size());
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    std::size_t at = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    while (at < bytes.size()) {
        const CodePoint point = decode_utf8(bytes, at);
        require(point.valid && point.value != 0,
                "{} is not UTF-8 text: byte 0x{:02x} at offset {}", name,
                static_cast<unsigned char>(bytes[at]), at);
        points.push_back(static_cast<std::int32_t>(point.value));
        at += point.bytes;
    }
    return points;
}

/// Replaces each code point by its place among the distinct ones, and returns these.
std::u32string number_by_vocabulary(std::vector<std::int32_t>& points) {
    constexpr std::size_t kCodePoints = 0x110000;
    constexpr std::int32_t kAbsent = -1;
    std::vector<std::int32_t> places(kCodePoints, kAbsent);
    for (const std::int32_t point : points)
        places[point] = 0;
    std::u32string vocabulary;
    for (std::size_t point = 0; point < kCodePoints; ++point) {
        if (places[point] == kAbsent) continue;
        places[point] = static_cast<std::int32_t>(vocabulary.size());
        vocabulary += static_cast<char32_t>(point);
    }
    for (std::int32_t& point : points)
        point = places[point];
    return vocabulary;
}

std::string characters(std::int64_t count) {
    return count_text(count) + (count == 1 ? " character" : " characters");
}

}  // namespace

Text read_text(std::string_view bytes, const std::string& name,
               std::int64_t least_characters) {
    require(!bytes.empty(), [&] { return name + " is empty"; });
    Text text;
    text.ids = code_points(bytes, name);
    const auto length = static_cast<std::int64_t>(text.ids.size());
    require(length >= least_characters, "{} has {}, but at least {} are needed", name,
            characters(length), count_text(least_characters));
    text.vocabulary = number_by_vocabulary(text.ids);
    return text;
}

Text load_text(const std::filesystem::path& path, std::int64_t least_characters) {
    return read_text(load_file(path), printable(path.string()), least_characters);
}

double unigram_entropy(const Text& text) {
    std::vector<double> counts(text.vocabulary.size());
    for (const std::int32_t id : text.ids)
        ++counts[id];
    double entropy = 0;
    for (const double count : counts) {
        const double probability = count / static_cast<double>(text.ids.size());
        entropy -= probability * std::log(probability);
    }
    return entropy;
}

}  // namespace lockstep::lessons
