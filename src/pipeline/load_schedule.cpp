#include "src/pipeline/load_schedule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/report/csv_cells.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

/// The text of a file, which knows how far it has been read, and so on which line.
class CountedText {
  public:
    explicit CountedText(std::string_view text)
        : text_(text), stream_(std::string(text)) {}

    /// The file is read through this.
    std::istream& stream() { return stream_; }

    /// Returns the line of the byte that is `back` before the last one read.
    int line(std::size_t back = 0) {
        const auto read = static_cast<std::size_t>(
            stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in));
        const std::size_t until = std::max(read, back) - back;
        for (; counted_ < until; ++counted_)
            if (text_[counted_] == '\n') ++line_;
        return line_;
    }
    /// Returns line and column of the byte with this number; all count from 1.
    std::pair<int, std::size_t> line_and_column(std::size_t byte) const {
        const std::string_view before =
            text_.substr(0, std::clamp<std::size_t>(byte, 1, text_.size()) - 1);
        const std::size_t begin = before.rfind('\n') + 1;
        return {1 + static_cast<int>(std::ranges::count(before, '\n')),
                before.size() - begin + 1};
    }

  private:
    std::string_view text_;
    std::istringstream stream_;
    std::size_t counted_ = 0;
    int line_ = 1;
};

/// A schedule, gathered as its file is read. All functions throw
/// UsageError, with file and line, for what cannot be.
class GatheredSchedule {
  public:
    /// `file` is what messages call it.
    explicit GatheredSchedule(std::string file);

    /// A size that the file gives, and the line where it does.
    struct Size {
        int value = 0;
        int line = 0;
    };
    std::string name;
    std::optional<Size> stages;
    std::optional<Size> micro_batches;
    std::optional<Size> chunks;
    std::vector<std::vector<int>> parts;  ///< empty if it has none
    int parts_line = 0;

    /// Begins the next stage's list.
    void add_stage(int line);
    /// To the last stage's list.
    void add_instruction(std::string_view text, int line);
    int stages_so_far() const { return static_cast<int>(work_.size()); }
    int instructions_so_far() const { return static_cast<int>(work_.back().size()); }

    /// All of it; sizes that were not given follow from the instructions.
    Schedule finish();

    /// "FILE:LINE: " and the sentence.
    template <typename... Args>
    [[noreturn]] void fail(int line, fmt::format_string<Args...> sentence,
                           Args&&... args) const {
        throw UsageError(fmt::format("{}:{}: ", file_, line) +
                         fmt::format(sentence, std::forward<Args>(args)...));
    }

  private:
    /// Sizes, of which each is as the file says, or as its instructions do.
    PipelineShape shape() const;
    void take_parts(Schedule& schedule) const;
    [[noreturn]] void fail_file(const std::string& what) const;

    std::string file_;
    std::vector<std::vector<Instruction>> work_;
    int most_micro_batch_ = -1;
    int most_chunk_ = 0;
};

std::string counted(std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// Text from a file, as a message shows it: in quotes, on one line, and cut
/// where it is long.
std::string shown_text(std::string_view text) {
    constexpr std::size_t kLongest = 40;
    if (text.size() <= kLongest) return json_quoted(text);
    std::size_t cut = kLongest;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80)
        --cut;
    return json_quoted(std::string(text.substr(0, cut)) + "…");
}

GatheredSchedule::GatheredSchedule(std::string file)
    : name(std::filesystem::path(file).stem().string()), file_(std::move(file)) {}

void GatheredSchedule::fail_file(const std::string& what) const {
    throw UsageError(fmt::format("{}: {}", file_, what));
}

void GatheredSchedule::add_stage(int line) {
    if (stages_so_far() == kMostStages)
        fail(line, "this is stage {}, counted from 0; at most {} stages are possible",
             kMostStages, kMostStages);
    work_.emplace_back();
}

void GatheredSchedule::add_instruction(std::string_view text, int line) {
    const std::optional<Instruction> read = read_instruction(text);
    if (!read)
        fail(line,
             "{} is no instruction; those are F, B, I, W, SA, RA, SG and RG with a "
             "micro-batch, as in F3, F3.1 (of chunk 1) or F3@2 (with weights of version "
             "2), and R and U, as in R or R.1",
             shown_text(text));
    if (read->micro_batch >= kMostMicroBatches)
        fail(line, "{} is of micro-batch {}; at most {} are possible, counted from 0",
             shown_text(text), read->micro_batch, kMostMicroBatches);
    if (read->chunk >= kMostChunks)
        fail(line, "{} is of chunk {}; at most {} are possible, counted from 0",
             shown_text(text), read->chunk, kMostChunks);
    most_micro_batch_ = std::max(most_micro_batch_, read->micro_batch);
    most_chunk_ = std::max(most_chunk_, read->chunk);
    work_.back().push_back(*read);
    work_.back().back().line = line;
}

PipelineShape GatheredSchedule::shape() const {
    const int found = stages_so_far();
    if (found == 0) fail_file("there is no stage");
    if (stages && stages->value != found)
        fail(stages->line, "\"stages\" is {}, but there are lists for {}", stages->value,
             found);
    if (!micro_batches && most_micro_batch_ < 0)
        fail_file("no instruction names a micro-batch");
    const std::size_t held = parts.empty() ? 1 : parts.front().size();
    PipelineShape shape;
    shape.stages = found;
    shape.micro_batches = micro_batches ? micro_batches->value : most_micro_batch_ + 1;
    shape.chunks =
        chunks ? chunks->value : std::max(most_chunk_ + 1, static_cast<int>(held));
    return shape;
}

void GatheredSchedule::take_parts(Schedule& schedule) const {
    if (parts_line == 0) return;
    const auto lists = static_cast<std::size_t>(schedule.stages);
    const auto numbers = static_cast<std::size_t>(schedule.chunks);
    if (parts.size() != lists)
        fail(parts_line, "\"parts\" has {} for {}; one for each is expected",
             counted(parts.size(), "list"), counted(lists, "stage"));
    for (std::size_t stage = 0; stage < lists; ++stage)
        if (parts[stage].size() != numbers)
            fail(parts_line,
                 "\"parts\" has {} for stage {}; one for each of {} is expected",
                 counted(parts[stage].size(), "number"), stage,
                 counted(numbers, "chunk"));
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

/// Returns the text behind its byte order mark, if it begins with one.
std::string_view without_mark(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    return text;
}

/// Returns the text without its comments, line for line.
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

Schedule read_schedule_csv(const std::string& text, const std::string& name) {
    const std::string_view bytes = without_mark(text);
    const std::size_t binary = bytes.find('\0');
    // Without such a byte there is no line to count to.
    require(binary == bytes.npos, [&] {
        return fmt::format(
            "{}:{}: this is not CSV text: it holds a byte 0", name,
            1 + std::count(bytes.begin(),
                           bytes.begin() + static_cast<std::ptrdiff_t>(binary), '\n'));
    });

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

namespace {

using LibraryJson = nlohmann::json;

/// Returns the parser's complaint about bad syntax, without its name and numbers.
std::string reason_of(std::string_view text) {
    for (const std::string_view opening : {"] ", "error at ", " - "}) {
        const std::size_t at = text.find(opening);
        if (at != text.npos) text.remove_prefix(at + opening.size());
    }
    return std::string(text.substr(0, text.find("; last read")));
}

/// Takes the file's values as the parser comes to them.
class ScheduleReader final : public nlohmann::json_sax<LibraryJson> {
  public:
    ScheduleReader(std::string_view text, const std::string& file)
        : text_(text), file_(file), gathered_(file) {}

    Schedule read() {
        LibraryJson::sax_parse(text_.stream(), this);
        if (!keys_.contains("schedule"))
            throw UsageError(file_ +
                             ": \"schedule\" is missing: a list for each stage, of "
                             "instructions such as \"F0\"");
        return gathered_.finish();
    }

    bool null() override { return value(Kind::other, "null"); }
    bool boolean(bool given) override {
        return value(Kind::other, given ? "true" : "false");
    }
    bool number_integer(std::int64_t number) override {
        return value(Kind::number, std::to_string(number));
    }
    bool number_unsigned(std::uint64_t number) override {
        return value(Kind::number, std::to_string(number));
    }
    bool number_float(double /*number*/, const std::string& text) override {
        return value(Kind::number, text);
    }
    bool string(std::string& text) override { return value(Kind::text, text); }
    bool binary(LibraryJson::binary_t& /*bytes*/) override {
        return value(Kind::other, "binary");
    }
    bool start_object(std::size_t /*size*/) override {
        return begin(Kind::object, "an object");
    }
    bool start_array(std::size_t /*size*/) override {
        return begin(Kind::list, "a list");
    }
    bool end_object() override { return end(); }
    bool end_array() override { return end(); }
    bool key(std::string& name) override;
    bool parse_error(std::size_t byte, const std::string& token,
                     const LibraryJson::exception& error) override;

  private:
    enum class Kind { text, number, list, object, other };

    bool begin(Kind kind, std::string_view text);
    bool end();
    bool value(Kind kind, std::string_view text);
    void member(Kind kind, std::string_view text);
    void list_of(Kind kind, std::string_view text);
    void element(Kind kind, std::string_view text);
    int whole(Kind kind, std::string_view text, int least, int most,
              const std::string& what);
    [[noreturn]] void fail(const std::string& what, Kind kind, std::string_view text,
                           const std::string& expected);

    CountedText text_;
    std::string file_;
    GatheredSchedule gathered_;
    std::set<std::string> keys_;
    std::string key_;
    int line_ = 1;     ///< of the value at hand
    int depth_ = 0;    ///< 1 inside the file's object, 2 and 3 inside lists
    int skipped_ = 0;  ///< depth inside a value that says nothing here
};

/// Returns whether timing_json() writes this key beside the schedule.
bool is_known_output(const std::string& key) {
    constexpr std::array kOutputs{"durations",
                                  "kept_memory",
                                  "makespan",
                                  "longest_stage",
                                  "ideal",
                                  "bubble_time",
                                  "idle",
                                  "bubble_over_total",
                                  "bubble_over_ideal",
                                  "utilisation",
                                  "in_flight",
                                  "between_halves",
                                  "peak_memory",
                                  "weight_versions",
                                  "start",
                                  "end",
                                  "critical_path",
                                  "communication",
                                  "time_origin",
                                  "spans"};
    return std::ranges::find(kOutputs, key) != kOutputs.end();
}

bool ScheduleReader::key(std::string& name) {
    if (skipped_ > 0) return true;
    constexpr std::array kKeys{"name",   "stages",   "micro_batches",
                               "chunks", "schedule", "parts"};
    const bool known = std::ranges::find(kKeys, name) != kKeys.end();
    if (!known && !is_known_output(name))
        gathered_.fail(text_.line(),
                       "the key {} is not known; a schedule has \"name\", \"stages\", "
                       "\"micro_batches\", \"chunks\", \"schedule\" and \"parts\"",
                       shown_text(name));
    if (!keys_.insert(name).second)
        gathered_.fail(text_.line(), "the key {} is there twice", shown_text(name));
    key_ = name;
    return true;
}

bool ScheduleReader::begin(Kind kind, std::string_view text) {
    if (skipped_ > 0 || (depth_ == 1 && is_known_output(key_))) {
        ++skipped_;
        return true;
    }
    value(kind, text);
    ++depth_;
    return true;
}

bool ScheduleReader::end() {
    --(skipped_ > 0 ? skipped_ : depth_);
    return true;
}

bool ScheduleReader::value(Kind kind, std::string_view text) {
    if (skipped_ > 0) return true;
    // To see where a number ends, the parser has read one byte more.
    line_ = text_.line(kind == Kind::number ? 1 : 0);
    if (depth_ == 0) {
        if (kind != Kind::object)
            fail("the file", kind, text, "an object with the key \"schedule\"");
    } else if (depth_ == 1) {
        member(kind, text);
    } else if (depth_ == 2) {
        list_of(kind, text);
    } else {
        element(kind, text);
    }
    return true;
}

void ScheduleReader::member(Kind kind, std::string_view text) {
    const std::string what = "\"" + key_ + "\"";
    if (key_ == "name") {
        if (kind != Kind::text) fail(what, kind, text, "text");
        gathered_.name = text;
    } else if (key_ == "stages") {
        gathered_.stages = {whole(kind, text, 1, kMostStages, what), line_};
    } else if (key_ == "micro_batches") {
        gathered_.micro_batches = {whole(kind, text, 1, kMostMicroBatches, what), line_};
    } else if (key_ == "chunks") {
        gathered_.chunks = {whole(kind, text, 1, kMostChunks, what), line_};
    } else if (key_ == "schedule" || key_ == "parts") {
        if (kind != Kind::list)
            fail(what, kind, text, "a list with a list for each stage");
        if (key_ == "parts") gathered_.parts_line = line_;
    }
}

void ScheduleReader::list_of(Kind kind, std::string_view text) {
    const bool parts = key_ == "parts";
    const std::size_t stage = parts ? gathered_.parts.size()
                                    : static_cast<std::size_t>(gathered_.stages_so_far());
    if (kind != Kind::list)
        fail(fmt::format("stage {} of \"{}\"", stage, key_), kind, text,
             parts ? "a list of numbers" : "a list of instructions");
    if (!parts)
        gathered_.add_stage(line_);
    else if (stage < kMostStages)
        gathered_.parts.emplace_back();
    else
        gathered_.fail(line_,
                       "\"parts\" has more than {} lists, which is "
                       "how many stages are possible",
                       kMostStages);
}

void ScheduleReader::element(Kind kind, std::string_view text) {
    if (key_ == "parts") {
        constexpr int kMostPart = kMostStages * kMostChunks - 1;
        gathered_.parts.back().push_back(
            whole(kind, text, 0, kMostPart, "a part of the model"));
        return;
    }
    if (kind != Kind::text)
        fail(fmt::format("stage {}'s instruction {}", gathered_.stages_so_far() - 1,
                         gathered_.instructions_so_far() + 1),
             kind, text, "text such as \"F0\"");
    gathered_.add_instruction(text, line_);
}

int ScheduleReader::whole(Kind kind, std::string_view text, int least, int most,
                          const std::string& what) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    if (kind != Kind::number || error != std::errc{} || stopped != end ||
        number < least || number > most)
        fail(what, kind, text, fmt::format("a whole number from {} to {}", least, most));
    return number;
}

void ScheduleReader::fail(const std::string& what, Kind kind, std::string_view text,
                          const std::string& expected) {
    const std::string found = kind == Kind::text ? shown_text(text) : std::string(text);
    gathered_.fail(line_, "{} is {}; {} is expected", what, found, expected);
}

bool ScheduleReader::parse_error(std::size_t byte, const std::string& token,
                                 const LibraryJson::exception& error) {
    const auto [line, column] = text_.line_and_column(byte);
    if (dynamic_cast<const LibraryJson::out_of_range*>(&error) != nullptr)
        gathered_.fail(line, "the number {} is too large to be one", shown_text(token));
    gathered_.fail(line, "this is not JSON, at column {}: {}", column,
                   reason_of(error.what()));
}

}  // namespace

Schedule read_schedule_json(const std::string& text, const std::string& name) {
    const std::string_view bytes = without_mark(text);
    require(bytes.find_first_not_of(" \t\r\n") != bytes.npos,
            [&] { return name + " is empty"; });
    return ScheduleReader(bytes, name).read();
}

Schedule load_schedule(const std::filesystem::path& file) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
    const std::string text = read_text_file(file, kMostBytes);
    return file.extension() == ".csv" ? read_schedule_csv(text, file.string())
                                      : read_schedule_json(text, file.string());
}

}  // namespace lockstep
