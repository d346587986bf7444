// Files with a repeated middle and changed cells. Compares the schedule read from a file
// with the file written out cell by cell.

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/pytorch_schedule.hpp"
#include "src/pipeline/validate.hpp"
#include "src/report/csv_cells.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/naive_check.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Cells = std::vector<std::string>;

std::vector<Cells> rows_of(const std::string& text) {
    std::vector<Cells> rows;
    CsvReader reader(text, "it");
    for (CsvRow row; reader.next(row);)
        rows.push_back(row.cells);
    return rows;
}

std::string text_of(const std::vector<Cells>& rows) {
    std::string text;
    for (const Cells& cells : rows)
        text += fmt::format("{}\n", fmt::join(cells, ","));
    return text;
}

/// Returns a file with a middle. Its pipeline does not stop, or it flushes.
std::string random_file(Random& random) {
    const char* const names[] = {
        "pipedream", "pipedream-vertical", "pipedream-2bw", "unstashed",
        "spectrain", "pipemare",           "1f1b",          "gpipe",
        "zb-h1",     "interleaved"};
    const std::string name = names[random.below(10)];
    PipelineShape shape{random.between(1, 4), 0, 1};
    if (flushes(name)) {
        shape.chunks = name == "interleaved" ? 2 : 1;
        shape.per_update = shape.stages * random.between(1, 2);
        shape.micro_batches = shape.per_update * random.between(2, 3);
    } else {
        if (name == "pipedream-2bw") shape.per_update = shape.stages;
        shape.micro_batches = shape.stages * random.between(3, 5);
    }
    return schedule_csv(make_schedule(name, shape));
}

void change(Random& random, std::vector<Cells>& rows) {
    Cells& cells = rows[static_cast<std::size_t>(random.below(int(rows.size())))];
    if (cells.empty()) return;
    const auto any = [&] { return cells.begin() + random.below(int(cells.size())); };
    const auto at = any();
    const std::string text = *at;
    switch (random.below(7)) {
        case 0:
            cells.erase(at);
            break;
        case 1:
            cells.insert(any(), text);
            break;
        case 2:
            std::swap(*at, *any());
            break;
        case 3:
            cells.erase(at);
            cells.insert(cells.begin() + random.below(int(cells.size()) + 1), text);
            break;
        case 4: {
            const std::size_t digit = text.find_first_of("0123456789");
            if (digit == text.npos) break;
            at->replace(digit, text.find_first_not_of("0123456789", digit) - digit,
                        std::to_string(random.below(5)));
            break;
        }
        case 5:
            cells.insert(at, random.one_in(2) ? "[" : "]x2");
            break;
        case 6:
            std::replace_if(
                cells.begin(), cells.end(),
                [](const std::string& cell) { return cell.starts_with(']'); },
                fmt::format("]x{}", random.between(1, 4)));
            break;
    }
}

/// The middle of a row: from the cell after "[" to the cell "]x3".
struct Middle {
    std::size_t first = 0;
    std::size_t last = 0;
    int times = 0;
    int micro_batches = 0;
};

/// Returns nothing unless the row has one pair of brackets with work inside, and a count.
std::optional<Middle> middle_of(const Cells& cells) {
    std::vector<std::size_t> begins;
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (cells[i] == "[") begins.push_back(i);
        if (cells[i].starts_with("]")) ends.push_back(i);
    }
    if (begins.size() != 1 || ends.size() != 1 || begins[0] + 1 >= ends[0])
        return std::nullopt;
    Middle middle{begins[0] + 1, ends[0], std::stoi(cells[ends[0]].substr(2))};
    if (middle.times < 1) return std::nullopt;
    std::optional<int> chunk;
    for (std::size_t i = middle.first; i < middle.last; ++i)
        for (const Instruction& each : read_instructions(cells[i])) {
            if (!chunk) chunk = each.chunk;
            middle.micro_batches +=
                each.kind == InstructionKind::forward && each.chunk == *chunk;
        }
    return middle;
}

/// Returns a stage's work. Numbers continue from copy to copy, and through the end.
std::vector<Instruction> written_out(const Cells& cells, const Middle& middle) {
    std::vector<Instruction> work;
    std::vector<int> updates(8);
    const auto add = [&](std::size_t first, std::size_t last, int later) {
        for (std::size_t i = first; i < last; ++i)
            for (Instruction each : read_instructions(cells[i])) {
                if (has_micro_batch(each.kind))
                    each.micro_batch += later * middle.micro_batches;
                if (each.weight_version >= 0)
                    each.weight_version +=
                        later * updates.at(static_cast<std::size_t>(each.chunk));
                work.push_back(each);
            }
    };
    add(0, middle.first - 1, 0);
    for (std::size_t i = middle.first; i < middle.last; ++i)
        for (const Instruction& each : read_instructions(cells[i]))
            if (each.kind == InstructionKind::optimizer_step)
                ++updates.at(static_cast<std::size_t>(each.chunk));
    for (int copy = 0; copy < middle.times; ++copy)
        add(middle.first, middle.last, copy);
    add(middle.last + 1, cells.size(), middle.times - 1);
    return work;
}

/// Returns the rows as a schedule without a middle; nothing if the middles do not fit
/// together.
std::optional<Schedule> written_out(const std::vector<Cells>& rows) {
    int micro_batches = 0;
    int chunks = 1;
    std::vector<Middle> middles;
    for (const Cells& cells : rows) {
        const std::optional<Middle> middle = middle_of(cells);
        if (!middle || middle->micro_batches == 0) return std::nullopt;
        middles.push_back(*middle);
        if (middle->times != middles.front().times ||
            middle->micro_batches != middles.front().micro_batches)
            return std::nullopt;
        for (const std::string& cell : cells)
            for (const Instruction& each : read_instructions(cell)) {
                micro_batches = std::max(micro_batches, each.micro_batch + 1);
                chunks = std::max(chunks, each.chunk + 1);
            }
    }
    const Middle& any = middles.front();
    micro_batches += (any.times - 1) * any.micro_batches;
    const auto stages = static_cast<int>(rows.size());
    Schedule schedule = empty_schedule("by hand", {stages, micro_batches, chunks});
    for (std::size_t stage = 0; stage < rows.size(); ++stage)
        schedule.work[stage] = written_out(rows[stage], middles[stage]);
    return schedule;
}

/// Returns the file's schedule; nothing if it cannot be read or breaks the rules.
std::optional<Schedule> read(const std::string& text) {
    try {
        Schedule schedule = read_schedule_csv(text, "a.csv");
        require_valid(schedule);
        return schedule;
    } catch (const UsageError&) {
        return std::nullopt;
    }
}

/// Returns whether a period is found. If not, a UsageError must say why.
bool has_a_period(const Schedule& schedule) {
    try {
        return time_period(schedule, {{2, 1, 1, 0}}).length > 0;
    } catch (const UsageError&) {
        return false;
    }
}

}  // namespace

TEST_CASE("changed middles are refused exactly if the written-out schedule is",
          "[pipeline]") {
    Random random(31);
    int runs = 0;
    int periods = 0;
    for (int draw = 0; draw < 2500; ++draw) {
        std::vector<Cells> rows = rows_of(random_file(random));
        if (draw % 50 != 0) change(random, rows);
        const std::string text = text_of(rows);
        CAPTURE(draw, text);
        const std::optional<Schedule> by_hand = written_out(rows);
        const std::optional<Schedule> found = read(text);
        REQUIRE(found.has_value() == (by_hand && can_run(*by_hand)));
        if (!found) continue;
        CHECK(lines_of(*found) == lines_of(*by_hand));
        ++runs;
        periods += has_a_period(*found);
    }
    CHECK(runs > 300);
    CHECK(periods > 250);
}
