#include "src/pipeline/load_schedule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/pytorch_schedule.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/pipeline/validate.hpp"
#include "src/report/csv_cells.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/numbers.hpp"

namespace lockstep {

namespace {

/// The text of a file. Lines are counted while the text is read.
class CountedText {
  public:
    explicit CountedText(std::string_view text)
        : text_(text), stream_(std::string(text)) {}

    /// The stream from which the parser reads the text.
    std::istream& stream() { return stream_; }

    /// Returns the line of the byte that is `back` bytes before the last byte read.
    int line(std::size_t back = 0) {
        const auto read = static_cast<std::size_t>(
            stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in));
        const std::size_t until = std::max(read, back) - back;
        for (; counted_ < until; ++counted_)
            if (text_[counted_] == '\n') ++line_;
        return line_;
    }
    /// Returns line and column of byte number `byte`; all three are counted from 1.
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

std::optional<int> whole_number(std::string_view text) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stopped != end) return std::nullopt;
    return number;
}

/// Returns whether a number in the text has too many digits.
bool has_long_number(std::string_view text) {
    const auto is_digit = [](char letter) { return '0' <= letter && letter <= '9'; };
    std::ptrdiff_t digits = 0;
    return std::any_of(text.begin(), text.end(), [&](char letter) {
        digits = is_digit(letter) ? digits + 1 : 0;
        return digits > std::numeric_limits<int>::digits10;
    });
}

constexpr int kMostPart = kMostStages * kMostChunks - 1;

/// The value of "queues" that stands for MessageQueues::by_direction.
constexpr std::string_view kByDirection = "by direction";

/// A schedule that grows while its file is read. All functions throw UsageError, with
/// file and line, for text that is not valid.
class GatheredSchedule {
  public:
    /// `file` is the file's name in error messages.
    explicit GatheredSchedule(std::string file);

    /// A size that the file gives, and its line.
    struct Size {
        int value = 0;
        int line = 0;
    };
    std::string name;
    std::optional<Size> stages;
    std::optional<Size> micro_batches;
    std::optional<Size> chunks;
    std::vector<std::vector<int>> parts;  ///< empty if the file has none
    MessageQueues queues = MessageQueues::one;
    bool has_queues = false;  ///< a CSV file has a line "queues,…"
    std::optional<WrittenTimes> times;
    int times_line = 0;
    /// By name: one amount for all parts, or one for each part.
    std::map<std::string, std::vector<double>> memory;
    int memory_line = 0;
    int parts_line = 0;

    /// Begins the next stage's list.
    void add_stage(int line);
    /// Adds to the last stage's list.
    void add_instruction(std::string_view text, int line);
    int stages_so_far() const { return static_cast<int>(work_.size()); }
    int instructions_so_far() const { return static_cast<int>(work_.back().size()); }

    /// Returns the whole schedule. Sizes that were not given follow from the
    /// instructions.
    LoadedSchedule finish();

    /// Throws UsageError with "FILE:LINE: " and the sentence.
    template <typename... Args>
    [[noreturn]] void fail(int line, fmt::format_string<Args...> sentence,
                           Args&&... args) const {
        throw UsageError(fmt::format("{}:{}: ", file_, line) +
                         fmt::format(sentence, std::forward<Args>(args)...));
    }

  private:
    /// Returns the sizes: from the file if it gives them, else from its instructions.
    PipelineShape shape() const;
    /// A stage's middle that repeats, as the file has it: once.
    struct Middle {
        Positions positions{-1, -1};
        int times = 0;
        int line = 0;
    };

    bool add_bracket(std::string_view text, int line);
    void repeat_middle(Schedule& schedule) const;
    void take_parts(Schedule& schedule) const;
    void check_times(const Schedule& schedule) const;
    std::optional<ScheduleMemory> memory_of(const Schedule& schedule) const;
    [[noreturn]] void fail_file(const std::string& what) const;

    std::string file_;
    std::vector<std::vector<Instruction>> work_;
    std::vector<Middle> middles_;  ///< by stage
    int most_micro_batch_ = -1;
    int most_chunk_ = 0;
};

std::string counted(std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// Returns text from a file as a message shows it: in quotes, on one line, and cut if it
/// is long.
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
    middles_.emplace_back();
}

/// "[" begins a middle that repeats, "]x3" ends it. Returns false if the text is neither.
bool GatheredSchedule::add_bracket(std::string_view text, int line) {
    Middle& middle = middles_.back();
    const int here = instructions_so_far();
    if (text == "[") {
        if (middle.line != 0)
            fail(line, "stage {} has a second [; one middle can repeat",
                 stages_so_far() - 1);
        middle = {{here, -1}, 0, line};
        return true;
    }
    if (!text.starts_with("]")) return false;
    middle.times = text.starts_with("]x") ? whole_number(text.substr(2)).value_or(0) : 0;
    if (middle.times < 1 || middle.times > kMostMicroBatches)
        fail(line,
             "{} does not end a repeated middle; ]xN with N from 1 to {} is expected, as "
             "in ]x3",
             shown_text(text), kMostMicroBatches);
    if (middle.line == 0 || middle.positions.last >= 0)
        fail(line, "{} ends nothing: no [ of its stage stands before it",
             shown_text(text));
    if (middle.positions.first == here)
        fail(line, "there is nothing between [ and {}", shown_text(text));
    middle.positions.last = here;
    return true;
}

void GatheredSchedule::add_instruction(std::string_view text, int line) {
    if (add_bracket(text, line)) return;
    const std::vector<Instruction> read = read_instructions(text);
    if (read.empty() && has_long_number(text))
        fail(line, "a number in {} is too large", shown_text(text));
    if (read.empty())
        fail(line,
             "{} is no instruction; those are F, B, I, W, SA, RA, SG and RG with a "
             "micro-batch, as in F3, F3.1 (of chunk 1), F3@2 (with weights of version "
             "2), F3@~2 (with an estimate of them) or B3! (with other weights than its "
             "forward); R and U, as in R or R.1; several that begin together, as in "
             "(SA1;RG0); and [ and ]x3 around a middle that repeats 3 times",
             shown_text(text));
    for (const Instruction& each : read) {
        if (each.micro_batch >= kMostMicroBatches)
            fail(line, "{} names micro-batch {}; at most {} are possible, counted from 0",
                 shown_text(text), each.micro_batch, kMostMicroBatches);
        if (each.chunk >= kMostChunks)
            fail(line, "{} names chunk {}; at most {} are possible, counted from 0",
                 shown_text(text), each.chunk, kMostChunks);
        if (each.weight_version > kMostMicroBatches)
            fail(line, "{} names version {} of the weights; at most {} is possible",
                 shown_text(text), each.weight_version, kMostMicroBatches);
        most_micro_batch_ = std::max(most_micro_batch_, each.micro_batch);
        most_chunk_ = std::max(most_chunk_, each.chunk);
        work_.back().push_back(each);
        work_.back().back().line = line;
    }
}

/// Returns the number of micro-batches from one copy to the next: the number of forwards
/// of one chunk in the middle.
int micro_batches_of(const std::vector<Instruction>& work, Positions positions) {
    int count = 0;
    for (int i = positions.first; i < positions.last; ++i)
        count += work[i].kind == InstructionKind::forward &&
                 work[i].chunk == work[positions.first].chunk;
    return count;
}

/// Repeats the middle as often as the file says. In the file, the instructions after the
/// middle are written as if the middle ran once.
void GatheredSchedule::repeat_middle(Schedule& schedule) const {
    const bool any = std::any_of(middles_.begin(), middles_.end(),
                                 [](const Middle& each) { return each.line != 0; });
    if (!any) return;
    const Middle& one = middles_.front();
    Period period{0, 1, {}};
    for (std::size_t stage = 0; stage < middles_.size(); ++stage) {
        const Middle& middle = middles_[stage];
        if (middle.line == 0)
            fail_file(fmt::format("stage {} has no middle that repeats, but others have",
                                  stage));
        if (middle.positions.last < 0)
            fail(middle.line, "the [ of stage {} has no ] behind it", stage);
        const int count = micro_batches_of(schedule.work[stage], middle.positions);
        if (stage == 0) period.micro_batches = count;
        if (middle.times != one.times || count != period.micro_batches || count == 0)
            fail(middle.line,
                 "the middle of stage {} has forwards of {} micro-batches and repeats {} "
                 "times; it must be like stage 0's ({} micro-batches, {} times) and have "
                 "at least one micro-batch",
                 stage, count, middle.times, period.micro_batches, one.times);
        period.first.push_back(middle.positions);
    }
    if (const auto bad = find_bad_number(schedule)) throw UsageError(bad->sentence);
    schedule.period = period;
    const int line = one.line;
    try {
        schedule = repeated(schedule, one.times);
    } catch (const UsageError& error) {
        fail(line, "{}", error.what());
    }
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
    shape.micro_batches = most_micro_batch_ + 1;
    // If a middle repeats, the file's number of micro-batches includes all copies.
    if (micro_batches && middles_.front().line == 0)
        shape.micro_batches = micro_batches->value;
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

/// Returns what a name in "memory" stands for; null for another name.
double KeptMemory::*kept_memory(std::string_view name) {
    if (name == "activations") return &KeptMemory::activations;
    if (name == "for_weights") return &KeptMemory::for_weights;
    if (name == "recomputed") return &KeptMemory::recomputed;
    if (name == "weights") return &KeptMemory::weights;
    return nullptr;
}

void GatheredSchedule::check_times(const Schedule& schedule) const {
    if (!times) return;
    try {
        ticked(*times, schedule);
    } catch (const UsageError& error) {
        fail(times_line, "of \"times\", {}", error.what());
    }
    for (const auto& [link, time] : times->links)
        if (link.second >= schedule.stages)
            fail(times_line,
                 "the link \"{}-{}\" of \"times\" names stage {}; there are {} stages, "
                 "counted from 0",
                 link.first, link.second, link.second, schedule.stages);
}

std::optional<ScheduleMemory> GatheredSchedule::memory_of(
    const Schedule& schedule) const {
    if (memory_line == 0) return std::nullopt;
    const auto expected = static_cast<std::size_t>(schedule.part_count());
    std::size_t entries = 1;
    for (const auto& [kind, amounts] : memory) {
        if (amounts.size() != 1 && amounts.size() != expected)
            fail(memory_line,
                 "\"{}\" of \"memory\" has {} numbers; one for all parts, or {}, one per "
                 "part, are expected",
                 kind, amounts.size(), expected);
        entries = std::max(entries, amounts.size());
    }
    std::vector<KeptMemory> each(entries);
    for (const auto& [kind, amounts] : memory)
        for (std::size_t i = 0; i < entries; ++i)
            if (double KeptMemory::*const kept = kept_memory(kind))
                each[i].*kept = amounts[amounts.size() == 1 ? 0 : i];
    return ScheduleMemory(std::move(each));
}

LoadedSchedule GatheredSchedule::finish() {
    Schedule schedule;
    const PipelineShape sizes = shape();
    try {
        schedule = empty_schedule(name, sizes);
    } catch (const UsageError& error) {
        fail_file(error.what());
    }
    take_parts(schedule);
    schedule.work = std::move(work_);
    schedule.queues = queues;
    schedule.file = file_;
    repeat_middle(schedule);
    if (micro_batches && micro_batches->value != schedule.micro_batches)
        fail(micro_batches->line,
             "\"micro_batches\" is {}, but with all copies of the middle there are {}",
             micro_batches->value, schedule.micro_batches);
    check_times(schedule);
    std::optional<ScheduleMemory> held = memory_of(schedule);
    return {std::move(schedule), std::move(times), std::move(held)};
}

/// Returns the text behind its byte order mark, if it begins with one.
std::string_view without_mark(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    return text;
}

/// Returns the text without its comments, with the same number of lines.
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

/// Returns whether a line is about the whole schedule and not about a stage.
bool is_heading(const CsvRow& row) {
    return row.cells.front() == "parts" || row.cells.front() == "queues";
}

/// Returns whether the stages' first cell with text is an action of PyTorch.
bool is_pytorch(const std::vector<CsvRow>& rows) {
    for (const CsvRow& row : rows)
        for (const std::string& cell : row.cells)
            if (!is_heading(row) && !cell.empty()) return is_pytorch_action(cell);
    return false;
}

/// Reads a line "parts,0 3,1 2": a cell for each stage, with the numbers of its parts.
void add_parts(const CsvRow& row, GatheredSchedule& gathered) {
    if (gathered.parts_line != 0)
        gathered.fail(row.line, "a second line of parts; the first is line {}",
                      gathered.parts_line);
    gathered.parts_line = row.line;
    for (std::size_t i = 1; i < row.cells.size(); ++i) {
        std::vector<int>& parts = gathered.parts.emplace_back();
        std::istringstream words(row.cells[i]);
        for (std::string word; words >> word;) {
            const std::optional<int> part = whole_number(word);
            if (!part || *part < 0 || *part > kMostPart)
                gathered.fail(row.line,
                              "{} among the parts of stage {}; numbers with blanks "
                              "between them are expected, as in parts,0 3,1 2",
                              shown_text(word), i - 1);
            parts.push_back(*part);
        }
    }
}

/// Reads a line "queues,one" or "queues,by direction".
void add_queues(const CsvRow& row, GatheredSchedule& gathered) {
    const std::string way =
        fmt::format("{}", fmt::join(row.cells.begin() + 1, row.cells.end(), ","));
    if (way != "one" && way != kByDirection)
        gathered.fail(row.line, "queues,{}: queues,one or queues,{} is expected",
                      printable(way), kByDirection);
    if (std::exchange(gathered.has_queues, true))
        gathered.fail(row.line, "a second line of queues; one is expected");
    if (way == kByDirection) gathered.queues = MessageQueues::by_direction;
}

void add_stage(const CsvRow& row, GatheredSchedule& gathered) {
    gathered.add_stage(row.line);
    for (const std::string& cell : row.cells)
        if (!cell.empty()) gathered.add_instruction(cell, row.line);
}

/// Throws UsageError if two ranks have the same PyTorch stage.
void require_own_parts(const std::vector<CsvRow>& rows,
                       const std::vector<PyTorchRank>& ranks,
                       const GatheredSchedule& gathered) {
    std::map<int, std::size_t> rank_of;
    for (std::size_t i = 0; i < ranks.size(); ++i)
        for (const int part : ranks[i].parts())
            if (const auto [other, is_new] = rank_of.emplace(part, i); !is_new)
                gathered.fail(rows[i].line,
                              "ranks {} and {} both have stage {}, but "
                              "torch.distributed.pipelining has each stage on one rank",
                              other->second, i, part);
}

/// Translates PyTorch's cells; PyTorch's ranks are the stages.
void add_pytorch(const std::vector<CsvRow>& rows, GatheredSchedule& gathered) {
    std::size_t chunks = 0;
    std::vector<PyTorchRank> ranks(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (const std::string& cell : rows[i].cells)
            if (!cell.empty() && !ranks[i].add(cell, rows[i].line))
                gathered.fail(rows[i].line,
                              "{} is no action of torch.distributed.pipelining, but the "
                              "file begins with one. An action is a stage, then F, B, I, "
                              "W, SEND_F, RECV_F, SEND_B or RECV_B and a micro-batch, as "
                              "in 2F0, or REDUCE_GRAD, UNSHARD or RESHARD; or it is a "
                              "pair, as in (5F2;3B1)OVERLAP_F_B",
                              shown_text(cell));
        chunks = std::max(chunks, ranks[i].parts().size());
    }
    require_own_parts(rows, ranks, gathered);
    gathered.parts_line = rows.front().line;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (ranks[i].parts().size() != chunks)
            gathered.fail(rows[i].line,
                          "rank {} has {} of PyTorch's stages, but another rank has {}; "
                          "all ranks must have the same number",
                          i, ranks[i].parts().size(), chunks);
        gathered.parts.push_back(ranks[i].parts());
        gathered.add_stage(rows[i].line);
        for (const auto& [text, line] : ranks[i].texts())
            gathered.add_instruction(text, line);
    }
}

}  // namespace

Schedule read_schedule_csv(const std::string& text, const std::string& name) {
    const std::string_view bytes = without_mark(text);
    const std::size_t binary = bytes.find('\0');
    // Lines are counted only if there is a byte 0.
    require(binary == bytes.npos, [&] {
        return fmt::format(
            "{}:{}: this is not CSV text: it holds a byte 0", name,
            1 + std::count(bytes.begin(),
                           bytes.begin() + static_cast<std::ptrdiff_t>(binary), '\n'));
    });

    const std::string lines = without_comments(bytes);
    require(lines.find_first_not_of(" \t\r\n") != lines.npos,
            [&] { return name + " is empty"; });
    std::vector<CsvRow> rows;
    CsvReader reader(lines, name);
    CsvRow row;
    while (reader.next(row))
        if (row.cells.size() != 1 || !row.cells.front().empty()) rows.push_back(row);
    GatheredSchedule gathered(name);
    if (is_pytorch(rows)) {
        add_pytorch(rows, gathered);
    } else {
        for (const CsvRow& each : rows) {
            if (each.cells.front() == "parts")
                add_parts(each, gathered);
            else if (each.cells.front() == "queues")
                add_queues(each, gathered);
            else
                add_stage(each, gathered);
        }
    }
    return gathered.finish().schedule;
}

namespace {

using LibraryJson = nlohmann::json;

/// Returns the parser's complaint about bad syntax, without the error's name and place.
std::string reason_of(std::string_view text) {
    for (const std::string_view opening : {"] ", "error at ", " - "}) {
        const std::size_t at = text.find(opening);
        if (at != text.npos) text.remove_prefix(at + opening.size());
    }
    return std::string(text.substr(0, text.find("; last read")));
}

/// Gets the file's values in the order in which the parser reads them.
class ScheduleReader final : public nlohmann::json_sax<LibraryJson> {
  public:
    ScheduleReader(std::string_view text, const std::string& file)
        : text_(text), file_(file), gathered_(file) {}

    LoadedSchedule read() {
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
    void container(Kind kind, std::string_view text, const std::string& what);
    void list_of(Kind kind, std::string_view text);
    void element(Kind kind, std::string_view text);
    bool in_amounts() const { return key_ == "times" || key_ == "memory"; }
    void inner_key(const std::string& name);
    void time_key(const std::string& name);
    void link_key(const std::string& name);
    void amount(Kind kind, std::string_view text);
    void add_time(std::string_view text, const std::string& what);
    int whole(Kind kind, std::string_view text, int least, int most,
              const std::string& what);
    [[noreturn]] void fail(const std::string& what, Kind kind, std::string_view text,
                           const std::string& expected);

    CountedText text_;
    std::string file_;
    GatheredSchedule gathered_;
    std::set<std::string> keys_;
    std::string key_;
    std::string inner_;         ///< the key inside "times" or "memory"
    int listed_ = 0;            ///< amounts so far in the current list
    std::pair<int, int> link_;  ///< the key inside "links"
    int line_ = 1;              ///< of the current value
    int depth_ = 0;             ///< 1 inside the file's object, 2 and 3 inside lists
    int skipped_ = 0;           ///< depth inside a value that is ignored
};

/// Returns whether timing_json() writes this key beside the schedule.
bool is_known_output(const std::string& key) {
    constexpr std::array kOutputs{
        "durations",   "makespan",      "longest_stage",     "ideal",
        "bubble_time", "idle",          "bubble_over_total", "bubble_over_ideal",
        "utilisation", "in_flight",     "between_halves",    "peak_memory",
        "period",      "known",         "weight_versions",   "start",
        "end",         "critical_path", "communication",     "time_origin",
        "spans"};
    return std::ranges::find(kOutputs, key) != kOutputs.end();
}

bool ScheduleReader::key(std::string& name) {
    if (skipped_ > 0) return true;
    if (depth_ > 1) {
        if (depth_ == 2)
            inner_key(name);
        else
            link_key(name);
        return true;
    }
    constexpr std::array kKeys{"name",  "stages", "micro_batches", "chunks", "schedule",
                               "parts", "queues", "times",         "memory"};
    const bool known = std::ranges::find(kKeys, name) != kKeys.end();
    if (!known && !is_known_output(name))
        gathered_.fail(text_.line(),
                       "the key {} is not known; a schedule has \"name\", \"stages\", "
                       "\"micro_batches\", \"chunks\", \"schedule\", \"parts\", "
                       "\"queues\", \"times\" and \"memory\"",
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
    const bool amounts = skipped_ == 0 && depth_ == 3 && in_amounts();
    if (amounts && inner_ != "links" && listed_ == 0)
        gathered_.fail(text_.line(),
                       "\"{}\" of \"{}\" is an empty list; one number per part "
                       "is expected",
                       inner_, key_);
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
    } else if (in_amounts()) {
        amount(kind, text);
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
    } else if (key_ == "queues") {
        const bool known = text == "one" || text == kByDirection;
        if (kind != Kind::text || !known)
            fail(what, kind, text, "\"one\" or \"by direction\"");
        if (text != "one") gathered_.queues = MessageQueues::by_direction;
    } else if (!is_known_output(key_)) {
        container(kind, text, what);
    }
}

/// Begins the value of a key that has several values.
void ScheduleReader::container(Kind kind, std::string_view text,
                               const std::string& what) {
    if (in_amounts() && kind != Kind::object)
        fail(what, kind, text, "an object with amounts");
    if (!in_amounts() && kind != Kind::list)
        fail(what, kind, text, "a list with a list for each stage");
    if (key_ == "times") {
        gathered_.times.emplace();
        gathered_.times_line = line_;
    }
    if (key_ == "memory") gathered_.memory_line = line_;
    if (key_ == "parts") gathered_.parts_line = line_;
}

void ScheduleReader::inner_key(const std::string& name) {
    if (!keys_.insert(key_ + "/" + name).second)
        gathered_.fail(text_.line(), "the key {} is there twice", shown_text(name));
    inner_ = name;
    if (key_ == "times") return time_key(name);
    if (kept_memory(name) == nullptr)
        gathered_.fail(text_.line(),
                       "the key {} is not known; \"memory\" has \"activations\", "
                       "\"for_weights\", \"recomputed\" and \"weights\"",
                       shown_text(name));
    gathered_.memory[name];
}

void ScheduleReader::time_key(const std::string& name) {
    WrittenTimes& times = *gathered_.times;
    WrittenTimes::Amounts* const amounts = times.named(name);
    if (amounts != nullptr)
        amounts->clear();
    else if (name == "backward")
        times.backward_input = times.backward_weight = {};
    else if (name != "links")
        gathered_.fail(text_.line(),
                       "the key {} is not known; \"times\" has {}, backward and links",
                       shown_text(name), fmt::join(WrittenTimes::names(), ", "));
    const bool half =
        keys_.contains("times/backward_input") || keys_.contains("times/backward_weight");
    if (half && keys_.contains("times/backward"))
        gathered_.fail(
            text_.line(),
            "\"backward\" gives both halves, but one half is also given separately");
}

/// Reads a link such as "1-2".
void ScheduleReader::link_key(const std::string& name) {
    const char* const end = name.data() + name.size();
    const auto first = std::from_chars(name.data(), end, link_.first);
    const bool dash = first.ec == std::errc{} && first.ptr != end && *first.ptr == '-';
    const auto second = std::from_chars(dash ? first.ptr + 1 : end, end, link_.second);
    const bool link = dash && second.ec == std::errc{} && second.ptr == end &&
                      link_.first >= 0 && link_.first < link_.second;
    if (!link)
        gathered_.fail(text_.line(),
                       "{} is no link; two stages, the lower first, are expected, as in "
                       "\"1-2\"",
                       shown_text(name));
    if (gathered_.times->links.contains(link_))
        gathered_.fail(text_.line(), "the link {} is there twice", shown_text(name));
}

/// Reads a number in "times" or "memory", or begins a list or an object of numbers.
void ScheduleReader::amount(Kind kind, std::string_view text) {
    const std::string what = fmt::format("\"{}\" of \"{}\"", inner_, key_);
    const bool links = key_ == "times" && inner_ == "links";
    listed_ = depth_ == 2 ? 0 : listed_ + 1;
    if (depth_ == 2 && kind == (links ? Kind::object : Kind::list)) return;
    const bool expected = links ? depth_ == 3 : depth_ <= 3;
    if (!expected || kind != Kind::number)
        fail(what, kind, text,
             links ? "an object with a number for each link, as in {\"1-2\": 0.5},"
                   : "a number, or a list of numbers,");
    if (key_ == "times") return add_time(text, what);
    const std::optional<double> read = parse_number(text);
    if (!read || !(*read >= 0 && *read <= kMostKeptMemory))
        fail(what, kind, text, fmt::format("a number from 0 to {:g}", kMostKeptMemory));
    gathered_.memory[inner_].push_back(*read);
}

void ScheduleReader::add_time(std::string_view text, const std::string& what) {
    WrittenTimes& times = *gathered_.times;
    std::int64_t read = 0;
    try {
        read = billionths_of(text, what);
    } catch (const UsageError& error) {
        gathered_.fail(line_, "{}", error.what());
    }
    if (inner_ == "links") {
        times.links[link_] = read;
    } else if (inner_ == "backward") {
        if (read % 2 != 0)
            gathered_.fail(line_, "{} is {}, whose half would be rounded", what, text);
        times.backward_input.push_back(read / 2);
        times.backward_weight.push_back(read / 2);
    } else {
        times.named(inner_)->push_back(read);
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
        gathered_.fail(
            line_,
            "\"parts\" has more than {} lists, the largest possible number of stages",
            kMostStages);
}

void ScheduleReader::element(Kind kind, std::string_view text) {
    if (key_ == "parts") {
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
    const std::optional<int> number = whole_number(text);
    if (kind != Kind::number || !number || *number < least || *number > most)
        fail(what, kind, text, fmt::format("a whole number from {} to {}", least, most));
    return *number;
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
        gathered_.fail(line, "the number {} is too large", shown_text(token));
    gathered_.fail(line, "this is not JSON, at column {}: {}", column,
                   reason_of(error.what()));
}

}  // namespace

LoadedSchedule read_schedule_json(const std::string& text, const std::string& name) {
    const std::string_view bytes = without_mark(text);
    require(bytes.find_first_not_of(" \t\r\n") != bytes.npos,
            [&] { return name + " is empty"; });
    return ScheduleReader(bytes, name).read();
}

LoadedSchedule load_schedule(const std::filesystem::path& file) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
    const std::string text = read_text_file(file, kMostBytes);
    if (file.extension() == ".csv")
        return {read_schedule_csv(text, file.string()), {}, {}};
    return read_schedule_json(text, file.string());
}

}  // namespace lockstep
