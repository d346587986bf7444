#include "src/pipeline/load_schedule_gather.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/report/json_text.hpp"

namespace lockstep {

namespace {

std::string counted(std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string shown_text(std::string_view text) {
    constexpr std::size_t kLongest = 40;
    if (text.size() <= kLongest) return json_quoted(text);
    std::size_t cut = kLongest;
    while (cut > 0 &&
           (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80)
        --cut;
    return json_quoted(std::string(text.substr(0, cut)) + "…");
}

GatheredSchedule::GatheredSchedule(std::string file)
    : name(std::filesystem::path(file).stem().string()),
      file_(std::move(file)) {}

void GatheredSchedule::fail(int line, const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", file_, line, what));
}

void GatheredSchedule::fail_file(const std::string& what) const {
    throw UsageError(fmt::format("{}: {}", file_, what));
}

void GatheredSchedule::add_stage(int line) {
    if (stages_so_far() == kMostStages)
        fail(line,
             fmt::format(
                 "this is stage {}, counted from 0; at most {} stages are "
                 "possible",
                 kMostStages, kMostStages));
    work_.emplace_back();
}

void GatheredSchedule::add_instruction(std::string_view text, int line) {
    const std::optional<Instruction> read = read_instruction(text);
    if (!read)
        fail(line,
             fmt::format(
                 "{} is no instruction; those are F, B, I, W, SA, RA, SG "
                 "and RG with a micro-batch, as in F3, F3.1 (of chunk 1) "
                 "or F3@2 (with weights of version 2), and R and U, as in "
                 "R or R.1",
                 shown_text(text)));
    if (read->micro_batch >= kMostMicroBatches)
        fail(line,
             fmt::format(
                 "{} is of micro-batch {}; at most {} are possible, "
                 "counted from 0",
                 shown_text(text), read->micro_batch, kMostMicroBatches));
    if (read->chunk >= kMostChunks)
        fail(line,
             fmt::format(
                 "{} is of chunk {}; at most {} are possible, counted "
                 "from 0",
                 shown_text(text), read->chunk, kMostChunks));
    most_micro_batch_ = std::max(most_micro_batch_, read->micro_batch);
    most_chunk_ = std::max(most_chunk_, read->chunk);
    work_.back().push_back(*read);
    work_.back().back().line = line;
}

PipelineShape GatheredSchedule::shape() const {
    const int found = stages_so_far();
    if (found == 0) fail_file("there is no stage");
    if (stages && stages->value != found)
        fail(stages->line,
             fmt::format("\"stages\" is {}, but there are lists for {}",
                         stages->value, found));
    if (!micro_batches && most_micro_batch_ < 0)
        fail_file("no instruction names a micro-batch");
    const std::size_t held = parts.empty() ? 1 : parts.front().size();
    PipelineShape shape;
    shape.stages = found;
    shape.micro_batches =
        micro_batches ? micro_batches->value : most_micro_batch_ + 1;
    shape.chunks = chunks
                       ? chunks->value
                       : std::max(most_chunk_ + 1, static_cast<int>(held));
    return shape;
}

void GatheredSchedule::take_parts(Schedule& schedule) const {
    if (parts_line == 0) return;
    const auto lists = static_cast<std::size_t>(schedule.stages);
    const auto numbers = static_cast<std::size_t>(schedule.chunks);
    if (parts.size() != lists)
        fail(parts_line,
             fmt::format(
                 "\"parts\" has {} for {}; one for each is expected",
                 counted(parts.size(), "list"), counted(lists, "stage")));
    for (std::size_t stage = 0; stage < lists; ++stage)
        if (parts[stage].size() != numbers)
            fail(parts_line,
                 fmt::format(
                     "\"parts\" has {} for stage {}; one for each of {} "
                     "is expected",
                     counted(parts[stage].size(), "number"), stage,
                     counted(numbers, "chunk")));
    schedule.parts = parts;
}

Schedule GatheredSchedule::finish() {
    Schedule schedule;
    const PipelineShape sizes = shape();
    try {
        schedule = empty_schedule(name, sizes);
    } catch (const UsageError& error) {
        fail_file(error.what());
    }
    take_parts(schedule);
    schedule.work = std::move(work_);
    schedule.file = file_;
    return schedule;
}

}  // namespace lockstep
