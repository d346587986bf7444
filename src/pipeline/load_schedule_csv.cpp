#include <algorithm>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/load_schedule_gather.hpp"
#include "src/report/csv_cells.hpp"

namespace lockstep {

namespace {

/// The text with its comments gone, line for line.
std::string without_comments(std::string_view text) {
    std::string rest;
    rest.reserve(text.size());
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size() - 1);
        const std::string_view line = text.substr(0, end + 1);
        const std::size_t first = line.find_first_not_of(" \t");
        const bool comment = first != line.npos && line[first] == '#';
        if (!comment)
            rest += line;
        else if (line.ends_with('\n'))
            rest += '\n';
        text.remove_prefix(line.size());
    }
    return rest;
}

}  // namespace

Schedule read_schedule_csv(const std::string& text,
                           const std::string& name) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    std::string_view bytes = text;
    if (bytes.starts_with(kByteOrderMark))
        bytes.remove_prefix(kByteOrderMark.size());
    const std::size_t binary = bytes.find('\0');
    require(
        binary == bytes.npos,
        "{}:{}: this is not CSV text: it holds a byte 0", name,
        1 + std::count(bytes.begin(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(binary),
                       '\n'));

    const std::string lines = without_comments(bytes);
    require(lines.find_first_not_of(" \t\r\n") != lines.npos,
            [&] { return name + " is empty"; });
    GatheredSchedule gathered(name);
    CsvReader reader(lines, name);
    CsvRow row;
    while (reader.next(row)) {
        if (row.cells.size() == 1 && row.cells.front().empty()) continue;
        gathered.add_stage(row.line);
        for (const std::string& cell : row.cells)
            if (!cell.empty()) gathered.add_instruction(cell, row.line);
    }
    return gathered.finish();
}

}  // namespace lockstep
