#include "lessons/runner/load_csv.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include <fmt/format.h>

#include "lessons/runner/load_file.hpp"
#include "src/core/require.hpp"
#include "src/report/csv_cells.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

bool is_text(const std::string& cell) {
    return !cell.empty() && !parse_number(cell);
}

/// "'abc'", or its begin where it is long.
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

/// Checks rows against the first one and gathers their numbers.
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
        require(!values_.empty(), [&] { return name_ + " has a header but no numbers"; });
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
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
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

}  // namespace lockstep::lessons
