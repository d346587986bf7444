#include "src/text/table.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr int kBetween = 2;

struct Column {
    int width = 0;  ///< as laid out; at first the width of its widest cell
    int least = 0;  ///< its longest word, or its widest number
    bool number = true;
};

int longest_word(const std::string& text) {
    int longest = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        longest = std::max(longest, columns_of(text.substr(begin, end - begin)));
        begin = end + 1;
    }
    return longest;
}

std::vector<Column> measure(const Table& table) {
    std::vector<Column> columns(table.head.size());
    for (const auto& row : table.rows) {
        if (row.size() != columns.size())
            throw std::logic_error(
                fmt::format("a table with {} columns has a row with {} cells",
                            columns.size(), row.size()));
        for (std::size_t c = 0; c < columns.size(); ++c)
            columns[c].number = columns[c].number && is_number_cell(row[c]);
    }
    for (std::size_t c = 0; c < columns.size(); ++c) {
        const auto grow = [&column = columns[c]](const std::string& cell, bool whole) {
            const int width = columns_of(cell);
            column.width = std::max(column.width, width);
            column.least = std::max(column.least, whole ? width : longest_word(cell));
        };
        grow(table.head[c], false);
        for (const auto& row : table.rows)
            grow(row[c], columns[c].number);
    }
    return columns;
}

int total_width(const std::vector<Column>& columns) {
    return std::accumulate(
        columns.begin(), columns.end(), kBetween * (static_cast<int>(columns.size()) - 1),
        [](int sum, const Column& column) { return sum + column.width; });
}

/// Narrows the widest column that can shrink, until the table fits. Returns false if the
/// table cannot fit.
bool shrink_to(std::vector<Column>& columns, int width) {
    for (int excess = total_width(columns) - width; excess > 0; --excess) {
        Column* widest = nullptr;
        for (Column& column : columns)
            if (column.width > column.least && (!widest || column.width > widest->width))
                widest = &column;
        if (!widest) return false;
        --widest->width;
    }
    return true;
}

std::string without_trailing_spaces(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

std::vector<std::string> row_lines(const std::vector<std::string>& row,
                                   const std::vector<Column>& columns) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        cells.push_back(wrap(row[c], columns[c].width));
        height = std::max(height, cells.back().size());
    }
    std::vector<std::string> lines(height);
    for (std::size_t l = 0; l < height; ++l) {
        for (std::size_t c = 0; c < columns.size(); ++c) {
            const std::string cell = l < cells[c].size() ? cells[c][l] : "";
            if (c > 0) lines[l].append(kBetween, ' ');
            lines[l] += columns[c].number ? pad_left(cell, columns[c].width)
                                          : pad_right(cell, columns[c].width);
        }
        lines[l] = without_trailing_spaces(lines[l]);
    }
    return lines;
}

std::string rule(const std::vector<Column>& columns) {
    std::string line;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        if (c > 0) line.append(kBetween, ' ');
        for (int i = 0; i < columns[c].width; ++i)
            line += "─";
    }
    return line;
}

TableText as_columns(const Table& table, const std::vector<Column>& columns) {
    TableText text;
    text.head = row_lines(table.head, columns);
    text.head.push_back(rule(columns));
    for (const auto& row : table.rows)
        for (std::string& line : row_lines(row, columns))
            text.body.push_back(std::move(line));
    return text;
}

/// Exchanges rows and columns. A table of few rows and many columns fits better this way.
Table transposed(const Table& table) {
    Table turned;
    for (std::size_t c = 0; c < table.head.size(); ++c) {
        std::vector<std::string> row{table.head[c]};
        for (const auto& cells : table.rows)
            row.push_back(cells[c]);
        if (c == 0)
            turned.head = std::move(row);
        else
            turned.rows.push_back(std::move(row));
    }
    return turned;
}

/// Puts rows one below another, as lines "name value", with a blank line between rows.
TableText as_blocks(const Table& table, int width) {
    int names = 0;
    for (const std::string& name : table.head)
        names = std::max(names, columns_of(name));
    names = std::min(names, width / 2 - kBetween);
    const std::vector<Column> columns{{names, 0, false},
                                      {width - names - kBetween, 0, false}};
    TableText text;
    for (const auto& row : table.rows) {
        if (!text.body.empty()) text.body.emplace_back();
        for (std::size_t c = 0; c < row.size(); ++c)
            for (std::string& line : row_lines({table.head[c], row[c]}, columns))
                text.body.push_back(std::move(line));
    }
    return text;
}

}  // namespace

bool is_number_cell(const std::string& cell) {
    if (cell.empty() || cell == "-" || cell == "–" || cell == "—") return true;
    std::size_t at = cell[0] == '-' || cell[0] == '+' ? 1 : 0;
    if (cell.starts_with("−") || cell.starts_with("≤")) at = std::string("−").size();
    if (at >= cell.size() || cell[at] < '0' || cell[at] > '9') return false;
    at = std::min(cell.find_first_not_of("0123456789.,e+-", at), cell.size());
    const std::string unit = cell.substr(at);
    constexpr std::size_t kLongestUnit = 6;
    return unit.size() <= kLongestUnit + 1 && unit.find(' ', 1) == std::string::npos;
}

TableText table_text(const Table& table, int width) {
    std::vector<Column> columns = measure(table);
    if (shrink_to(columns, width)) return as_columns(table, columns);
    const Table turned = transposed(table);
    columns = measure(turned);
    if (shrink_to(columns, width)) return as_columns(turned, columns);
    return as_blocks(table, width);
}

}  // namespace lockstep
