#include "lessons/runner/input_files.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

#include "lessons/runner/pages.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/report/csv_cells.hpp"
#include "src/report/files.hpp"
#include "src/text/numbers.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string load_file(const std::filesystem::path& path) {
    try {
        return read_text_input(path, kLargestInputBytes);
    } catch (const std::system_error& error) {
        throw std::system_error(error.code(), "cannot read " + printable(path.string()));
    }
}

/// Returns the code points of a text, as numbers.
std::vector<std::int32_t> code_points(std::string_view bytes, const std::string& name) {
    std::vector<std::int32_t> points;
    points.reserve(bytes.size());
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

/// Replaces each code point by its index in the vocabulary, and returns the vocabulary.
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

namespace {

bool is_text(const std::string& cell) {
    return !cell.empty() && !parse_number(cell);
}

/// Returns the cell in quotation marks; of a long cell, only the beginning.
std::string shown(const std::string& cell) {
    constexpr std::size_t kLongest = 40;
    const std::string clean = printable(cell);
    if (clean.size() <= kLongest) return "'" + clean + "'";
    std::size_t cut = kLongest;
    while ((static_cast<unsigned char>(clean[cut]) & 0xC0) == 0x80)
        --cut;
    return "'" + clean.substr(0, cut) + "…'";
}

std::string problem_of(const std::string& cell) {
    if (cell.empty()) return "the cell is empty";
    const std::optional<double> number = parse_number(cell);
    if (number) return shown(cell) + " is not a finite number";
    std::string point = cell;
    std::replace(point.begin(), point.end(), ',', '.');
    const bool comma = point != cell && parse_number(point);
    return shown(cell) + " is not a number" +
           (comma ? ": a decimal point is expected" : "");
}

/// Checks each row against the first row, and collects the numbers.
class Rows {
  public:
    Rows(std::string name, const CsvRow& first)
        : name_(std::move(name)),
          header_(std::any_of(first.cells.begin(), first.cells.end(), is_text)),
          first_(first.cells) {
        if (!header_) append(first);
    }

    void append(const CsvRow& row) {
        require(row.cells.size() == first_.size(), [&] {
            const std::size_t cells = row.cells.size();
            const bool empty = cells == 1 && row.cells.front().empty();
            return fmt::format("{}, row {}: ", name_, row.line) +
                   (empty ? "the row is empty"
                          : fmt::format("{} cell{}, but the first row has {}", cells,
                                        cells == 1 ? "" : "s", first_.size()));
        });
        for (std::size_t c = 0; c < first_.size(); ++c) {
            const std::optional<double> number = parse_number(row.cells[c]);
            require(number && std::isfinite(*number), [&] {
                return fmt::format("{}, row {}, column {}: {}", name_, row.line,
                                   column_text(c), problem_of(row.cells[c]));
            });
            values_.push_back(*number);
        }
    }

    NumberTable table() const {
        require(!values_.empty(),
                [&] { return name_ + " has a header but no rows of numbers"; });
        const std::size_t columns = first_.size();
        assert(columns > 0);
        NumberTable table;
        for (std::size_t c = 0; c < columns; ++c)
            table.columns.push_back(header_ && !first_[c].empty()
                                        ? first_[c]
                                        : fmt::format("column {}", c + 1));
        const Shape shape{static_cast<std::int64_t>(values_.size() / columns),
                          static_cast<std::int64_t>(columns)};
        table.values = HostTensor::of(shape, values_);
        return table;
    }

  private:
    std::string column_text(std::size_t column) const {
        const std::string& name = first_[column];
        if (!header_ || name.empty()) return fmt::format("{}", column + 1);
        return fmt::format("{} ({})", column + 1, printable(name));
    }

    std::string name_;
    bool header_;
    std::vector<std::string> first_;
    std::vector<double> values_;
};

}  // namespace

NumberTable read_csv(std::string_view bytes, const std::string& name) {
    if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
    const std::size_t binary = bytes.find('\0');
    require(binary == std::string_view::npos,
            "{} is not CSV text: byte 0x00 at offset {}", name, binary);

    CsvReader reader(bytes, name);
    CsvRow row;
    require(reader.next(row), [&] { return name + " is empty"; });
    Rows rows(name, row);
    while (reader.next(row))
        rows.append(row);
    return rows.table();
}

NumberTable load_csv(const std::filesystem::path& path) {
    return read_csv(load_file(path), printable(path.string()));
}

std::string_view lesson_text() {
    return text_called("01_gradient_accumulation/text.txt");
}

}  // namespace lockstep::lessons
